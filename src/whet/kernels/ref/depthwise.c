/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bits.h"

#define WHET_WEIGHT                 float
#define WHET_ADD_PRODUCT(sum, a, b) ((sum) + (a) * (b))
#include "whet_scatter.h"

/* One output pixel, n <= WHET_TILE channels of it; n is a constant after inlining. */
static inline void pixel(float *y, const float *x, const float *w, const whet_conv2d_t *d,
                         whet_span_t rows, whet_span_t cols, const int32_t n) {
    float t[WHET_TILE] = {0.0f};
    for (int32_t r = 0; r < rows.taps; r++)
        for (int32_t s = 0; s < cols.taps; s++) {
            const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
            const float *u = x + at * d->c;
            const float *v = w + ((rows.cut + r) * d->kw + cols.cut + s) * d->c;
            for (int32_t l = 0; l < n; l++) t[l] += u[l] * v[l];
        }
    for (int32_t l = 0; l < n; l++) y[l] += t[l];
}

/* y += depthwise(x, w) */
static void accumulate(float *y, const float *x, const float *w, const whet_conv2d_t *d) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        const float *image = x + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t width = whet_min(d->c - c, WHET_TILE);
            float *out = y + i * d->c + c;
            if (width == WHET_TILE)
                pixel(out, image + c, w + c, d, rows, cols, WHET_TILE);
            else
                pixel(out, image + c, w + c, d, rows, cols, width);
        }
    }
}

/* formula    y[n,p,q,c] = b[c] + sum_{r,s} x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] * w[r,s,c]
 * shapes     y[n,p,q,c], x[n,h,w,c], w[kh,kw,c], b[c] or NULL
 * aliasing   none
 * rounding   one sum over the window
 * workspace  none */
void whet_depthwise_f32(float *y, const float *x, const float *w, const float *b,
                        const whet_conv2d_t *d) {
    whet_fill_rows(y, b, d->n * d->p * d->q, d->c);
    accumulate(y, x, w, d);
}

/* formula    y = min(max(depthwise(x, w, b) + add, low), high)
 * shapes     as depthwise; add[n,p,q,c] or NULL
 * aliasing   y may be add
 * rounding   as depthwise, starting from add + b
 * workspace  none */
void whet_depthwise_fused_f32(float *y, const float *x, const float *w, const float *b,
                              const float *add, float low, float high, const whet_conv2d_t *d) {
    whet_start_rows(y, b, add, d->n * d->p * d->q, d->c);
    accumulate(y, x, w, d);
    whet_clip_all(y, d->n * d->p * d->q * d->c, low, high);
}

/* formula    y = depthwise_fused(...);  bit i % 8 of bits[i / 8] = low < y[i] < high
 * shapes     as depthwise_fused; bits[(n*p*q*c + 7) / 8]; bits after the last element are 0
 * aliasing   as depthwise_fused
 * rounding   as depthwise_fused
 * workspace  as depthwise_fused */
void whet_depthwise_masked_f32(float *y, uint8_t *bits, const float *x, const float *w,
                               const float *b, const float *add, float low, float high,
                               const whet_conv2d_t *d) {
    whet_depthwise_fused_f32(y, x, w, b, add, low, high, d);
    whet_take_bits(bits, y, d->n * d->p * d->q * d->c, low, high);
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c]
 * aliasing   none
 * rounding   added tap by tap
 * workspace  none */
void whet_depthwise_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d) {
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    whet_scatter(dx, dy, w, d);
}

/* dw[l] += sum over k pixels, l < n <= WHET_TILE. */
static inline void along_row(float *dw, const float *dy, const float *x, int32_t dy_step,
                             int32_t x_step, int32_t k, const int32_t n) {
    float t[WHET_TILE] = {0.0f};
    for (; k > 0; k--, dy += dy_step, x += x_step)
        for (int32_t l = 0; l < n; l++) t[l] += dy[l] * x[l];
    for (int32_t l = 0; l < n; l++) dw[l] += t[l];
}

/* formula    dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c]
 * shapes     dw[kh,kw,c], dy[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   sums along q, added row by row
 * workspace  none */
void whet_depthwise_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d) {
    whet_fill(dw, d->kh * d->kw * d->c, 0.0f);
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t t = whet_tap(d, k);
        for (int32_t n = 0; n < d->n; n++)
            for (int32_t p = t.rows.first; p < t.rows.end; p++)
                for (int32_t c = 0; c < d->c; c += WHET_TILE) {
                    const int32_t width = whet_min(d->c - c, WHET_TILE), step = d->sw * d->c;
                    const float *u = dy + whet_tap_y(d, &t, n, p) + c;
                    const float *v = x + whet_tap_x(d, &t, n, p) + c;
                    float *out = dw + k * d->c + c;
                    if (width == WHET_TILE)
                        along_row(out, u, v, d->c, step, t.width, WHET_TILE);
                    else
                        along_row(out, u, v, d->c, step, t.width, width);
                }
    }
}
