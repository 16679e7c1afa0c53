/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_columns.h"

/* Sums down columns, such as the gradients of biases, are vectorised; others are not. */
/* For one kind of column: y += the sum of rows x[rows,n], WHET_CHUNK at a time, with
 * compensation. */
#define COLUMN(t, vec, unaligned)                                                           \
    static void down_##t(float *y, const float *x, int32_t rows, int32_t n, int32_t j) {    \
        vec sum = {0.0f}, lost = {0.0f};                                                    \
        for (int32_t first = 0; first < rows; first += WHET_CHUNK) {                        \
            const int32_t end = whet_min(first + WHET_CHUNK, rows);                         \
            const vec zero = {0.0f};                                                        \
            vec part[4] = {zero, zero, zero, zero};                                         \
            int32_t r = first;                                                              \
            for (; r + 4 <= end; r += 4)                                                    \
                for (int32_t e = 0; e < 4; e++)                                             \
                    part[e] += *(const unaligned *)(x + (ptrdiff_t)(r + e) * n + j);        \
            for (; r < end; r++) part[0] += *(const unaligned *)(x + (ptrdiff_t)r * n + j); \
            const vec term = ((part[0] + part[1]) + (part[2] + part[3])) - lost;            \
            const vec next = sum + term;                                                    \
            lost = (next - sum) - term;                                                     \
            sum = next;                                                                     \
        }                                                                                   \
        *(unaligned *)(y + j) += sum;                                                       \
    }
COLUMN(v, whet_vec_t, whet_vec_u)
COLUMN(h, whet_half_t, whet_half_u)
COLUMN(s, whet_one_t, whet_one_t)

/* The number of summed axes right before the last, and their elements. */
static int32_t summed_axes(const whet_reduce_t *d, int32_t *rows) {
    int32_t axes = 0;
    *rows = 1;
    for (int32_t i = d->rank - 2; i >= 0 && d->step[i] == 0; i--, axes++) *rows *= d->dims[i];
    return axes;
}

/* formula    y = sum of x over the axes where d->step is 0
 * shapes     y[outputs], x[dims]; outputs * count elements
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms, added with compensation
 * workspace  none */
void whet_sum_f32(float *y, const float *x, int32_t outputs, int32_t count,
                  const whet_reduce_t *d) {
    const int32_t last = d->rank - 1, n = d->dims[last];
    int32_t rows, index[WHET_MAX_RANK] = {0};
    const int32_t axes = summed_axes(d, &rows);
    (void)count;
    if (d->step[last] == 0 || axes == 0) {
        whet_reduce(y, x, outputs, d, 0);
        return;
    }
    whet_fill(y, outputs, 0.0f);
    do {
        float *out = y + whet_offset(index, d->step, last - axes);
        WHET_COLUMNS(n, down, out, x, rows, n, j);
        x += (ptrdiff_t)rows * n;
    } while (whet_next(index, d->dims, last - axes));
}
