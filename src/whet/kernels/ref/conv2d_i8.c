/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

/* Sums are 32-bit two's complement. 65000 products of the largest size fit; beyond that they wrap
 * around. */

enum { OUTPUTS = 4 }; /* outputs of a pixel that are summed at a time */

/* Adds to sum[k] the products of n channels with row k of w; rows are `ldw` apart. */
static inline void add_tap(uint32_t *sum, const int8_t *x, const int8_t *w, int32_t ldw, int32_t n,
                           int32_t zero, const int32_t rows) {
    uint32_t t[OUTPUTS] = {0};
    for (int32_t i = 0; i < n; i++) {
        const int32_t v = x[i] - zero;
        for (int32_t k = 0; k < rows; k++) t[k] += (uint32_t)(v * w[k * ldw + i]);
    }
    for (int32_t k = 0; k < rows; k++) sum[k] += t[k];
}

/* A pixel of y and the part of its window that is inside the image. */
typedef struct {
    const whet_conv2d_t *d;
    int32_t image;
    whet_span_t rows, cols;
} pixel_t;

static pixel_t pixel(const whet_conv2d_t *d, int32_t i) {
    const pixel_t v = {d, i / (d->p * d->q),
                       whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh),
                       whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw)};
    return v;
}

/* Adds to sum[k], k < count, the products for outputs o + k of one group; x has c channels. */
static void add_window(uint32_t *sum, const pixel_t *at, const int8_t *x, const int8_t *w,
                       int32_t c, int32_t o, int32_t count, int32_t zero) {
    const whet_conv2d_t *d = at->d;
    const int32_t ci = c / d->groups, ldw = d->kh * d->kw * ci;
    const int8_t *image = x + at->image * d->h * d->w * c + o / (d->o / d->groups) * ci;
    for (int32_t r = 0; r < at->rows.taps; r++)
        for (int32_t s = 0; s < at->cols.taps; s++) {
            const int32_t row = at->rows.first + r * at->rows.step;
            const int8_t *u = image + (row * d->w + at->cols.first + s * at->cols.step) * c;
            const int8_t *v = w + o * ldw + ((at->rows.cut + r) * d->kw + at->cols.cut + s) * ci;
            if (count == OUTPUTS)
                add_tap(sum, u, v, ldw, ci, zero, OUTPUTS);
            else
                for (int32_t k = 0; k < count; k++)
                    add_tap(sum + k, u, v + k * ldw, ldw, ci, zero, 1);
        }
}

/* The number of outputs from o on that are summed together: up to OUTPUTS of one group. */
static int32_t together(const whet_conv2d_t *d, int32_t o) {
    const int32_t co = d->o / d->groups;
    return whet_min(OUTPUTS, co - o % co);
}

/* formula    y[n,p,q,o] = b[o] + sum_{r,s,i} (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero) *
 *            w[o,r,s,i], padding adds nothing
 * shapes     y[n,p,q,o], x[n,h,w,c], w[o,kh,kw,c/groups], b[o] or NULL
 * aliasing   none
 * rounding   none; sums wrap around
 * workspace  none */
void whet_conv2d_i8(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int32_t zero,
                    const whet_conv2d_t *d) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const pixel_t at = pixel(d, i);
        for (int32_t o = 0, count; o < d->o; o += count) {
            uint32_t sum[OUTPUTS] = {0};
            count = together(d, o);
            add_window(sum, &at, x, w, d->c, o, count, zero);
            for (int32_t k = 0; k < count; k++)
                y[i * d->o + o + k] = (int32_t)(sum[k] + (b ? (uint32_t)b[o + k] : 0u));
        }
    }
}

/* formula    y = round((conv2d_i8(x, w, b) + conv2d_i8(x2, w2)) * scale[o]) + zero, clamped to
 *            [low, high];  bit = it was in range
 * shapes     as conv2d_i8; bits[(n*p*q*o + 7) / 8] or NULL, scale[o]; x2[n,h,w,part] and
 *            w2[o,kh,kw,part/groups], or both NULL
 * aliasing   none
 * rounding   sums to float, one product, then to nearest, ties to even
 * workspace  none */
void whet_conv2d_i8_fused(int8_t *y, uint8_t *bits, const int8_t *x, const int8_t *w,
                          const int32_t *b, const float *scale, const int8_t *x2, const int8_t *w2,
                          const whet_narrow_t *to, const whet_conv2d_t *d) {
    const whet_range8_t range = whet_range8(to);
    whet_bit_row_t row = {bits, 0, 0};
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const pixel_t at = pixel(d, i);
        for (int32_t o = 0, count; o < d->o; o += count) {
            uint32_t sum[OUTPUTS] = {0};
            count = together(d, o);
            add_window(sum, &at, x, w, d->c, o, count, to->x_zero);
            if (x2 != NULL) add_window(sum, &at, x2, w2, to->part, o, count, to->x_zero);
            for (int32_t k = 0; k < count; k++) {
                const int32_t total = (int32_t)(sum[k] + (b ? (uint32_t)b[o + k] : 0u));
                whet_put_i8(&y[i * d->o + o + k], &row, (float)total * scale[o + k], range);
            }
        }
    }
    whet_end_bits(&row);
}
