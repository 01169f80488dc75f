/* Compares sums, differences and products of soft_float.c with those of the processor: random
 * operands, and edges beside random ones. A NaN is as good as another.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t soft_mul(uint32_t a, uint32_t b);
uint32_t soft_add(uint32_t a, uint32_t b);
uint32_t soft_sub(uint32_t a, uint32_t b);
uint32_t soft_rsub(uint32_t a, uint32_t b);

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

static float number(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

static void expect(const char *what, uint32_t a, uint32_t b, uint32_t got, float hard)
{
    uint32_t wanted;
    memcpy(&wanted, &hard, 4);
    if (got << 1 > 0xff000000u && wanted << 1 > 0xff000000u) {
        return;
    }
    if (got != wanted) {
        printf("%08" PRIx32 " %s %08" PRIx32 ": %08" PRIx32 ", not %08" PRIx32 "\n", a, what, b,
               got, wanted);
        exit(1);
    }
}

int main(int count, char **words)
{
    const long pairs = count > 1 ? atol(words[1]) : 0;
    uint32_t b = 0;
    for (long i = 0; i < pairs; ++i) {
        const uint32_t a = operand(b);
        b = operand(a);
        expect("*", a, b, soft_mul(a, b), number(a) * number(b));
        expect("+", a, b, soft_add(a, b), number(a) + number(b));
        expect("-", a, b, soft_sub(a, b), number(a) - number(b));
        expect("r-", a, b, soft_rsub(a, b), number(b) - number(a));
    }
    printf("%ld pairs\n", pairs);
    return 0;
}
