/* Scalar operations whose C counterpart is undefined, inexact or missing in some case; and what
 * makes the same program give the same bits on every target, as far as a compiler tells. What it
 * does not tell, such as the state of the processor, poetc_check.h finds at run time.
 */
#ifndef POETC_SCALAR_H
#define POETC_SCALAR_H

#include <float.h>
#include <stdbool.h>
#include <stdint.h>

#if defined(__SIZEOF_INT__) && __SIZEOF_INT__ < 4
#error "int must have 32 bits or more"
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the target is big-endian: arguments, results and images would be read in the wrong order"
#endif

#if FLT_RADIX != 2 || FLT_MANT_DIG != 24 || FLT_MIN_EXP != -125 || FLT_MAX_EXP != 128
#error "float must be IEEE-754 binary32"
#endif

/* 16: only types that are smaller than float have more. */
#if !defined(FLT_EVAL_METHOD) || (FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16)
#error "floats are computed with excess precision: on x86, compile with -msse2 -mfpmath=sse"
#endif

#if defined(__FAST_MATH__) || defined(_M_FP_FAST)
#error "-ffast-math and -Ofast change results: compile with -fno-fast-math behind them"
#elif defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "-ffinite-math-only changes results: compile with -fno-fast-math behind it"
#elif defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#error "-funsafe-math-optimizations changes results: compile with -fno-fast-math behind it"
#endif

/* Whatever the options are. clang with -ffp-contract=fast does not listen. */
#if defined(__clang__) || !defined(__GNUC__)
#pragma STDC FP_CONTRACT OFF
#elif !defined(__STRICT_ANSI__) || defined(__FP_FAST_FMAF)
#pragma GCC optimize("fp-contract=off,no-strict-aliasing")
#endif

/* Vectors of gcc and clang: two behind each other, and some numbers of two. */
#if defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 12)
#define POETC_JOIN_8(type, a, b) ((type)__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7))
#define POETC_JOIN_16(type, a, b)                                                             \
    ((type)__builtin_shufflevector(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))
#define POETC_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define POETC_JOIN_8(type, a, b)                                                \
    ((type){(a)[0], (a)[1], (a)[2], (a)[3], (b)[0], (b)[1], (b)[2], (b)[3]})
#define POETC_JOIN_16(type, a, b)                                                       \
    ((type){(a)[0], (a)[1], (a)[2], (a)[3], (a)[4], (a)[5], (a)[6], (a)[7], (b)[0],     \
        (b)[1], (b)[2], (b)[3], (b)[4], (b)[5], (b)[6], (b)[7]})
#define POETC_PICK(a, b, ...) __builtin_shuffle(a, b, (__typeof__((a) == (b))){__VA_ARGS__})
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

/* Floats of 16 bits are their bits, and are computed with as float. bf16 is the upper half of a
 * float; f16 has 5 bits of exponent and 10 behind the point. To the nearest, of two the even one;
 * what is too large is infinite.
 */
static inline float poetc_from_bf16(uint16_t half)
{
    return poetc_float((uint32_t)half << 16);
}

static inline uint16_t poetc_to_bf16(float value)
{
    const uint32_t bits = poetc_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float poetc_from_f16(uint16_t half)
{
    const uint32_t sign = (half & 0x8000u) << 16;
    const uint32_t rest = half & 0x7fffu;
    if (rest >= 0x7c00u) {
        return poetc_float(sign | 0x7f800000u | rest << 13);
    }
    if (rest < 0x0400u) {
        /* A multiple of 2^-24: exact. */
        const float small = (float)rest * 5.9604644775390625e-8f;
        return poetc_float(sign | poetc_bits(small));
    }
    return poetc_float(sign | ((rest << 13) + 0x38000000u));
}

static inline uint16_t poetc_to_f16(float value)
{
    const uint32_t bits = poetc_bits(value);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | (rest >> 13 & 0x3ffu));
    }
    if (rest >= 0x477ff000u) {
        return (uint16_t)(sign | 0x7c00u);
    }
    if (rest < 0x38800000u) {
        /* Less than 2^-14: adding 0.5 rounds to a multiple of 2^-24, the lowest bit of a half. */
        const float shifted = poetc_float(rest) + 0.5f;
        return (uint16_t)(sign | (poetc_bits(shifted) - 0x3f000000u));
    }
    return (uint16_t)(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1u)) >> 13);
}

/* Integer arithmetic modulo 2 to the number of bits; shifts by less than that, of which the one to
 * the right keeps the sign; powers with an exponent that is not negative.
 */
#define POETC_INTEGERS(suffix, type, wide)                         \
    static inline type poetc_add##suffix(type a, type b)           \
    {                                                              \
        return (type)((wide)a + (wide)b);                          \
    }                                                              \
                                                                   \
    static inline type poetc_sub##suffix(type a, type b)           \
    {                                                              \
        return (type)((wide)a - (wide)b);                          \
    }                                                              \
                                                                   \
    static inline type poetc_mul##suffix(type a, type b)           \
    {                                                              \
        return (type)((wide)a * (wide)b);                          \
    }                                                              \
                                                                   \
    static inline type poetc_shift_left##suffix(type a, type n)    \
    {                                                              \
        return (type)((wide)a << n);                               \
    }                                                              \
                                                                   \
    static inline type poetc_shift_right##suffix(type a, type n)   \
    {                                                              \
        return (type)(a < 0 ? ~(~a >> n) : a >> n);                \
    }                                                              \
                                                                   \
    static inline type poetc_power##suffix(type a, type n)         \
    {                                                              \
        wide base = (wide)a;                                       \
        wide power = 1;                                            \
        for (; n > 0; n = (type)(n >> 1)) {                        \
            power = (n & 1) != 0 ? power * base : power;           \
            base *= base;                                          \
        }                                                          \
        return (type)power;                                        \
    }

POETC_INTEGERS(, int32_t, uint32_t)
POETC_INTEGERS(_i8, int8_t, uint32_t)
POETC_INTEGERS(_i16, int16_t, uint32_t)
POETC_INTEGERS(_i64, int64_t, uint64_t)

/* Towards zero; NaN gives 0 and what is out of range the nearest integer in range. */
static inline int64_t poetc_to_int_i64(float value)
{
    if (value >= 9223372036854775808.0f) {
        return INT64_MAX;
    }
    if (value < -9223372036854775808.0f) {
        return INT64_MIN;
    }
    return value == value ? (int64_t)value : 0;
}

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

/* IEEE-754-2019 maximum and minimum: a NaN operand is the result, and -0 is less than +0. One
 * comparison does where the operands differ. */
static inline float poetc_maximum(float a, float b)
{
    if (a > b) {
        return a;
    }
    if (a < b) {
        return b;
    }
    if (a == b) {
        return poetc_float(poetc_bits(a) & poetc_bits(b));
    }
    return a != a ? a : b;
}

static inline float poetc_minimum(float a, float b)
{
    if (a < b) {
        return a;
    }
    if (a > b) {
        return b;
    }
    if (a == b) {
        return poetc_float(poetc_bits(a) | poetc_bits(b));
    }
    return a != a ? a : b;
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
