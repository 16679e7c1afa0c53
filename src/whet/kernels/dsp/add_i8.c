/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_dsp.h"

/* Four bytes, minus the zero point, as floats in s0 to s3 or another four registers. */
#define FLOATS(v, less, s0, s1, s2, s3)             \
    "sxtab16 %[u], %[" less "], %[" v "]\n"         \
    "sxtab16 %[v], %[" less "], %[" v "], ror #8\n" \
    "asr %[p], %[u], #16\n"                         \
    "asr %[q], %[v], #16\n"                         \
    "vmov " s0 ", " s1 ", %[u], %[v]\n"             \
    "vmov " s2 ", " s3 ", %[p], %[q]\n"             \
    "vcvt.f32.s16 " s0 ", " s0 ", #0\n"             \
    "vcvt.f32.s16 " s1 ", " s1 ", #0\n"             \
    "vcvt.f32.s32 " s2 ", " s2 "\n"                 \
    "vcvt.f32.s32 " s3 ", " s3 "\n"

/* The full int8 range, n > 0 a multiple of 4; results may overwrite operands. */
static void add_full(int8_t *y, const int8_t *a, const int8_t *b, int32_t n, int32_t a_zero,
                     int32_t b_zero, float a_scale, float b_scale, int32_t zero) {
    const uint32_t a_less = whet_less(a_zero), b_less = whet_less(b_zero);
    const int8_t *const end = y + n;
    uint32_t u, v, p, q;
    __asm__ volatile("1: ldr %[v], [%[a]], #4\n" FLOATS(
                         "v", "a_less", "s0", "s1", "s2",
                         "s3") "vmul.f32 s0, s0, %[a_scale]\n"
                               "vmul.f32 s1, s1, %[a_scale]\n"
                               "vmul.f32 s2, s2, %[a_scale]\n"
                               "vmul.f32 s3, s3, %[a_scale]\n"
                               "ldr %[v], [%[b]], #4\n" FLOATS("v", "b_less", "s4", "s5", "s6",
                                                               "s7") "vmla.f32 s0, s4, %[b_scale]\n"
                                                                     "vmla.f32 s1, s5, %[b_scale]\n"
                                                                     "vmla.f32 s2, s6, %[b_scale]\n"
                                                                     "vmla.f32 s3, s7, %[b_scale]\n"
                                                                     "vcvtr.s32.f32 s0, s0\n"
                                                                     "vcvtr.s32.f32 s1, s1\n"
                                                                     "vcvtr.s32.f32 s2, s2\n"
                                                                     "vcvtr.s32.f32 s3, s3\n"
                                                                     "vmov %[u], %[v], s0, s1\n"
                                                                     "vmov %[p], %[q], s2, s3\n"
                                                                     "qadd %[u], %[u], %[zero]\n"
                                                                     "qadd %[v], %[v], %[zero]\n"
                                                                     "qadd %[p], %[p], %[zero]\n"
                                                                     "qadd %[q], %[q], %[zero]\n"
                                                                     "ssat %[u], #8, %[u]\n"
                                                                     "ssat %[v], #8, %[v]\n"
                                                                     "ssat %[p], #8, %[p]\n"
                                                                     "ssat %[q], #8, %[q]\n"
                                                                     "strb %[u], [%[y]], #1\n"
                                                                     "strb %[v], [%[y]], #1\n"
                                                                     "strb %[p], [%[y]], #1\n"
                                                                     "strb %[q], [%[y]], #1\n"
                                                                     "cmp %[y], %[end]\n"
                                                                     "bne 1b\n"
                     : [y] "+r"(y), [a] "+r"(a), [b] "+r"(b), [u] "=&r"(u), [v] "=&r"(v),
                       [p] "=&r"(p), [q] "=&r"(q)
                     : [a_less] "r"(a_less), [b_less] "r"(b_less), [zero] "r"(zero), [end] "r"(end),
                       [a_scale] "t"(a_scale), [b_scale] "t"(b_scale)
                     : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "cc", "memory");
}

/* formula    y = round((a - a_zero) * a_scale + (b - b_zero) * b_scale) + zero, clamped to [low,
 *            high];  bit = it was in range
 * shapes     y[n], bits[(n + 7) / 8] or NULL, a[n], b[n]
 * aliasing   y = a or y = b
 * rounding   two products and their sum, then to nearest, ties to even
 * workspace  none */
void whet_add_i8(int8_t *y, uint8_t *bits, const int8_t *a, const int8_t *b, int32_t n,
                 int32_t a_zero, int32_t b_zero, float a_scale, float b_scale,
                 const whet_narrow_t *to) {
    const int32_t fast = bits == NULL && whet_is_full(to) ? n & ~3 : 0;
    whet_bit_row_t row = {bits, 0, 0};
    if (fast) add_full(y, a, b, fast, a_zero, b_zero, a_scale, b_scale, to->zero);
    for (int32_t i = fast; i < n; i++) {
        const float left = (float)(a[i] - a_zero) * a_scale;
        const float sum = whet_mla(left, (float)(b[i] - b_zero), b_scale);
        const int32_t v = whet_saturating_add(whet_nearest(sum), to->zero);
        const int32_t held = whet_hold(v, to, 0);
        y[i] = (int8_t)held;
        whet_put_bit(&row, v == held);
    }
    whet_end_bits(&row);
}
