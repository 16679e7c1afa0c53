/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

/* sum[l] = output pixel i, channels c + l, l < n <= WHET_TILE; n is a constant after inlining. */
static inline void window(uint32_t *sum, const int8_t *x, const int8_t *w, const int32_t *b,
                          int32_t zero, const whet_conv2d_t *d, int32_t i, int32_t c,
                          const int32_t n) {
    const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
    const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
    const int8_t *image = x + i / (d->p * d->q) * d->h * d->w * d->c + c;
    for (int32_t l = 0; l < n; l++) sum[l] = b ? (uint32_t)b[c + l] : 0u;
    for (int32_t r = 0; r < rows.taps; r++)
        for (int32_t s = 0; s < cols.taps; s++) {
            const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
            const int8_t *u = image + at * d->c;
            const int8_t *v = w + ((rows.cut + r) * d->kw + cols.cut + s) * d->c + c;
            for (int32_t l = 0; l < n; l++) sum[l] += (uint32_t)((u[l] - zero) * v[l]);
        }
}

static void channels(uint32_t *sum, const int8_t *x, const int8_t *w, const int32_t *b,
                     int32_t zero, const whet_conv2d_t *d, int32_t i, int32_t c, int32_t n) {
    if (n == WHET_TILE)
        window(sum, x, w, b, zero, d, i, c, WHET_TILE);
    else
        window(sum, x, w, b, zero, d, i, c, n);
}

/* formula    y[n,p,q,c] = b[c] + sum_{r,s} (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] - zero) *
 *            w[r,s,c], padding adds nothing
 * shapes     y[n,p,q,c], x[n,h,w,c], w[kh,kw,c], b[c] or NULL
 * aliasing   none
 * rounding   none; sums wrap around
 * workspace  none */
void whet_depthwise_i8(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int32_t zero,
                       const whet_conv2d_t *d) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++)
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t n = whet_min(d->c - c, WHET_TILE);
            uint32_t sum[WHET_TILE];
            channels(sum, x, w, b, zero, d, i, c, n);
            for (int32_t l = 0; l < n; l++) y[i * d->c + c + l] = (int32_t)sum[l];
        }
}

/* formula    y = round(depthwise_i8(x, w, b) * scale[c]) + zero, clamped to [low, high];
 *            bit = it was in range
 * shapes     as depthwise_i8; bits[(n*p*q*c + 7) / 8] or NULL, scale[c]
 * aliasing   none
 * rounding   sums to float, one product, then to nearest, ties to even
 * workspace  none */
void whet_depthwise_i8_fused(int8_t *y, uint8_t *bits, const int8_t *x, const int8_t *w,
                             const int32_t *b, const float *scale, const whet_narrow_t *to,
                             const whet_conv2d_t *d) {
    const whet_range8_t range = whet_range8(to);
    whet_bit_row_t row = {bits, 0, 0};
    for (int32_t i = 0; i < d->n * d->p * d->q; i++)
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t n = whet_min(d->c - c, WHET_TILE);
            uint32_t sum[WHET_TILE];
            channels(sum, x, w, b, to->x_zero, d, i, c, n);
            for (int32_t l = 0; l < n; l++) {
                const float total = (float)(int32_t)sum[l];
                whet_put_i8(&y[i * d->c + c + l], &row, total * scale[c + l], range);
            }
        }
    whet_end_bits(&row);
}
