/* Example: runs steps of the model on a board. What main.c is on a host; board.h says what it needs
 * from the board.
 *
 * Inputs are read before each step, as a step reuses their bytes; parameters are read once and live
 * in the arena, or are on storage.
 */
#include <stddef.h>

#include "board.h"
#include "model.h"

#ifdef MODEL_CALLER_ARENA
static model_instance instance;
#define OF_INSTANCE &instance,
#else
#define OF_INSTANCE
#endif

static void print_number(uint32_t number)
{
    char text[11];
    uint32_t start = sizeof text - 1;
    text[start] = '\0';
    do {
        --start;
        text[start] = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number != 0);
    board_print(&text[start]);
}

static bool failed(const char *what, uint32_t number, const char *why)
{
    board_print(what);
    print_number(number);
    board_print(": ");
    board_print(why);
    board_print("\n");
    return false;
}

#ifdef MODEL_PLAN_BYTES
/* Of the linker script: the part of flash for a plan that is sent to the device. */
extern const uint8_t plan_start[];
extern const uint8_t plan_end[];

/* A plan there takes the place of the program's own, unless it is refused. */
static void load_plan(void)
{
    const poetc_status sent = model_load_plan(plan_start, (uint32_t)(plan_end - plan_start));
    board_print("plan in flash: ");
    board_print(poetc_status_text(sent));
    board_print("\n");
}
#else
static void load_plan(void)
{
}
#endif

static bool load(bool first)
{
    /* != because compilers warn of i < 0, if there are none. */
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        void *const data = model_argument(OF_INSTANCE i);
        const bool wanted = first || !model_argument_is_parameter(i);
        if (wanted && data != NULL && !board_read_argument(i, data, model_argument_bytes(i))) {
            return failed("argument ", i, "cannot be read");
        }
    }
    return true;
}

static bool save(void)
{
    for (uint32_t i = 0; i != MODEL_RESULTS; ++i) {
        const void *const data = model_result(OF_INSTANCE i);
        if (data != NULL && !board_write_result(i, data, model_result_bytes(i))) {
            return failed("result ", i, "cannot be written");
        }
    }
    return true;
}

static bool run(uint32_t steps, poetc_store *store)
{
    if (steps == 0) {
        board_print("no number of steps\n");
        return false;
    }
    for (uint32_t step = 0; step < steps; ++step) {
        if (!load(step == 0)) {
            return false;
        }
        const poetc_status status = model_step(OF_INSTANCE store);
        if (status != POETC_OK) {
            return failed("step ", step, poetc_status_text(status));
        }
    }
    return save();
}

static void report(uint32_t steps)
{
    board_print("steps: ");
    print_number(steps);
    board_print(", RAM: ");
    print_number(MODEL_RAM_BYTES);
    board_print(" bytes, storage: ");
    print_number(MODEL_STORAGE_BYTES);
    board_print(" bytes, stack: ");
    print_number(board_stack_used());
    board_print(" of ");
    print_number(board_stack_bytes());
    board_print(" bytes, status: ");
    board_print(poetc_status_text(POETC_OK));
    board_print("\n");
}

int main(void)
{
    board_init();
    const uint32_t steps = board_steps();
    poetc_store *store = NULL;
    bool good = true;
#if MODEL_STORAGE_BYTES > 0
#ifdef MODEL_LAYOUT_ID
    const poetc_status opened = board_open_store(&store, true);
#else
    const poetc_status opened = board_open_store(&store, false);
#endif
    good = opened == POETC_OK || failed("storage, status ", (uint32_t)opened,
                                        poetc_status_text(opened));
#endif
    load_plan();
    good = good && run(steps, store);
#if MODEL_STORAGE_BYTES > 0
    if (opened == POETC_OK) {
        const poetc_status closed = board_close_store();
        good = good && (closed == POETC_OK || failed("storage, status ", (uint32_t)closed,
                                                     poetc_status_text(closed)));
    }
#endif
    if (good) {
        report(steps);
    }
    board_exit(good ? 0 : 1);
    return good ? 0 : 1;
}
