/* From reset to main on a Cortex-M: vectors, .data, .bss, floating-point unit, painted stack.
 *
 * The stack is at the bottom of RAM (link.ld), so that one that overflows runs out of RAM and faults
 * instead of overwriting data.
 */
#include "board.h"

#define PAINT 0xa5c3f00du

/* Of the linker script. */
extern uint32_t stack_low[];
extern uint32_t stack_high[];
extern uint32_t data_start[];
extern uint32_t data_end[];
extern const uint32_t data_load[];
extern uint32_t bss_start[];
extern uint32_t bss_end[];

int main(void);
void reset(void);
static void fault(void);

typedef struct {
    uint32_t *stack;
    void (*handlers[15])(void);
} vector_table;

/* No interrupt is ever enabled: these are the system's exceptions only. */
__attribute__((section(".vectors"), used)) static const vector_table vectors = {
    stack_high,
    {reset, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault, fault,
     fault, fault},
};

#if defined(__ARM_FP)
static void enable_fpu(void)
{
    volatile uint32_t *const cpacr = (volatile uint32_t *)0xe000ed88u;
    *cpacr |= 0xfu << 20; /* full access to coprocessors 10 and 11 */
    __asm__ volatile("dsb\n\tisb" ::: "memory");
}
#endif

void reset(void)
{
#if defined(__ARM_FP)
    enable_fpu();
#endif
    const uint32_t *from = data_load;
    for (uint32_t *to = data_start; to < data_end; ++to, ++from) {
        *to = *from;
    }
    for (uint32_t *to = bss_start; to < bss_end; ++to) {
        *to = 0;
    }
    uint32_t *top;
    __asm__ volatile("mov %0, sp" : "=r"(top));
    for (volatile uint32_t *word = stack_low; word < top; ++word) {
        *word = PAINT;
    }
    (void)main();
    board_exit(1);
    for (;;) {
    }
}

static void fault(void)
{
    /* The stack may be what is wrong; nobody returns to where it came from. */
    __asm__ volatile("msr msp, %0" : : "r"(stack_high) : "memory");
    board_print("fault: the program touched what it may not, or the stack overflowed\n");
    board_exit(3);
    for (;;) {
    }
}

uint32_t board_stack_used(void)
{
    const volatile uint32_t *word = stack_low;
    while (word < stack_high && *word == PAINT) {
        ++word;
    }
    return (uint32_t)(stack_high - word) * 4u;
}

uint32_t board_stack_bytes(void)
{
    return (uint32_t)(stack_high - stack_low) * 4u;
}
