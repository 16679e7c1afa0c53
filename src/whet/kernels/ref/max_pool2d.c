/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* One body for both widths of the index; `wide` is a constant after inlining. */

static inline void put(void *index, int32_t i, int32_t value, const int32_t wide) {
    if (wide)
        ((int32_t *)index)[i] = value;
    else
        ((uint8_t *)index)[i] = (uint8_t)value;
}

static inline int32_t get(const void *index, int32_t i, const int32_t wide) {
    return wide ? ((const int32_t *)index)[i] : ((const uint8_t *)index)[i];
}

static inline void max_pool2d(float *y, void *index, const float *x, const whet_pool2d_t *d,
                              const int32_t wide) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_pool_rows(d, i / d->q % d->p);
        const whet_span_t cols = whet_pool_cols(d, i % d->q);
        const int32_t width = d->adaptive ? cols.taps : d->kw, to = i * d->c;
        const int32_t image = i / (d->p * d->q) * d->h;
        for (int32_t k = 0; k < rows.taps * cols.taps; k++) {
            const int32_t r = k / cols.taps, s = k % cols.taps;
            const int32_t place = (rows.cut + r) * width + cols.cut + s;
            const int32_t row = image + rows.first + r * rows.step;
            const float *from = x + (row * d->w + cols.first + s * cols.step) * d->c;
            for (int32_t c = 0; c < d->c; c++)
                if (k == 0 || from[c] > y[to + c] || from[c] != from[c]) {
                    y[to + c] = from[c];
                    put(index, to + c, place, wide);
                }
        }
    }
}

static inline void max_pool2d_dx(float *dx, const float *dy, const void *index,
                                 const whet_pool2d_t *d, const int32_t wide) {
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_pool_rows(d, i / d->q % d->p);
        const whet_span_t cols = whet_pool_cols(d, i % d->q);
        const int32_t width = d->adaptive ? cols.taps : d->kw;
        const int32_t image = i / (d->p * d->q) * d->h;
        for (int32_t c = 0; c < d->c; c++) {
            const int32_t place = get(index, i * d->c + c, wide);
            const int32_t r = rows.first + (place / width - rows.cut) * rows.step;
            const int32_t s = cols.first + (place % width - cols.cut) * cols.step;
            dx[((image + r) * d->w + s) * d->c + c] += dy[i * d->c + c];
        }
    }
}

/* formula    y = max of x over the window;  index = the place of the first maximum in it
 * shapes     y[n,p,q,c], index[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_max_pool2d_f32_u8(float *y, uint8_t *index, const float *x, const whet_pool2d_t *d) {
    max_pool2d(y, index, x, d, 0);
}

/* The same for windows of more than 256 places. */
void whet_max_pool2d_f32_i32(float *y, int32_t *index, const float *x, const whet_pool2d_t *d) {
    max_pool2d(y, index, x, d, 1);
}

/* formula    dx = 0, then dx at the place named by index += dy
 * shapes     dx[n,h,w,c], dy[n,p,q,c], index[n,p,q,c]
 * aliasing   none
 * rounding   added window by window
 * workspace  none */
void whet_max_pool2d_dx_f32_u8(float *dx, const float *dy, const uint8_t *index,
                               const whet_pool2d_t *d) {
    max_pool2d_dx(dx, dy, index, d, 0);
}

/* The same for windows of more than 256 places. */
void whet_max_pool2d_dx_f32_i32(float *dx, const float *dy, const int32_t *index,
                                const whet_pool2d_t *d) {
    max_pool2d_dx(dx, dy, index, d, 1);
}
