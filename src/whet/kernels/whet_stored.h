/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen weights as they are stored, and how to make floats of them. */
#ifndef WHET_STORED_H
#define WHET_STORED_H

#include "whet_inline.h"
#include "whet_kernels_stored.h"

/* A weight with rows of `columns` elements, in one of the forms of whet_kernels_stored.h. */
typedef struct {
    const uint8_t *data;
    const float *table;
    int32_t form, columns;
} whet_stored_t;

/* The float of the same value as the 16-bit float at `at`, which is finite. It makes no subnormal
 * float, which a processor may take for 0. */
static inline float whet_read_half(const uint8_t *at) {
    const uint32_t bits = (uint32_t)at[0] | (uint32_t)at[1] << 8, size = bits & 0x7fff;
    const float tiny = (float)(int32_t)size * 5.9604645e-8f; /* 2^-24 */
    const float value = size < 0x400 ? tiny : whet_from_bits((size << 13) + (112u << 23));
    return bits & 0x8000 ? -value : value;
}

static inline int32_t whet_block_size(int32_t form) {
    return form == WHET_Q4_K ? WHET_LONG_BLOCK : WHET_BLOCK;
}
static inline int32_t whet_block_bytes(int32_t form) {
    return form == WHET_Q4_K ? 144 : form == WHET_Q8_0 ? 34 : form == WHET_Q4_1 ? 20 : 18;
}

/* What q of a part of a WHET_Q4_K block is multiplied by, and what is subtracted then. Neither
 * these products nor those with q are rounded. */
static inline float whet_scale_of(const uint8_t *block, int32_t part, float *minimum) {
    const uint8_t *s = block + 4 + part;
    const int32_t scale = part < 4 ? s[0] & 63 : (s[4] & 15) | s[-4] >> 6 << 4;
    const int32_t low = part < 4 ? s[4] & 63 : s[4] >> 4 | s[0] >> 6 << 4;
    *minimum = whet_read_half(block + 2) * (float)low;
    return whet_read_half(block) * (float)scale;
}

static inline void whet_read_long_block(float *to, const uint8_t *block, int32_t first, int32_t n) {
    for (int32_t i = 0, count; i < n; i += count) {
        const int32_t part = (first + i) / WHET_BLOCK, skip = (first + i) % WHET_BLOCK;
        const uint8_t *q = block + 16 + part / 2 * WHET_BLOCK + skip;
        float minimum;
        const float scale = whet_scale_of(block, part, &minimum);
        count = whet_min(n - i, WHET_BLOCK - skip);
        for (int32_t e = 0; e < count; e++)
            to[i + e] = (float)(part % 2 ? q[e] >> 4 : q[e] & 15) * scale - minimum;
    }
}

/* to[n] = elements first, first + 1, ... of a block. */
static inline void whet_read_block(float *to, int32_t form, const uint8_t *block, int32_t first,
                                   int32_t n) {
    if (form == WHET_Q4_K) {
        whet_read_long_block(to, block, first, n);
        return;
    }
    const float d = whet_read_half(block);
    if (form == WHET_Q8_0) {
        const int8_t *q = (const int8_t *)block + 2 + first;
        for (int32_t i = 0; i < n; i++) to[i] = (float)q[i] * d;
        return;
    }
    const uint8_t *q = block + (form == WHET_Q4_1 ? 4 : 2);
    const float m = form == WHET_Q4_1 ? whet_read_half(block + 2) : 0.0f;
    for (int32_t i = 0; i < n; i++) {
        const int32_t at = first + i, nibble = at < 16 ? q[at] & 15 : q[at - 16] >> 4;
        to[i] = form == WHET_Q4_1 ? (float)nibble * d + m : (float)(nibble - 8) * d;
    }
}

/* to[n] = table[index] for n indices of `bits` each, from number `start` on. */
static inline void whet_read_indices(float *to, const float *table, const uint8_t *data,
                                     int32_t bits, size_t start, int32_t n) {
    const size_t bit = start * (size_t)bits;
    const uint8_t *next = data + bit / 8;
    uint32_t word = 0;
    int32_t have = 0;
    if (n > 0 && bit % 8 > 0) {
        word = (uint32_t)*next++ >> bit % 8;
        have = 8 - (int32_t)(bit % 8);
    }
    for (int32_t i = 0; i < n; i++) {
        if (have < bits) {
            word |= (uint32_t)*next++ << have;
            have += 8;
        }
        to[i] = table[word & ((1u << bits) - 1)];
        word >>= bits;
        have -= bits;
    }
}

/* to[n] = w[row, first], w[row, first + 1], ... */
static inline void whet_read_stored(float *to, const whet_stored_t *w, int32_t row, int32_t first,
                                    int32_t n) {
    const size_t start = (size_t)row * (size_t)w->columns + (size_t)first;
    if (w->form == WHET_Q8_ROWS) {
        const int8_t *q = (const int8_t *)w->data + start;
        const float scale = w->table[row];
        for (int32_t i = 0; i < n; i++) to[i] = (float)q[i] * scale;
    } else if (w->form < WHET_Q8_ROWS) {
        whet_read_indices(to, w->table, w->data, w->form, start, n);
    } else {
        const int32_t bytes = whet_block_bytes(w->form), size = whet_block_size(w->form);
        const uint8_t *block = w->data + start / (size_t)size * (size_t)bytes;
        int32_t skip = (int32_t)(start % (size_t)size);
        for (int32_t i = 0, count; i < n; i += count, skip = 0, block += bytes) {
            count = whet_min(n - i, size - skip);
            whet_read_block(to + i, w->form, block, skip, count);
        }
    }
}

#endif
