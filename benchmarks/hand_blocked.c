/* Kernels blocked by hand, of the same order of operations as those that poetc makes
 * (benchmarks/hand_blocked.py): registers hold a tile of the results, and what is loaded serves all
 * of it.
 */

/* max(x w + bias, 0), 784 inputs in blocks of 28, 128 outputs. */
static inline void dense_forward(const float *bias, const float *w, const float *x, float *out)
{
    for (int j = 0; j < 128; j += 8) {
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
        const float *row = w + j, *p = x;
        for (const float *end = x + 784; p < end;) {
            float a0 = -0.0f, a1 = -0.0f, a2 = -0.0f, a3 = -0.0f;
            float a4 = -0.0f, a5 = -0.0f, a6 = -0.0f, a7 = -0.0f;
            for (const float *stop = p + 28; p < stop; p += 4, row += 4 * 128) {
#define TERM(t)                                                                   \
    do {                                                                          \
        const float v = p[t], *r = row + 128 * (t);                               \
        a0 += v * r[0], a1 += v * r[1], a2 += v * r[2], a3 += v * r[3];           \
        a4 += v * r[4], a5 += v * r[5], a6 += v * r[6], a7 += v * r[7];           \
    } while (0)
                TERM(0);
                TERM(1);
                TERM(2);
                TERM(3);
#undef TERM
            }
            s0 += a0, s1 += a1, s2 += a2, s3 += a3, s4 += a4, s5 += a5, s6 += a6, s7 += a7;
        }
        const float s[8] = {s0, s1, s2, s3, s4, s5, s6, s7};
        for (int n = 0; n < 8; ++n)
            out[j + n] = poetc_at_least(s[n] + bias[j + n], 0.0f);
    }
}

/* w - 0.01 x^T g, in place or not. */
static inline void dense_gradient(const float *g, const float *x, const float *w, float *out)
{
    for (int i = 0; i < 784; i += 2, w += 256, out += 256) {
        const float a = x[i], b = x[i + 1];
        for (int j = 0; j < 128; j += 4) {
            const float g0 = g[j], g1 = g[j + 1], g2 = g[j + 2], g3 = g[j + 3];
            const float w0 = w[j], w1 = w[j + 1], w2 = w[j + 2], w3 = w[j + 3];
            const float v0 = w[j + 128], v1 = w[j + 129], v2 = w[j + 130], v3 = w[j + 131];
            out[j] = w0 - (0.0f + a * g0) * 0.01f;
            out[j + 1] = w1 - (0.0f + a * g1) * 0.01f;
            out[j + 2] = w2 - (0.0f + a * g2) * 0.01f;
            out[j + 3] = w3 - (0.0f + a * g3) * 0.01f;
            out[j + 128] = v0 - (0.0f + b * g0) * 0.01f;
            out[j + 129] = v1 - (0.0f + b * g1) * 0.01f;
            out[j + 130] = v2 - (0.0f + b * g2) * 0.01f;
            out[j + 131] = v3 - (0.0f + b * g3) * 0.01f;
        }
    }
}

/* tanh(x * w + bias), 14 x 14 x 6 to 10 x 10 x 16 by 5 x 5, a row of the window to a block; two
 * pixels and four features at a time. */
static inline void conv_forward(const float *bias, const float *w, const float *x, float *out)
{
    for (int i = 0; i < 10; ++i)
        for (int j = 0; j < 10; j += 2)
            for (int k = 0; k < 16; k += 4) {
                float s0 = 0, s1 = 0, s2 = 0, s3 = 0, r0 = 0, r1 = 0, r2 = 0, r3 = 0;
                for (int kh = 0; kh < 5; ++kh) {
                    const float *p = x + 84 * (i + kh) + 6 * j, *q = w + 480 * kh + k;
                    float a0 = -0.0f, a1 = -0.0f, a2 = -0.0f, a3 = -0.0f;
                    float b0 = -0.0f, b1 = -0.0f, b2 = -0.0f, b3 = -0.0f;
                    for (const float *end = p + 30; p < end; p += 3, q += 48) {
#define TERM(t)                                                                   \
    do {                                                                          \
        const float u = p[t], v = p[(t) + 6], *r = q + 16 * (t);                  \
        const float c0 = r[0], c1 = r[1], c2 = r[2], c3 = r[3];                   \
        a0 += u * c0, a1 += u * c1, a2 += u * c2, a3 += u * c3;                   \
        b0 += v * c0, b1 += v * c1, b2 += v * c2, b3 += v * c3;                   \
    } while (0)
                        TERM(0);
                        TERM(1);
                        TERM(2);
#undef TERM
                    }
                    s0 += a0, s1 += a1, s2 += a2, s3 += a3, r0 += b0, r1 += b1, r2 += b2, r3 += b3;
                }
                float *const o = out + 160 * i + 16 * j + k;
                const float *const b = bias + k;
                o[0] = poetc_tanhf(s0 + b[0]), o[16] = poetc_tanhf(r0 + b[0]);
                o[1] = poetc_tanhf(s1 + b[1]), o[17] = poetc_tanhf(r1 + b[1]);
                o[2] = poetc_tanhf(s2 + b[2]), o[18] = poetc_tanhf(r2 + b[2]);
                o[3] = poetc_tanhf(s3 + b[3]), o[19] = poetc_tanhf(r3 + b[3]);
            }
}

/* The gradient of its weights, two rows of pixels to a block; three by four at a time. */
static inline void conv_gradient(const float *g, const float *x, const float *w, float *out)
{
    for (int i = 0; i < 5; ++i)
        for (int j = 0; j < 5; ++j)
            for (int c = 0; c < 6; c += 3)
                for (int k = 0; k < 16; k += 4) {
                    float s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0;
                    float s6 = 0, s7 = 0, s8 = 0, s9 = 0, s10 = 0, s11 = 0;
                    for (int b = 0; b < 10; b += 2) {
                        float a0 = -0.0f, a1 = -0.0f, a2 = -0.0f, a3 = -0.0f, a4 = -0.0f;
                        float a5 = -0.0f, a6 = -0.0f, a7 = -0.0f, a8 = -0.0f, a9 = -0.0f;
                        float a10 = -0.0f, a11 = -0.0f;
                        for (int h = b; h < b + 2; ++h) {
                            const float *p = x + 84 * (i + h) + 6 * j + c, *q = g + 160 * h + k;
                            for (const float *end = p + 60; p < end; p += 6, q += 16) {
                                const float u = p[0], v = p[1], t = p[2];
                                const float g0 = q[0], g1 = q[1], g2 = q[2], g3 = q[3];
                                a0 += u * g0, a1 += u * g1, a2 += u * g2, a3 += u * g3;
                                a4 += v * g0, a5 += v * g1, a6 += v * g2, a7 += v * g3;
                                a8 += t * g0, a9 += t * g1, a10 += t * g2, a11 += t * g3;
                            }
                        }
                        s0 += a0, s1 += a1, s2 += a2, s3 += a3, s4 += a4, s5 += a5;
                        s6 += a6, s7 += a7, s8 += a8, s9 += a9, s10 += a10, s11 += a11;
                    }
                    const float s[12] = {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11};
                    for (int n = 0; n < 12; ++n) {
                        const int at = 480 * i + 96 * j + 16 * (c + n / 4) + k + n % 4;
                        out[at] = w[at] - s[n] * 0.01f;
                    }
                }
}

/* 25 x 5 x 64 by 3 x 3 of each channel, padded by one; four channels at a time. */
static inline void depthwise_forward(const float *w, const float *x, float *out)
{
    for (int i = 0; i < 25; ++i)
        for (int j = 0; j < 5; ++j, out += 64) {
            const int first = i ? 0 : 1, end = i < 24 ? 3 : 2;
            const int left = j ? 0 : 1, right = j < 4 ? 3 : 2;
            for (int k = 0; k < 64; k += 4) {
                float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
                for (int h = first; h < end; ++h) {
                    const float *p = x + 320 * (i + h - 1) + 64 * (j + left - 1) + k;
                    const float *q = w + 192 * h + 64 * left + k;
                    for (const float *stop = w + 192 * h + 64 * right + k; q < stop;
                         p += 64, q += 64)
                        s0 += p[0] * q[0], s1 += p[1] * q[1], s2 += p[2] * q[2], s3 += p[3] * q[3];
                }
                out[k] = s0, out[k + 1] = s1, out[k + 2] = s2, out[k + 3] = s3;
            }
        }
}

/* The gradient of its weights, five rows of pixels to a block. */
static inline void depthwise_gradient(const float *g, const float *x, const float *w, float *out)
{
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            for (int k = 0; k < 64; k += 4) {
                const int left = j ? 0 : 1, right = j < 2 ? 5 : 4;
                float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
                for (int b = 0; b < 25; b += 5) {
                    float a0 = -0.0f, a1 = -0.0f, a2 = -0.0f, a3 = -0.0f;
                    const int first = i + b ? b : 1, end = i == 2 && b == 20 ? 24 : b + 5;
                    for (int h = first; h < end; ++h) {
                        const float *p = x + 320 * (i + h - 1) + 64 * (j + left - 1) + k;
                        const float *q = g + 320 * h + 64 * left + k;
                        for (const float *stop = g + 320 * h + 64 * right + k; q < stop;
                             p += 64, q += 64)
                            a0 += p[0] * q[0], a1 += p[1] * q[1], a2 += p[2] * q[2],
                                a3 += p[3] * q[3];
                    }
                    s0 += a0, s1 += a1, s2 += a2, s3 += a3;
                }
                const int at = 192 * i + 64 * j + k;
                out[at] = w[at] - s0 * 0.01f, out[at + 1] = w[at + 1] - s1 * 0.01f;
                out[at + 2] = w[at + 2] - s2 * 0.01f, out[at + 3] = w[at + 3] - s3 * 0.01f;
            }
}
