/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

/* sum[l] = sum of x - zero over a window, l < n <= WHET_TILE; n is a constant after inlining. */
static inline void window(uint32_t *sum, const int8_t *x, int32_t zero, const whet_pool2d_t *d,
                          whet_span_t rows, whet_span_t cols, const int32_t n) {
    for (int32_t l = 0; l < n; l++) sum[l] = 0u;
    for (int32_t r = 0; r < rows.taps; r++) {
        const int8_t *u = x + ((rows.first + r) * d->w + cols.first) * d->c;
        for (int32_t s = 0; s < cols.taps; s++, u += d->c)
            for (int32_t l = 0; l < n; l++) sum[l] += (uint32_t)(u[l] - zero);
    }
}

/* formula    y = round(sum of x - zero over the window / its size) + zero, clamped to int8
 * shapes     y[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   the sum to float, one quotient, then to nearest, ties to even
 * workspace  none */
void whet_avg_pool_i8(int8_t *y, const int8_t *x, int32_t zero, const whet_pool2d_t *d) {
    const whet_narrow_t narrow = {0, zero, INT8_MIN, INT8_MAX, 0};
    const whet_range8_t range = whet_range8(&narrow);
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const int32_t p = i / d->q % d->p, q = i % d->q;
        const whet_span_t rows = whet_pool_rows(d, p), cols = whet_pool_cols(d, q);
        const float size = (float)whet_pool_size(d, p, q, rows, cols);
        const int8_t *image = x + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t n = whet_min(d->c - c, WHET_TILE);
            uint32_t sum[WHET_TILE];
            if (n == WHET_TILE)
                window(sum, image + c, zero, d, rows, cols, WHET_TILE);
            else
                window(sum, image + c, zero, d, rows, cols, n);
            for (int32_t l = 0; l < n; l++) {
                const float mean = (float)(int32_t)sum[l] / size;
                y[i * d->c + c + l] = whet_to_i8(whet_round8(mean, range), range);
            }
        }
    }
}
