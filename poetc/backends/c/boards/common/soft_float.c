/* Arithmetic of floats for a Cortex-M0 and M3, in place of that of the compiler's library, whose
 * results it gives in fewer instructions: IEEE 754 single precision, rounded to the nearest, ties to
 * even, with denormals. A NaN is an operand that is one, made quiet, or the positive default one.
 *
 * The names are those of the run-time ABI for the Arm architecture (IHI 0043), section 4.1.2.
 */
#include <stdbool.h>
#include <stdint.h>

#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_7M__)

#define SIGN     0x80000000u
#define INFINITE 0x7f800000u
#define QUIET    0x00400000u
#define APART    __attribute__((noinline, used)) /* or all calls save what rare operands need */
#define ONE      0x00800000u /* added to a float: one more in its exponent */

uint32_t __aeabi_fmul(uint32_t a, uint32_t b);
uint32_t __aeabi_fadd(uint32_t a, uint32_t b);
uint32_t __aeabi_fsub(uint32_t a, uint32_t b);
uint32_t __aeabi_frsub(uint32_t a, uint32_t b);

/* The float nearest to `m` * 2^(`e` - 158), where bit 31 of `m` is set, and bit 0 also stands for
 * all that is lost below it.
 */
static uint32_t rounded(uint32_t sign, int32_t e, uint32_t m)
{
    uint32_t bits;
    if (e >= 255) {
        return sign | INFINITE;
    }
    if (e > 0) {
        /* The highest bit of the mantissa adds one to the exponent. */
        bits = ((uint32_t)(e - 1) << 23) + (m >> 8);
    } else {
        const uint32_t shift = (uint32_t)(1 - e);
        m = shift > 31u ? 1u : (m >> shift) | (uint32_t)((m << (32u - shift)) != 0u);
        bits = m >> 8;
    }
    /* Up, where the rest is more than half of the last bit, or half of it and that bit is set. A
     * mantissa that overflows adds one to the exponent, up to infinity.
     */
    bits += (uint32_t)((m & 0xffu) + (bits & 1u) > 0x80u);
    return sign | bits;
}

/* The product of any operands. */
static APART uint32_t multiply_any(uint32_t a, uint32_t b)
{
    const uint32_t sign = (a ^ b) & SIGN;
    int32_t ea = (int32_t)((a >> 23) & 0xffu);
    int32_t eb = (int32_t)((b >> 23) & 0xffu);
    uint32_t ma = (a & 0x7fffffu) | 0x800000u;
    uint32_t mb = (b & 0x7fffffu) | 0x800000u;
    if ((uint32_t)(ea - 1) >= 254u || (uint32_t)(eb - 1) >= 254u) {
        const uint32_t twice_a = a << 1;
        const uint32_t twice_b = b << 1;
        const bool zero = twice_a == 0u || twice_b == 0u;
        if (zero && ea != 255 && eb != 255) {
            return sign;
        }
        if (twice_a > 2u * INFINITE) {
            return a | QUIET;
        }
        if (twice_b > 2u * INFINITE) {
            return b | QUIET;
        }
        if (ea == 255 || eb == 255) {
            return zero ? INFINITE | QUIET : sign | INFINITE;
        }
        if (ea == 0) {
            ma -= 0x800000u;
            for (ea = 1; ma < 0x800000u; --ea) {
                ma <<= 1;
            }
        }
        if (eb == 0) {
            mb -= 0x800000u;
            for (eb = 1; mb < 0x800000u; --eb) {
                mb <<= 1;
            }
        }
    }
    /* The product has 47 or 48 bits, of which 32 are kept; the processor multiplies to 32 bits. */
    const uint32_t high_a = ma >> 16;
    const uint32_t low_a = ma & 0xffffu;
    const uint32_t high_b = mb >> 16;
    const uint32_t low_b = mb & 0xffffu;
    const uint32_t low = low_a * low_b;
    uint32_t m = ((high_a * high_b) << 16) + low_a * high_b + high_a * low_b + (low >> 16);
    m |= (uint32_t)((low << 16) != 0u);
    int32_t e = ea + eb - 126;
    if (m < SIGN) {
        m <<= 1;
        --e;
    }
    return rounded(sign, e, m);
}

#if defined(__ARM_ARCH_7M__) && defined(__thumb2__)
#define NAKED  __attribute__((naked)) /* assembly and nothing else, as clang wants it */
#define UNUSED __attribute__((unused))

/* As the functions in C below, by instructions of a Cortex-M3: a carry that rounds up is added with
 * the exponent, products have 64 bits, and a shift by 32 or more gives zero.
 */
NAKED uint32_t __aeabi_fmul(UNUSED uint32_t a, UNUSED uint32_t b)
{
    __asm__(".syntax unified\n"
            "eor   r2, r0, r0, lsl #1\n"
            "eor   r3, r1, r1, lsl #1\n"
            "and   ip, r1, r1, lsl #2\n"
            "ands  r2, r3\n"
            "bics  r2, r2, ip\n"
            "lsls  r2, r2, #1\n"
            "bpl   4f\n"
            "mov   ip, #0x80000000\n"
            "lsrs  r2, r0, #23\n"
            "add   r2, r2, r1, lsr #23\n"
            "orr   r0, ip, r0, lsl #8\n"
            "orr   r1, ip, r1, lsl #8\n"
            "umull r3, r1, r0, r1\n"
            "cmp   r1, #0\n"
            "bpl   1f\n"
            "subs  r2, #127\n"
            "lsrs  r0, r1, #8\n" /* the carry: the highest bit that is lost */
            "adc   r0, r0, r2, lsl #23\n"
            "lsls  r1, r1, #25\n" /* the same carry, and whether all others in r1 are zero */
            "beq   2f\n"
            "bx    lr\n"
            "1:\n"
            "subs  r2, #128\n"
            "lsrs  r0, r1, #7\n"
            "adc   r0, r0, r2, lsl #23\n"
            "lsls  r1, r1, #26\n"
            "beq   2f\n"
            "bx    lr\n"
            "2:\n"
            "bcc   3f\n"
            "cbnz  r3, 3f\n"
            "bic   r0, r0, #1\n"
            "3:\n"
            "bx    lr\n"
            "4:\n" /* zeros */
            "lsls  r2, r0, #1\n"
            "beq   5f\n"
            "lsls  r3, r1, #1\n"
            "bne.w multiply_any\n"
            "cmp   r2, #0xff000000\n"
            "bcs.w multiply_any\n"
            "b     6f\n"
            "5:\n"
            "lsls  r3, r1, #1\n"
            "cmp   r3, #0xff000000\n"
            "bcs.w multiply_any\n"
            "6:\n"
            "eors  r0, r1\n"
            "and   r0, r0, #0x80000000\n"
            "bx    lr\n");
}
#else
uint32_t __aeabi_fmul(uint32_t a, uint32_t b)
{
    /* Exponents from 64 to 191 have an upper bit that differs from the next one; from 160 on the one
     * after these is as the upper one. With `b` below 160 the product neither overflows nor is it
     * denormal.
     */
    if (((a ^ a << 1) & (b ^ b << 1) & ~(b & b << 2) & 0x40000000u) == 0u) {
        const uint32_t twice_a = a << 1;
        const uint32_t twice_b = b << 1;
        if ((twice_a == 0u && twice_b < 2u * INFINITE)
            || (twice_b == 0u && twice_a < 2u * INFINITE)) {
            return (a ^ b) & SIGN;
        }
        return multiply_any(a, b);
    }
    /* Signs and exponents add up, and the exponent of the product is less by two: one for the
     * highest bit of its mantissa.
     */
    uint32_t bits = ((a >> 23) + (b >> 23) - 128u) << 23;
    /* Mantissas in 16 and 8 bits; of their product 32 bits are kept, and what is below them. */
    const uint32_t low_a = a & 0xffu;
    const uint32_t low_b = b & 0xffu;
    const uint32_t high_a = (a << 8 | SIGN) >> 16;
    const uint32_t high_b = (b << 8 | SIGN) >> 16;
    const uint32_t low = low_a * low_b;
    const uint32_t middle = high_a * low_b + low_a * high_b + (low >> 8);
    uint32_t m = high_a * high_b + (middle >> 8);
    if (m < SIGN) {
        m <<= 1;
    } else {
        bits += ONE;
    }
    bits += m >> 8;
    m <<= 24;
    if (m >= SIGN) {
        ++bits;
        if (m == SIGN && ((middle | low) & 0xffu) == 0u) {
            bits &= ~1u;
        }
    }
    return bits;
}
#endif

/* The sum of any operands. */
static APART uint32_t add_any(uint32_t a, uint32_t b)
{
    if (a << 1 < b << 1) {
        const uint32_t other = a;
        a = b;
        b = other;
    }
    /* `a` is not the smaller one. */
    const uint32_t twice_b = b << 1;
    int32_t e = (int32_t)(a << 1 >> 24);
    int32_t eb = (int32_t)(twice_b >> 24);
    if (e == 255) {
        if (a << 1 > 2u * INFINITE) {
            return a | QUIET;
        }
        return twice_b == 2u * INFINITE && a != b ? INFINITE | QUIET : a;
    }
    if (twice_b == 0u) {
        return a << 1 == 0u ? a & b : a;
    }
    /* Mantissas with seven bits below, and a free one above. */
    uint32_t ma = (a << 8 | SIGN) >> 1;
    uint32_t mb = (b << 8 | SIGN) >> 1;
    if (eb == 0) {
        mb -= SIGN >> 1;
        eb = 1;
        if (e == 0) {
            ma -= SIGN >> 1;
            e = 1;
        }
    }
    const uint32_t shift = (uint32_t)(e - eb);
    if (shift > 0u) {
        mb = shift > 31u ? 1u : (mb >> shift) | (uint32_t)((mb << (32u - shift)) != 0u);
    }
    if (((a ^ b) & SIGN) == 0u) {
        ma += mb;
        ++e;
    } else {
        ma -= mb;
        if (ma == 0u) {
            return 0u;
        }
        ma <<= 1;
    }
    while (ma < SIGN) {
        ma <<= 1;
        --e;
    }
    return rounded(a & SIGN, e, ma);
}

#if defined(__ARM_ARCH_7M__) && defined(__thumb2__)
NAKED uint32_t __aeabi_fadd(UNUSED uint32_t a, UNUSED uint32_t b)
{
    __asm__(".syntax unified\n"
            "lsls  r2, r0, #1\n"
            "cmp   r2, r1, lsl #1\n"
            "bcc   4f\n"
            "1:\n" /* a is not the smaller one */
            "ubfx  r2, r0, #23, #8\n"
            "ubfx  r3, r1, #23, #8\n"
            "cbz   r3, 5f\n"
            "cmp   r2, #254\n"
            "bcs.w add_any\n"
            "subs  r3, r2, r3\n"
            "teq   r0, r1\n"
            "bic   r1, r1, #0xff000000\n"
            "orr   r1, r1, #0x00800000\n"
            "bmi   6f\n"
            "rsb   ip, r3, #32\n"
            "lsl   ip, r1, ip\n"
            "lsrs  r1, r3\n"
            "add   r1, r0\n"
            "eor   r3, r0, r1\n"
            "cmp   r3, #0x00800000\n"
            "bcs   3f\n"
            "2:\n" /* r1 is rounded by the bits in ip */
            "cmp   ip, #0x80000000\n"
            "adc   r0, r1, #0\n"
            "it    eq\n"
            "biceq r0, r0, #1\n"
            "bx    lr\n"
            "3:\n" /* what is above the next power of two counts half as much */
            "lsrs  r0, r0, #23\n"
            "adds  r0, #1\n"
            "sub   r1, r1, r0, lsl #23\n"
            "lsrs  r1, r1, #1\n"
            "rrx   ip, ip\n"
            "add   r1, r1, r0, lsl #23\n"
            "cmp   ip, #0x80000000\n"
            "adc   r0, r1, #0\n"
            "it    eq\n"
            "biceq r0, r0, #1\n"
            "bx    lr\n"
            "4:\n"
            "mov   ip, r0\n"
            "mov   r0, r1\n"
            "mov   r1, ip\n"
            "b     1b\n"
            "5:\n" /* b is zero or denormal */
            "lsls  r3, r1, #1\n"
            "bne.w add_any\n"
            "cmp   r2, #255\n"
            "beq.w add_any\n"
            "lsls  r3, r0, #1\n"
            "it    eq\n"
            "andeq r0, r1\n"
            "bx    lr\n"
            "6:\n" /* the difference */
            "rsb   ip, r3, #32\n"
            "lsl   ip, r1, ip\n"
            "lsrs  r1, r3\n"
            "rsbs  ip, ip, #0\n"
            "sbc   r1, r0, r1\n"
            "eor   r3, r0, r1\n"
            "cmp   r3, #0x00800000\n"
            "bcc   2b\n"
            "ubfx  r3, r1, #0, #23\n" /* all of the mantissa, below the exponent in r2 */
            "lsls  r0, r1, #10\n"
            "bcc   7f\n"
            "cmp   r2, #2\n"
            "bcc   7f\n"
            "adds  ip, ip, ip\n" /* twice the mantissa */
            "adc   r1, r1, r3\n"
            "sub   r1, r1, #0x00800000\n"
            "b     2b\n"
            "7:\n"
            "orrs  r0, r3, ip\n"
            "beq   9f\n"
            "clz   r0, r3\n"
            "subs  r0, #8\n"
            "lsrs  r1, r1, #23\n"
            "cmp   r0, r2\n"
            "bcs   8f\n"
            "subs  r1, r1, r0\n"
            "lsls  r3, r0\n"
            "rsb   r2, r0, #32\n"
            "lsr   r2, ip, r2\n"
            "orrs  r3, r2\n"
            "lsl   ip, ip, r0\n"
            "add   r1, r3, r1, lsl #23\n"
            "b     2b\n"
            "8:\n" /* denormal: exact */
            "subs  r2, #1\n"
            "lsls  r3, r2\n"
            "rsb   r2, r2, #32\n"
            "lsr   r2, ip, r2\n"
            "orrs  r3, r2\n"
            "lsrs  r1, r1, #8\n"
            "orr   r0, r3, r1, lsl #31\n"
            "9:\n"
            "bx    lr\n");
}
#else
uint32_t __aeabi_fadd(uint32_t a, uint32_t b)
{
    const uint32_t differ = a ^ b;
    if (a << 1 < b << 1) {
        a = b;
        b = a ^ differ;
    }
    /* `a` is not the smaller one; above the least exponents nothing that is left is denormal. */
    const uint32_t ea = a << 1 >> 24;
    const uint32_t eb = b << 1 >> 24;
    const uint32_t shift = ea - eb;
    if (b << 1 == 0u && ea < 255u) {
        return a << 1 == 0u ? a & b : a;
    }
    if (eb == 0u || ea - 33u >= 221u) {
        return add_any(a, b);
    }
    if (shift > 24u) {
        return shift == 25u ? add_any(a, b) : a;
    }
    /* What is added to the mantissa of `a` in its place, and 32 bits below that. */
    const uint32_t m = b << 8 | SIGN;
    const uint32_t high = m >> 8 >> shift;
    uint32_t low = m << (24u - shift);
    uint32_t bits;
    if (differ < SIGN) {
        bits = a + high;
        if ((bits ^ a) >= ONE) {
            /* What is above the next power of two counts half as much there. */
            const uint32_t power = (a >> 23 << 23) + ONE;
            low = low >> 1 | bits << 31;
            bits = power + ((bits - power) >> 1);
        }
    } else {
        bits = a - high - (uint32_t)(low != 0u);
        low = 0u - low;
        if ((bits ^ a) >= ONE) {
            /* The exponent is one less, and all of the mantissa below it. */
            uint32_t rest = bits << 9 >> 9;
            if ((rest | low) == 0u) {
                return 0u;
            }
            bits -= rest;
            do {
                rest = rest << 1 | low >> 31;
                low <<= 1;
                bits -= ONE;
            } while (rest < ONE);
            bits += rest;
        }
    }
    if (low >= SIGN) {
        ++bits;
        if (low == SIGN) {
            bits &= ~1u;
        }
    }
    return bits;
}
#endif

uint32_t __aeabi_fsub(uint32_t a, uint32_t b)
{
    return __aeabi_fadd(a, b ^ SIGN);
}

uint32_t __aeabi_frsub(uint32_t a, uint32_t b)
{
    return __aeabi_fadd(b, a ^ SIGN);
}

#if defined(__ARM_ARCH_7M__)
/* What the library has in the same objects as sums and products, and would link with its own. */
uint32_t __aeabi_fdiv(uint32_t a, uint32_t b);
uint32_t __aeabi_ui2f(uint32_t n);
uint32_t __aeabi_i2f(int32_t n);
uint32_t __aeabi_ul2f(uint64_t n);
uint32_t __aeabi_l2f(int64_t n);

uint32_t __aeabi_fdiv(uint32_t a, uint32_t b)
{
    const uint32_t sign = (a ^ b) & SIGN;
    int32_t ea = (int32_t)(a << 1 >> 24);
    int32_t eb = (int32_t)(b << 1 >> 24);
    uint32_t rest = (a & (ONE - 1u)) | ONE;
    uint32_t mb = (b & (ONE - 1u)) | ONE;
    if ((uint32_t)(ea - 1) >= 254u || (uint32_t)(eb - 1) >= 254u) {
        const uint32_t twice_a = a << 1;
        const uint32_t twice_b = b << 1;
        if (twice_a > 2u * INFINITE) {
            return a | QUIET;
        }
        if (twice_b > 2u * INFINITE) {
            return b | QUIET;
        }
        if (twice_a == twice_b && (twice_a == 0u || ea == 255)) {
            return INFINITE | QUIET;
        }
        if (twice_a == 0u || eb == 255) {
            return sign;
        }
        if (twice_b == 0u || ea == 255) {
            return sign | INFINITE;
        }
        if (ea == 0) {
            rest -= ONE;
            for (ea = 1; rest < ONE; --ea) {
                rest <<= 1;
            }
        }
        if (eb == 0) {
            mb -= ONE;
            for (eb = 1; mb < ONE; --eb) {
                mb <<= 1;
            }
        }
    }
    if (rest < mb) {
        rest <<= 1;
        --ea;
    }
    /* A one and 24 bits below it, eight by each division. */
    uint32_t m = 1u;
    rest -= mb;
    for (uint32_t i = 0u; i < 3u; ++i) {
        const uint32_t digit = (rest << 8) / mb;
        rest = (rest << 8) - digit * mb;
        m = m << 8 | digit;
    }
    return rounded(sign, ea - eb + 127, m << 7 | (uint32_t)(rest != 0u));
}

uint32_t __aeabi_ui2f(uint32_t n)
{
    return __aeabi_ul2f(n);
}

uint32_t __aeabi_i2f(int32_t n)
{
    return __aeabi_l2f(n);
}

uint32_t __aeabi_ul2f(uint64_t n)
{
    int32_t e = 190;
    if (n == 0u) {
        return 0u;
    }
    while (n >> 32 == 0u) {
        n <<= 32;
        e -= 32;
    }
    while (n >> 63 == 0u) {
        n <<= 1;
        --e;
    }
    return rounded(0u, e, (uint32_t)(n >> 32) | (uint32_t)((uint32_t)n != 0u));
}

uint32_t __aeabi_l2f(int64_t n)
{
    return n < 0 ? SIGN | __aeabi_ul2f(0u - (uint64_t)n) : __aeabi_ul2f((uint64_t)n);
}
#endif
#endif
