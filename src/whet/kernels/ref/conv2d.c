/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bits.h"

/* A convolution is one matrix product per tap of its window, over the output pixels for which the
 * tap is inside the image. A 1x1 convolution is one product over all pixels. */

static int32_t is_linear(const whet_conv2d_t *d) {
    return d->kh * d->kw * d->groups * d->sh * d->sw == 1 && d->ph == 0 && d->pw == 0 &&
           d->p == d->h && d->q == d->w;
}

/* y += conv(x, w), tap by tap. Separate, so that its panel is on the stack only if there are
 * taps. */
WHET_OWN_FRAME static void accumulate_taps(float *y, const float *x, const float *w,
                                           const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t t = whet_tap(d, k);
        for (int32_t o = 0, width; o < d->o; o += width) {
            const int32_t g = o / co;
            width = whet_min((g + 1) * co - o, WHET_TILE);
            for (int32_t i = 0; i < ci; i += WHET_DEPTH) {
                const int32_t depth = whet_min(ci - i, WHET_DEPTH);
                float panel[WHET_DEPTH * WHET_TILE];
                whet_pack(panel, w + o * ldw + k * ci + i, ldw, width, depth);
                for (int32_t n = 0; n < d->n; n++)
                    for (int32_t p = t.rows.first; p < t.rows.end; p++)
                        whet_panel(y + whet_tap_y(d, &t, n, p) + o, d->o,
                                   x + whet_tap_x(d, &t, n, p) + g * ci + i, d->sw * d->c, 1, panel,
                                   width, t.width, width, depth);
            }
        }
    }
}

/* y += conv(x, w) */
static void accumulate(float *y, const float *x, const float *w, const whet_conv2d_t *d) {
    if (is_linear(d))
        whet_matmul_nt(y, x, w, d->n * d->p * d->q, d->o, d->c);
    else
        accumulate_taps(y, x, w, d);
}

/* formula    y[n,p,q,o] = b[o] + sum_{r,s,i} x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] * w[o,r,s,i]
 * shapes     y[n,p,q,o], x[n,h,w,c], w[o,kh,kw,c/groups], b[o] or NULL
 * aliasing   none
 * rounding   sums of WHET_DEPTH products, added tap by tap
 * workspace  WHET_DEPTH * WHET_TILE floats of stack */
void whet_conv2d_f32(float *y, const float *x, const float *w, const float *b,
                     const whet_conv2d_t *d) {
    whet_fill_rows(y, b, d->n * d->p * d->q, d->o);
    accumulate(y, x, w, d);
}

/* formula    y = min(max(conv2d(x, w, b) + add, low), high)
 * shapes     as conv2d; add[n,p,q,o] or NULL
 * aliasing   y may be add
 * rounding   as conv2d, starting from add + b
 * workspace  WHET_DEPTH * WHET_TILE floats of stack */
void whet_conv2d_fused_f32(float *y, const float *x, const float *w, const float *b,
                           const float *add, float low, float high, const whet_conv2d_t *d) {
    whet_start_rows(y, b, add, d->n * d->p * d->q, d->o);
    accumulate(y, x, w, d);
    whet_clip_all(y, d->n * d->p * d->q * d->o, low, high);
}

/* formula    y = conv2d_fused(...);  bit i % 8 of bits[i / 8] = low < y[i] < high
 * shapes     as conv2d_fused; bits[(n*p*q*o + 7) / 8]; bits after the last element are 0
 * aliasing   as conv2d_fused
 * rounding   as conv2d_fused
 * workspace  as conv2d_fused */
void whet_conv2d_masked_f32(float *y, uint8_t *bits, const float *x, const float *w, const float *b,
                            const float *add, float low, float high, const whet_conv2d_t *d) {
    whet_conv2d_fused_f32(y, x, w, b, add, low, high, d);
    whet_take_bits(bits, y, d->n * d->p * d->q * d->o, low, high);
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] += sum_o dy[n,p,q,o] * w[o,r,s,i], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,o], w[o,kh,kw,c/groups]
 * aliasing   none
 * rounding   sums of WHET_DEPTH products, added tap by tap
 * workspace  none */
void whet_conv2d_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    if (is_linear(d)) {
        whet_matmul(dx, d->c, dy, d->o, 1, w, d->c, d->n * d->p * d->q, d->c, d->o);
        return;
    }
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t t = whet_tap(d, k);
        for (int32_t n = 0; n < d->n; n++)
            for (int32_t p = t.rows.first; p < t.rows.end; p++)
                for (int32_t g = 0; g < d->groups; g++)
                    whet_matmul(dx + whet_tap_x(d, &t, n, p) + g * ci, d->sw * d->c,
                                dy + whet_tap_y(d, &t, n, p) + g * co, d->o, 1,
                                w + g * co * ldw + k * ci, ldw, t.width, ci, co);
    }
}

/* formula    dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i]
 * shapes     dw[o,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   sums of WHET_DEPTH products along q, added row by row
 * workspace  none */
void whet_conv2d_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d) {
    whet_conv2d_dw_rows_f32(dw, dy, x, 0, d->o, d);
}

/* formula    as conv2d_dw, for first <= o < first + count
 * shapes     dw[count,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   as conv2d_dw
 * workspace  none */
void whet_conv2d_dw_rows_f32(float *dw, const float *dy, const float *x, int32_t first,
                             int32_t count, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    whet_fill(dw, count * ldw, 0.0f);
    if (is_linear(d)) {
        whet_matmul(dw, d->c, dy + first, 1, d->o, x, d->c, count, d->c, d->n * d->p * d->q);
        return;
    }
    for (int32_t o = 0, width; o < count; o += width) {
        const int32_t g = (first + o) / co;
        width = whet_min((g + 1) * co - first, count) - o;
        for (int32_t k = 0; k < d->kh * d->kw; k++) {
            const whet_tap_t t = whet_tap(d, k);
            for (int32_t n = 0; n < d->n; n++)
                for (int32_t p = t.rows.first; p < t.rows.end; p++)
                    whet_matmul(dw + o * ldw + k * ci, ldw,
                                dy + whet_tap_y(d, &t, n, p) + first + o, 1, d->o,
                                x + whet_tap_x(d, &t, n, p) + g * ci, d->sw * d->c, width, ci,
                                t.width);
        }
    }
}
