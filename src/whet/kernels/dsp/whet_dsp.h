/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions of a Cortex-M4 or M7 that C cannot express: pairs of 16 bits in a register,
 * saturation, and rounding in the mode of the FPU, which is to nearest, ties to even. */
#ifndef WHET_DSP_H
#define WHET_DSP_H

#include "whet_narrow.h"

/* Loops that need nearly every register assign them explicitly and load their operands from r0, so
 * that the compiler has nothing to allocate. r7 is not used: it may be the frame pointer. */
#define WHET_REGISTERS \
    "r1", "r2", "r3", "r4", "r5", "r6", "r8", "r9", "r10", "r11", "r12", "lr", "cc", "memory"

/* Four unaligned bytes. */
static inline uint32_t whet_word(const int8_t *x) {
    uint32_t v;
    __builtin_memcpy(&v, x, sizeof v);
    return v;
}

/* The first n < 4 bytes of a word, the rest 0. */
static inline uint32_t whet_part_word(const int8_t *x, int32_t n) {
    uint32_t v = 0;
    for (int32_t i = 0; i < n; i++) v |= (uint32_t)(uint8_t)x[i] << (8 * i);
    return v;
}

static inline void whet_put_word(int8_t *y, uint32_t v) { __builtin_memcpy(y, &v, sizeof v); }

/* Bytes 0 and 2 as a pair of 16 bits. */
static inline uint32_t whet_even(uint32_t x) {
    uint32_t v;
    __asm__("sxtb16 %0, %1" : "=r"(v) : "r"(x));
    return v;
}

/* Bytes 1 and 3. */
static inline uint32_t whet_odd(uint32_t x) {
    uint32_t v;
    __asm__("sxtb16 %0, %1, ror #8" : "=r"(v) : "r"(x));
    return v;
}

/* As above, added to a pair. */
static inline uint32_t whet_add_even(uint32_t pair, uint32_t x) {
    uint32_t v;
    __asm__("sxtab16 %0, %1, %2" : "=r"(v) : "r"(pair), "r"(x));
    return v;
}

static inline uint32_t whet_add_odd(uint32_t pair, uint32_t x) {
    uint32_t v;
    __asm__("sxtab16 %0, %1, %2, ror #8" : "=r"(v) : "r"(pair), "r"(x));
    return v;
}

/* A pair of -zero. */
static inline uint32_t whet_less(int32_t zero) {
    return ((uint32_t)-zero & 0xffffu) | (uint32_t)-zero << 16;
}

/* sum + both products of two pairs; it wraps around. */
static inline uint32_t whet_dot2(uint32_t sum, uint32_t a, uint32_t b) {
    uint32_t v;
    __asm__("smlad %0, %1, %2, %3" : "=r"(v) : "r"(a), "r"(b), "r"(sum));
    return v;
}

/* sum + the product of the lower, or of the upper numbers. */
static inline uint32_t whet_low_dot(uint32_t sum, uint32_t a, uint32_t b) {
    uint32_t v;
    __asm__("smlabb %0, %1, %2, %3" : "=r"(v) : "r"(a), "r"(b), "r"(sum));
    return v;
}

static inline uint32_t whet_high_dot(uint32_t sum, uint32_t a, uint32_t b) {
    uint32_t v;
    __asm__("smlatt %0, %1, %2, %3" : "=r"(v) : "r"(a), "r"(b), "r"(sum));
    return v;
}

/* sum + a * b; the product is rounded, then the sum. */
static inline float whet_mla(float sum, float a, float b) {
    __asm__("vmla.f32 %0, %1, %2" : "+t"(sum) : "t"(a), "t"(b));
    return sum;
}

/* The nearest integer, saturated to int32; v is not NaN. */
static inline int32_t whet_nearest(float v) {
    float rounded;
    int32_t i;
    __asm__("vcvtr.s32.f32 %0, %1" : "=t"(rounded) : "t"(v));
    __builtin_memcpy(&i, &rounded, sizeof i);
    return i;
}

static inline int32_t whet_saturating_add(int32_t a, int32_t b) {
    int32_t v;
    __asm__("qadd %0, %1, %2" : "=r"(v) : "r"(a), "r"(b));
    return v;
}

static inline int32_t whet_saturate8(int32_t a) {
    int32_t v;
    __asm__("ssat %0, #8, %1" : "=r"(v) : "r"(a));
    return v;
}

static inline int32_t whet_is_full(const whet_narrow_t *to) {
    return to->low == INT8_MIN && to->high == INT8_MAX;
}

/* sum * scale before it is clamped to [low, high]. A finite scale gives no NaN. */
static inline int32_t whet_scaled(uint32_t sum, float scale, int32_t zero) {
    return whet_saturating_add(whet_nearest((float)(int32_t)sum * scale), zero);
}

/* v clamped to [low, high]; `full` if that is the int8 range. */
static inline int32_t whet_hold(int32_t v, const whet_narrow_t *to, const int32_t full) {
    if (full) return whet_saturate8(v);
    const int32_t raised = v > to->low ? v : to->low;
    return raised < to->high ? raised : to->high;
}

/* y = sum * scale, converted to int8; returns whether it was within [low, high]. */
static inline uint32_t whet_narrow(int8_t *y, uint32_t sum, float scale, const whet_narrow_t *to,
                                   const int32_t full) {
    const int32_t v = whet_scaled(sum, scale, to->zero), held = whet_hold(v, to, full);
    *y = (int8_t)held;
    return v == held;
}

/* Sets some of the n <= 8 bits from index on; all were 0. */
static inline void whet_or_bits(uint8_t *bits, int32_t index, uint32_t some) {
    const uint32_t v = some << (index & 7);
    uint8_t *to = bits + (index >> 3);
    to[0] = (uint8_t)(to[0] | v);
    if (v > 0xff) to[1] = (uint8_t)(to[1] | v >> 8);
}

#endif
