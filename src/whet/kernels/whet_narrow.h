/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion to int8: rounding, saturation, and the bits that record it. */
#ifndef WHET_NARROW_H
#define WHET_NARROW_H

#include "whet_inline.h"
#include "whet_kernels_i8.h"

/* The nearest integer, ties to even, if |v| <= 2^22: the sum has no fraction bits. */
static inline float whet_round(float v) { return (v + 12582912.0f) - 12582912.0f; }

/* The range of a rounded number: an integer from `below` to `above`, both of them out of range. */
typedef struct {
    float below, above;
    int32_t zero;
} whet_range8_t;

static inline whet_range8_t whet_range8(const whet_narrow_t *to) {
    const whet_range8_t v = {(float)(to->low - to->zero - 1), (float)(to->high - to->zero + 1),
                             to->zero};
    return v;
}

/* NaN becomes the lower limit. */
static inline float whet_round8(float v, whet_range8_t to) {
    v = v > to.below ? v : to.below;
    v = v < to.above ? v : to.above;
    return whet_round(v);
}

static inline int32_t whet_inside8(float rounded, whet_range8_t to) {
    return (rounded > to.below) & (rounded < to.above);
}

static inline int8_t whet_to_i8(float rounded, whet_range8_t to) {
    const float low = to.below + 1.0f, high = to.above - 1.0f;
    const float raised = rounded > low ? rounded : low;
    return (int8_t)((int32_t)(raised < high ? raised : high) + to.zero);
}

/* A bit stream, eight bits to a byte. */
typedef struct {
    uint8_t *to; /* the next byte, or NULL to discard the bits */
    uint32_t held;
    int32_t count;
} whet_bit_row_t;

static inline void whet_put_bit(whet_bit_row_t *row, int32_t bit) {
    if (row->to == NULL) return;
    row->held |= (uint32_t)bit << row->count;
    if (++row->count < 8) return;
    *row->to++ = (uint8_t)row->held;
    row->held = 0;
    row->count = 0;
}

/* Writes the last byte, padded with zero bits. */
static inline void whet_end_bits(const whet_bit_row_t *row) {
    if (row->count > 0) *row->to = (uint8_t)row->held;
}

/* y = v converted to int8, and its bit. */
static inline void whet_put_i8(int8_t *y, whet_bit_row_t *bits, float v, whet_range8_t to) {
    const float rounded = whet_round8(v, to);
    *y = whet_to_i8(rounded, to);
    whet_put_bit(bits, whet_inside8(rounded, to));
}

#endif
