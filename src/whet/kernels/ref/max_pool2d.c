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

/* The maxima of n <= WHET_TILE channels of a window `width` places wide; x is its image. */
static void window(float *best, int32_t *place, const float *x, const whet_pool2d_t *d,
                   whet_span_t rows, whet_span_t cols, int32_t width, int32_t n) {
    const float *first = x + (rows.first * d->w + cols.first) * d->c;
    for (int32_t l = 0; l < n; l++) {
        best[l] = first[l];
        place[l] = rows.cut * width + cols.cut;
    }
    for (int32_t r = 0; r < rows.taps; r++)
        for (int32_t s = 0; s < cols.taps; s++) {
            const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
            const int32_t here = (rows.cut + r) * width + cols.cut + s;
            const float *u = x + at * d->c;
            for (int32_t l = 0; l < n; l++) {
                const int32_t better = (u[l] > best[l]) | (u[l] != u[l]); /* NaN wins */
                best[l] = better ? u[l] : best[l];
                place[l] = better ? here : place[l];
            }
        }
}

static inline void max_pool2d(float *y, void *index, const float *x, const whet_pool2d_t *d,
                              const int32_t wide) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_pool_rows(d, i / d->q % d->p);
        const whet_span_t cols = whet_pool_cols(d, i % d->q);
        const int32_t width = d->adaptive ? cols.taps : d->kw;
        const float *image = x + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t n = whet_min(d->c - c, WHET_TILE), to = i * d->c + c;
            float best[WHET_TILE];
            int32_t place[WHET_TILE];
            window(best, place, image + c, d, rows, cols, width, n);
            for (int32_t l = 0; l < n; l++) {
                y[to + l] = best[l];
                put(index, to + l, place[l], wide);
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
