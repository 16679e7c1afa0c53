/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as floats, four channels interleaved: a panel is built once and used many times. */
#ifndef WHET_PANEL_H
#define WHET_PANEL_H

#include "whet_dsp.h"

/* to[4 i .. 4 i + 3] = the four bytes at x + i * step, minus the zero point, n > 0. */
static inline void whet_make_panel(float *to, const int8_t *x, int32_t step, int32_t n,
                                   int32_t zero) {
    const uint32_t less = whet_less(zero);
    uint32_t u, v, a, b;
    __asm__ volatile("1: ldr %[v], [%[x]]\n"
                     "add %[x], %[x], %[step]\n"
                     "sxtab16 %[u], %[less], %[v]\n"
                     "sxtab16 %[v], %[less], %[v], ror #8\n"
                     "asr %[a], %[u], #16\n"
                     "asr %[b], %[v], #16\n"
                     "vmov s0, s1, %[u], %[v]\n" /* only the lower halves count */
                     "vmov s2, s3, %[a], %[b]\n"
                     "vcvt.f32.s16 s0, s0, #0\n"
                     "vcvt.f32.s16 s1, s1, #0\n"
                     "vcvt.f32.s32 s2, s2\n"
                     "vcvt.f32.s32 s3, s3\n"
                     "subs %[n], %[n], #1\n"
                     "vstmia %[to]!, {s0, s1, s2, s3}\n"
                     "bne 1b\n"
                     : [x] "+r"(x), [to] "+r"(to), [n] "+r"(n), [u] "=&r"(u), [v] "=&r"(v),
                       [a] "=&r"(a), [b] "=&r"(b)
                     : [less] "r"(less), [step] "r"(step)
                     : "s0", "s1", "s2", "s3", "cc", "memory");
}

/* As above, for n channels; the rest of the four is 0. */
static inline void whet_make_part(float *to, const int8_t *x, int32_t step, int32_t count,
                                  int32_t zero, int32_t n) {
    for (; count > 0; count--, to += 4, x += step)
        for (int32_t l = 0; l < 4; l++) to[l] = l < n ? (float)(x[l] - zero) : 0.0f;
}

/* Four sums in consecutive registers, each plus its product with one number. */
#define WHET_MLA4(s0, s1, s2, s3, a0, a1, a2, a3, b) \
    "vmla.f32 " s0 ", " a0 ", " b "\n"               \
    "vmla.f32 " s1 ", " a1 ", " b "\n"               \
    "vmla.f32 " s2 ", " a2 ", " b "\n"               \
    "vmla.f32 " s3 ", " a3 ", " b "\n"

/* Sixteen sums in s0 to s15: products of four numbers a with each of four numbers b. */
#define WHET_MLA16(a0, a1, a2, a3, b0, b1, b2, b3)          \
    WHET_MLA4("s0", "s1", "s2", "s3", a0, a1, a2, a3, b0)   \
    WHET_MLA4("s4", "s5", "s6", "s7", a0, a1, a2, a3, b1)   \
    WHET_MLA4("s8", "s9", "s10", "s11", a0, a1, a2, a3, b2) \
    WHET_MLA4("s12", "s13", "s14", "s15", a0, a1, a2, a3, b3)

/* The sums: four rows of four from r1 on, r2 bytes apart; r1 is the last row between the two. */
#define WHET_LOAD16                   \
    "vldmia r1, {s0, s1, s2, s3}\n"   \
    "add r1, r1, r2\n"                \
    "vldmia r1, {s4, s5, s6, s7}\n"   \
    "add r1, r1, r2\n"                \
    "vldmia r1, {s8, s9, s10, s11}\n" \
    "add r1, r1, r2\n"                \
    "vldmia r1, {s12, s13, s14, s15}\n"
#define WHET_STORE16                    \
    "vstmia r1, {s12, s13, s14, s15}\n" \
    "sub r1, r1, r2\n"                  \
    "vstmia r1, {s8, s9, s10, s11}\n"   \
    "sub r1, r1, r2\n"                  \
    "vstmia r1, {s4, s5, s6, s7}\n"     \
    "sub r1, r1, r2\n"                  \
    "vstmia r1, {s0, s1, s2, s3}\n"

#define WHET_FLOATS                                                                                \
    "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "s12", "s13", "s14", \
        "s15", "s16", "s17", "s18", "s19", "s20", "s21", "s22", "s23", "s24", "s25", "s26", "s27", \
        "s28", "s29", "s30", "s31"

#endif
