/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_READ_H
#define WHET_READ_H

#include "whet_bytes.h"

/* Floats of frozen weights as they are stored, some rows at a time. */

#ifndef WHET_HAS_HALF
static inline whet_vec_t whet_all_half(const uint8_t *x) { return whet_all(whet_read_half(x)); }
#endif

/* Elements [first, end) of a block, whose form is a constant after inlining; both are multiples of
 * WHET_LANES. */
static inline __attribute__((always_inline)) void read_block(float *to, const uint8_t *block,
                                                             int32_t first, int32_t end,
                                                             const int32_t form) {
    const whet_vec_t d = whet_all_half(block);
    const whet_vec_t m = form == WHET_Q4_1 ? whet_all_half(block + 2) : whet_all(0.0f);
    const uint8_t *q = block + (form == WHET_Q4_1 ? 4 : 2);
#pragma GCC unroll 8
    for (int32_t i = first; i < end; i += WHET_LANES) {
        whet_vec_t v;
        if (form == WHET_Q8_0) {
            v = whet_floats_v((const int8_t *)q + i, 0) * d;
        } else {
            const whet_bits_t both = whet_wide_v(q + i % 16),
                              nibble = i < 16 ? both & 15 : both >> 4;
            v = __builtin_convertvector(form == WHET_Q4_1 ? nibble : nibble - 8, whet_vec_t) * d;
            if (form == WHET_Q4_1) v += m;
        }
        whet_store(to + i - first, v);
    }
}

/* Row by row; the first and the last block of each may be a part of one. */
static inline __attribute__((always_inline)) void read_blocks(const whet_stored_t *w, float *to,
                                                              int32_t ldto, int32_t row,
                                                              int32_t rows, int32_t first,
                                                              int32_t n, const int32_t form,
                                                              const size_t bytes) {
    const size_t line = (size_t)(w->columns / WHET_BLOCK) * bytes;
    const uint8_t *from = w->data + (size_t)row * line + (size_t)(first / WHET_BLOCK) * bytes;
    for (int32_t r = 0; r < rows; r++, from += line, to += ldto) {
        const uint8_t *block = from;
        int32_t skip = first % WHET_BLOCK;
        for (int32_t j = 0, end; j < n; j += end - skip, skip = 0, block += bytes) {
            end = whet_min(skip + n - j, WHET_BLOCK);
            if (skip == 0 && end == WHET_BLOCK)
                read_block(to + j, block, 0, WHET_BLOCK, form);
            else
                read_block(to + j, block, skip, end, form);
        }
    }
}

/* Elements [first, end) of a part of a WHET_Q4_K block. */
static inline void read_part(float *to, const uint8_t *block, int32_t part, int32_t first,
                             int32_t end) {
    const uint8_t *q = block + 16 + part / 2 * WHET_BLOCK;
    float minimum;
    const whet_vec_t scale = whet_all(whet_scale_of(block, part, &minimum));
    for (int32_t i = first; i < end; i += WHET_LANES) {
        const whet_bits_t both = whet_wide_v(q + i), nibble = part % 2 ? both >> 4 : both & 15;
        whet_store(to + i - first, __builtin_convertvector(nibble, whet_vec_t) * scale - minimum);
    }
}

static void read_long_blocks(const whet_stored_t *w, float *to, int32_t ldto, int32_t row,
                             int32_t rows, int32_t first, int32_t n) {
    const size_t bytes = (size_t)whet_block_bytes(WHET_Q4_K);
    const size_t line = (size_t)(w->columns / WHET_LONG_BLOCK) * bytes;
    const uint8_t *from = w->data + (size_t)row * line;
    for (int32_t r = 0; r < rows; r++, from += line, to += ldto) {
        int32_t part = first / WHET_BLOCK, skip = first % WHET_BLOCK;
        for (int32_t j = 0, end; j < n; j += end - skip, skip = 0, part++) {
            end = whet_min(skip + n - j, WHET_BLOCK);
            read_part(to + j, from + (size_t)(part / 8) * bytes, part % 8, skip, end);
        }
    }
}

static void read_rows(const whet_stored_t *w, float *to, int32_t ldto, int32_t row, int32_t rows,
                      int32_t first, int32_t n) {
    for (int32_t r = 0; r < rows; r++) {
        const int8_t *q =
            (const int8_t *)w->data + (size_t)(row + r) * (size_t)w->columns + (size_t)first;
        const float d = w->table[row + r];
        const int32_t whole = n / WHET_LANES * WHET_LANES;
        for (int32_t j = 0; j < whole; j += WHET_LANES)
            whet_store(to + r * ldto + j, whet_floats_v(q + j, 0) * d);
        for (int32_t j = whole; j < n; j++) to[r * ldto + j] = (float)q[j] * d;
    }
}

/* to[r*ldto + c] = w[row + r, first + c]: whet_product_t's `read` for a whet_stored_t. */
static void whet_read_rows(const void *stored, float *to, int32_t ldto, int32_t row, int32_t rows,
                           int32_t first, int32_t n) {
    const whet_stored_t *w = stored;
    if (w->form == WHET_Q8_0)
        read_blocks(w, to, ldto, row, rows, first, n, WHET_Q8_0, 34);
    else if (w->form == WHET_Q4_0)
        read_blocks(w, to, ldto, row, rows, first, n, WHET_Q4_0, 18);
    else if (w->form == WHET_Q4_1)
        read_blocks(w, to, ldto, row, rows, first, n, WHET_Q4_1, 20);
    else if (w->form == WHET_Q4_K)
        read_long_blocks(w, to, ldto, row, rows, first, n);
    else if (w->form == WHET_Q8_ROWS)
        read_rows(w, to, ldto, row, rows, first, n);
    else
        for (int32_t r = 0; r < rows; r++) whet_read_stored(to + r * ldto, w, row + r, first, n);
}

#endif
