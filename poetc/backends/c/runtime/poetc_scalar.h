/* Scalar operations whose C counterpart is undefined, inexact or missing in some case.
 *
 * float must be IEEE-754 binary32 with rounding to nearest. Compile without fused multiply-add
 * (-ffp-contract=off), or results differ in the last bit between targets.
 */
#ifndef POETC_SCALAR_H
#define POETC_SCALAR_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SIZEOF_INT__) && __SIZEOF_INT__ < 4
#error "int must have 32 bits or more"
#endif

/* For builds whose options are not ours to choose. With -std=c99, gcc fuses nothing anyway. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__) && !defined(__STRICT_ANSI__)
#pragma GCC optimize("fp-contract=off,no-strict-aliasing")
#endif

typedef union {
    float value;
    uint32_t bits;
} poetc_float_bits;

/* The float with these bits. */
static inline float poetc_float(uint32_t bits)
{
    const poetc_float_bits number = {.bits = bits};
    return number.value;
}

/* The bits of a float. */
static inline uint32_t poetc_bits(float value)
{
    const poetc_float_bits number = {.value = value};
    return number.bits;
}

static inline float poetc_as_float(int32_t bits)
{
    return poetc_float((uint32_t)bits);
}

static inline int32_t poetc_as_int(float value)
{
    return (int32_t)poetc_bits(value);
}

/* Integer arithmetic modulo 2^32. */
static inline int32_t poetc_add(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}

static inline int32_t poetc_sub(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a - (uint32_t)b);
}

static inline int32_t poetc_mul(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}

/* Shifts by 0 <= n < 32; the right shift keeps the sign. */
static inline int32_t poetc_shift_left(int32_t a, int32_t n)
{
    return (int32_t)((uint32_t)a << n);
}

static inline int32_t poetc_shift_right(int32_t a, int32_t n)
{
    return a < 0 ? ~(~a >> n) : a >> n;
}

/* Towards zero; NaN gives 0 and what is out of range the nearest integer in range. */
static inline int32_t poetc_to_int(float value)
{
    if (value >= 2147483648.0f) {
        return INT32_MAX;
    }
    if (value < -2147483648.0f) {
        return INT32_MIN;
    }
    return value == value ? (int32_t)value : 0;
}

static inline float poetc_abs(float value)
{
    return poetc_float(poetc_bits(value) & 0x7fffffffu);
}

/* IEEE-754-2019 maximum and minimum: a NaN operand is the result, and -0 is less than +0. */
static inline float poetc_maximum(float a, float b)
{
    if (a == b) {
        return poetc_float(poetc_bits(a) & poetc_bits(b));
    }
    return a > b || a != a ? a : b;
}

static inline float poetc_minimum(float a, float b)
{
    if (a == b) {
        return poetc_float(poetc_bits(a) | poetc_bits(b));
    }
    return a < b || a != a ? a : b;
}

/* The same for a limit that is not NaN, and not -0 (at_least) or not +0 (at_most). */
static inline float poetc_at_least(float value, float limit)
{
    return value <= limit ? limit : value;
}

static inline float poetc_at_most(float value, float limit)
{
    return value >= limit ? limit : value;
}

#endif
