/* Compares soft_float.c with the processor, or with the library where that has no floats: random
 * operands, and edges beside random ones. A NaN is as good as another. With BARE there is no C
 * library, and BARE is the number of pairs.
 */
#include <inttypes.h>
#include <stdint.h>

#if defined(BARE)
#include "bare_linux.h"
#else
#include <stdio.h>
#include <stdlib.h>
#endif

uint32_t soft_fmul(uint32_t a, uint32_t b);
uint32_t soft_fadd(uint32_t a, uint32_t b);
uint32_t soft_fsub(uint32_t a, uint32_t b);
uint32_t soft_frsub(uint32_t a, uint32_t b);
#if defined(__ARM_ARCH_7M__)
uint32_t soft_fdiv(uint32_t a, uint32_t b);
uint32_t soft_ui2f(uint32_t n);
uint32_t soft_i2f(int32_t n);
uint32_t soft_ul2f(uint64_t n);
uint32_t soft_l2f(int64_t n);
#endif

static uint64_t state = 88172645463325252u;

static uint32_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16);
}

static uint32_t operand(uint32_t other)
{
    static const uint32_t edges[] = {
        0x00000000u, 0x00000001u, 0x00000002u, 0x00400000u, 0x007fffffu, 0x00800000u,
        0x00800001u, 0x33800000u, 0x34000000u, 0x3f7fffffu, 0x3f800000u, 0x3f800001u,
        0x7f000000u, 0x7f7fffffu, 0x7f800000u, 0x7fc00000u,
    };
    const uint32_t bits = random_bits();
    switch (random_bits() % 4u) {
    case 0:
        return edges[bits % 16u] ^ (bits & 0x80000000u);
    case 1: /* near the other one, with up to two less or more in the exponent, of either sign */
        return (other ^ (bits & 0x80000000u)) + (bits % 5u) * 0x00800000u - 0x01000000u
               + bits / 8u % 7u - 3u;
    case 2: /* as in training */
        return (100u + bits % 56u) << 23 | (random_bits() & 0x807fffffu);
    default:
        return bits;
    }
}

typedef union {
    uint32_t bits;
    float number;
} both;

static float number(uint32_t bits)
{
    return (both){.bits = bits}.number;
}

#if defined(BARE)
static void differ(const char *what, uint32_t a, uint32_t b, uint32_t got, uint32_t wanted)
{
    (void)what, (void)a, (void)b, (void)got, (void)wanted;
    (void)system_call(EXIT, 1, 0, 0);
}
#else
static void differ(const char *what, uint32_t a, uint32_t b, uint32_t got, uint32_t wanted)
{
    printf("%08" PRIx32 " %s %08" PRIx32 ": %08" PRIx32 ", not %08" PRIx32 "\n", a, what, b, got,
           wanted);
    exit(1);
}
#endif

static void expect(const char *what, uint32_t a, uint32_t b, uint32_t got, float hard)
{
    const uint32_t wanted = (both){.number = hard}.bits;
    if (got << 1 > 0xff000000u && wanted << 1 > 0xff000000u) {
        return;
    }
    if (got != wanted) {
        differ(what, a, b, got, wanted);
    }
}

static void compare(long pairs)
{
    uint32_t b = 0;
    for (long i = 0; i < pairs; ++i) {
        const uint32_t a = operand(b);
        b = operand(a);
        expect("*", a, b, soft_fmul(a, b), number(a) * number(b));
        expect("+", a, b, soft_fadd(a, b), number(a) + number(b));
        expect("-", a, b, soft_fsub(a, b), number(a) - number(b));
        expect("r-", a, b, soft_frsub(a, b), number(b) - number(a));
#if defined(__ARM_ARCH_7M__)
        const uint64_t wide = ((uint64_t)a << 32 | b) >> random_bits() % 64u;
        expect("/", a, b, soft_fdiv(a, b), number(a) / number(b));
        expect("uint32", a, a, soft_ui2f(a), (float)a);
        expect("int32", a, a, soft_i2f((int32_t)a), (float)(int32_t)a);
        expect("uint64", a, b, soft_ul2f(wide), (float)wide);
        expect("int64", a, b, soft_l2f((int64_t)wide), (float)(int64_t)wide);
#endif
    }
}

#if defined(BARE)
void begin(void);

void begin(void)
{
    compare(BARE);
    (void)system_call(EXIT, 0, 0, 0);
}
#else
int main(int count, char **words)
{
    const long pairs = count > 1 ? atol(words[1]) : 0;
    compare(pairs);
    printf("%ld pairs\n", pairs);
    return 0;
}
#endif
