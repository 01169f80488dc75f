/* Whether the processor and the compiler compute floats as generated code needs: what no #error in
 * poetc_scalar.h can see. Compiled with the kernels, and so with their options.
 */
#ifndef POETC_CHECK_H
#define POETC_CHECK_H

#include "poetc_scalar.h"
#include "poetc_store.h"

/* The float with these bits. The compiler knows nothing of them: it would compute what is checked.
 */
static inline float poetc_unknown(volatile uint32_t *cell, uint32_t bits)
{
    *cell = bits;
    return poetc_float(*cell);
}

static inline poetc_status poetc_check_arithmetic(volatile uint32_t *cell)
{
    const union {
        uint32_t word;
        uint8_t bytes[4];
    } order = {.word = 1u};
    if (order.bytes[0] != 1u) {
        return POETC_BYTE_ORDER;
    }
    /* 1 + 2^-24 and 1 + 2^-23 + 2^-24 are half way between two floats: the even one is right. */
    const float one = poetc_unknown(cell, 0x3f800000u);
    const float half_way = poetc_unknown(cell, 0x33800000u);
    if (poetc_bits(one + half_way) != 0x3f800000u
        || poetc_bits(poetc_unknown(cell, 0x3f800001u) + half_way) != 0x3f800002u) {
        return POETC_FLOAT_ROUNDING;
    }
    /* 2^-126 * 2^-23 is the least float; 2^-149 * 2^23 is 2^-126. */
    const float least_normal = poetc_unknown(cell, 0x00800000u);
    const float least = poetc_unknown(cell, 0x00000001u);
    if (poetc_bits(least_normal * poetc_unknown(cell, 0x34000000u)) != 0x00000001u
        || poetc_bits(least * poetc_unknown(cell, 0x4b000000u)) != 0x00800000u) {
        return POETC_FLOAT_DENORMALS;
    }
    /* (1 + 2^-12)^2 has one bit more than a float: fused with a sum, it is kept. (2^-24 + 1) - 1,
     * 5 / 3, -0 + 0 and NaN == NaN have simpler forms that are not the same.
     */
    const float factor = poetc_unknown(cell, 0x3f800800u);
    const float not_a_number = poetc_unknown(cell, 0x7fc00000u);
    if (poetc_bits(poetc_unknown(cell, 0xbf801000u) + factor * factor) != 0
        || poetc_bits((half_way + one) - one) != 0
        || poetc_bits(poetc_unknown(cell, 0x40a00000u) / 3.0f) != 0x3fd55555u
        || poetc_bits(poetc_unknown(cell, 0x80000000u) + 0.0f) != 0
        || not_a_number == not_a_number) {
        return POETC_FLOAT_EXPRESSIONS;
    }
    return POETC_OK;
}

#endif
