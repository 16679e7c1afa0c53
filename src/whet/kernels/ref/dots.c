/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_dots.h"
#include "whet_stored.h"

/* The integers of a block of a row of w; *m may stay 0. */
static void read_block(const whet_stored_t *w, int32_t j, int32_t k, int8_t q[WHET_BLOCK], float *d,
                       float *m) {
    const size_t at = (size_t)j * (size_t)(w->columns / WHET_BLOCK) + (size_t)k;
    if (w->form == WHET_Q8_ROWS) {
        memcpy(q, w->data + at * WHET_BLOCK, WHET_BLOCK);
        return;
    }
    const uint8_t *block = w->data + at * (size_t)whet_block_bytes(w->form);
    *d = whet_read_half(block);
    if (w->form == WHET_Q8_0) {
        memcpy(q, block + 2, WHET_BLOCK);
        return;
    }
    if (w->form == WHET_Q4_1) *m = whet_read_half(block + 2);
    const uint8_t *half = block + (w->form == WHET_Q4_1 ? 4 : 2);
    const int32_t lowest = w->form == WHET_Q4_1 ? 0 : -8;
    for (int32_t c = 0; c < WHET_BLOCK / 2; c++) {
        q[c] = (int8_t)(lowest + (half[c] & 15));
        q[c + WHET_BLOCK / 2] = (int8_t)(lowest + (half[c] >> 4));
    }
}

/* formula    y = min(max(scale[r] * (q w') + b + add, low), high)
 * shapes     y[rows,o], q[rows,i], scale[rows], sums[rows,i/WHET_BLOCK] of q, w[o,i] as it is
 *            stored, b[o] or NULL, add[rows,o] or NULL; i <= 2^17
 * aliasing   y may be add
 * rounding   the sum of integers is exact: of a row in WHET_Q8_ROWS, then times its scale, else of
 *            a block; blocks are added in order, v = fma(d, dot, v) and then v = fma(m, sum, v)
 *            with a minimum; at the end fma(v, scale, b or 0), plus add
 * workspace  none */
void whet_linear_dots_f32(float *y, const int8_t *q, const float *scale, const int32_t *sums,
                          const void *w, const float *table, const float *b, const float *add,
                          float low, float high, int32_t rows, int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    const int32_t blocks = i / WHET_BLOCK;
    for (int32_t r = 0; r < rows; r++)
        for (int32_t j = 0; j < o; j++) {
            int32_t total = 0;
            float v = 0.0f;
            for (int32_t k = 0; k < blocks; k++) {
                int8_t u[WHET_BLOCK];
                int32_t dot = 0;
                float d = 0.0f, m = 0.0f;
                read_block(&from, j, k, u, &d, &m);
                for (int32_t c = 0; c < WHET_BLOCK; c++)
                    dot += q[r * i + k * WHET_BLOCK + c] * u[c];
                total += dot;
                if (form == WHET_Q8_ROWS) continue;
                v = fmaf(d, (float)dot, v);
                if (form == WHET_Q4_1) v = fmaf(m, (float)sums[r * blocks + k], v);
            }
            if (form == WHET_Q8_ROWS) v = (float)total * table[j];
            v = fmaf(v, scale[r], b != NULL ? b[j] : 0.0f);
            if (add != NULL) v += add[r * o + j];
            y[r * o + j] = whet_clip(v, low, high);
        }
}
