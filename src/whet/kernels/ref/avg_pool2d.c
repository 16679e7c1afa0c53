/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* Channels l < n <= WHET_TILE of one window; n is a constant after inlining. */
static inline void window(float *y, const float *x, const whet_pool2d_t *d, whet_span_t rows,
                          whet_span_t cols, float scale, const int32_t n) {
    float sum[WHET_TILE] = {0.0f};
    for (int32_t r = 0; r < rows.taps; r++) {
        const float *u = x + ((rows.first + r) * d->w + cols.first) * d->c;
        float part[WHET_TILE] = {0.0f};
        for (int32_t s = 0; s < cols.taps; s++, u += d->c)
            for (int32_t l = 0; l < n; l++) part[l] += u[l];
        for (int32_t l = 0; l < n; l++) sum[l] += part[l];
    }
    for (int32_t l = 0; l < n; l++) y[l] = sum[l] * scale;
}

/* formula    y = sum of x over the window, times its share
 * shapes     y[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   sums along the rows of the window, added row by row
 * workspace  none */
void whet_avg_pool2d_f32(float *y, const float *x, const whet_pool2d_t *d) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const int32_t p = i / d->q % d->p, q = i % d->q;
        const whet_span_t rows = whet_pool_rows(d, p), cols = whet_pool_cols(d, q);
        const float scale = 1.0f / (float)whet_pool_size(d, p, q, rows, cols);
        const float *image = x + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t width = whet_min(d->c - c, WHET_TILE);
            float *out = y + i * d->c + c;
            if (width == WHET_TILE)
                window(out, image + c, d, rows, cols, scale, WHET_TILE);
            else
                window(out, image + c, d, rows, cols, scale, width);
        }
    }
}

/* formula    dx = 0, then dx over the window += dy, times its share
 * shapes     dx[n,h,w,c], dy[n,p,q,c]
 * aliasing   none
 * rounding   added window by window
 * workspace  none */
void whet_avg_pool2d_dx_f32(float *dx, const float *dy, const whet_pool2d_t *d) {
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const int32_t p = i / d->q % d->p, q = i % d->q;
        const whet_span_t rows = whet_pool_rows(d, p), cols = whet_pool_cols(d, q);
        const float scale = 1.0f / (float)whet_pool_size(d, p, q, rows, cols);
        float *image = dx + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t r = 0; r < rows.taps; r++)
            for (int32_t s = 0; s < cols.taps; s++) {
                float *to = image + ((rows.first + r) * d->w + cols.first + s) * d->c;
                for (int32_t c = 0; c < d->c; c++) to[c] += dy[i * d->c + c] * scale;
            }
    }
}
