/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* A convolution is one matrix product per tap of its window, over the output pixels that have the
 * tap inside the image. A 1x1 convolution is one product over all pixels. */

static int32_t is_linear(const whet_conv2d_t *d) {
    return d->kh * d->kw * d->groups * d->sh * d->sw == 1 && d->ph == 0 && d->pw == 0 &&
           d->p == d->h && d->q == d->w;
}

/* Windows over few channels, as the first layer of a network has them, are copied out side by side:
 * one product then does the work of one per tap. */
enum { PIXELS = 48, WINDOW = 256, OUTPUTS = 96 };

static int32_t is_narrow(const whet_conv2d_t *d) {
    return d->groups == 1 && d->c <= WHET_LANES && d->kh * d->kw * d->c <= WINDOW;
}

/* a[pixels, kh*kw*c] = the windows of output pixels first, first + 1, ...; zeros outside. */
static void windows(float *a, const float *x, int32_t first, int32_t pixels,
                    const whet_conv2d_t *d) {
    const int32_t row = d->kw * d->c, size = d->kh * row;
    const int32_t together = d->dw == 1 ? d->kw : 1; /* taps of a row that lie side by side */
    memset(a, 0, (size_t)(pixels * size) * sizeof *a);
    for (int32_t i = first; i < first + pixels; i++, a += size) {
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        const float *image = x + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t r = 0; r < rows.taps; r++)
            for (int32_t s = 0; s < cols.taps; s += together) {
                const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
                float *to = a + (rows.cut + r) * row + (cols.cut + s) * d->c;
                const int32_t n = d->c * whet_min(together, cols.taps);
                for (int32_t c = 0; c < n; c++) to[c] = image[at * d->c + c];
            }
    }
}

static void narrow(float *y, const float *x, const float *w, const whet_conv2d_t *d) {
    const int32_t size = d->kh * d->kw * d->c, all = d->n * d->p * d->q;
    float a[PIXELS * WINDOW];
    for (int32_t i = 0; i < all; i += PIXELS) {
        const int32_t pixels = whet_min(all - i, PIXELS);
        windows(a, x, i, pixels, d);
        whet_matmul_nt(y + i * d->o, a, w, pixels, d->o, size);
    }
}

static void narrow_dw(float *dw, const float *dy, const float *x, int32_t count,
                      const whet_conv2d_t *d) {
    const int32_t size = d->kh * d->kw * d->c, all = d->n * d->p * d->q;
    float a[PIXELS * WINDOW];
    for (int32_t i = 0; i < all; i += PIXELS) {
        const int32_t pixels = whet_min(all - i, PIXELS);
        windows(a, x, i, pixels, d);
        whet_matmul(dw, size, dy + i * d->o, 1, d->o, a, size, count, size, pixels);
    }
}

/* y += conv(x, w) */
static void accumulate(float *y, const float *x, const float *w, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    if (is_linear(d)) {
        whet_matmul_nt(y, x, w, d->n * d->p * d->q, d->o, d->c);
        return;
    }
    if (is_narrow(d)) {
        narrow(y, x, w, d);
        return;
    }
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

/* Adds to dw[o,r,s,i], of one tap, the products of up to WHET_DEPTH pixels. */
static void tap_dw(float *dw, int32_t ldw, const float *const *dy, const float *const *x,
                   int32_t pixels, int32_t co, int32_t ci) {
    float a[WHET_DEPTH * OUTPUTS], b[WHET_DEPTH * WHET_TILE];
    for (int32_t o = 0; o < co; o += OUTPUTS) {
        const int32_t outputs = whet_min(co - o, OUTPUTS);
        for (int32_t l = 0; l < pixels; l++)
            memcpy(a + l * outputs, dy[l] + o, (size_t)outputs * sizeof *a);
        for (int32_t i = 0; i < ci; i += WHET_TILE) {
            const int32_t width = whet_min(ci - i, WHET_TILE);
            for (int32_t l = 0; l < pixels; l++)
                memcpy(b + l * width, x[l] + i, (size_t)width * sizeof *b);
            whet_panel(dw + o * ldw + i, ldw, a, 1, outputs, b, width, outputs, width, pixels);
        }
    }
}

/* formula    as conv2d_dw, for first <= o < first + count
 * shapes     dw[count,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   sums of WHET_DEPTH products, added one after the other
 * workspace  WHET_DEPTH * (OUTPUTS + WHET_TILE) floats of stack */
void whet_conv2d_dw_rows_f32(float *dw, const float *dy, const float *x, int32_t first,
                             int32_t count, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    whet_fill(dw, count * ldw, 0.0f);
    if (is_linear(d)) {
        whet_matmul(dw, d->c, dy + first, 1, d->o, x, d->c, count, d->c, d->n * d->p * d->q);
        return;
    }
    if (is_narrow(d)) {
        narrow_dw(dw, dy + first, x, count, d);
        return;
    }
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t t = whet_tap(d, k);
        const float *from_dy[WHET_DEPTH], *from_x[WHET_DEPTH];
        for (int32_t o = 0, width; o < count; o += width) {
            const int32_t g = (first + o) / co;
            int32_t pixels = 0;
            width = whet_min((g + 1) * co - first, count) - o;
            for (int32_t n = 0; n < d->n; n++)
                for (int32_t p = t.rows.first; p < t.rows.end; p++)
                    for (int32_t q = 0; q < t.width; q++) {
                        from_dy[pixels] = dy + whet_tap_y(d, &t, n, p) + q * d->o + first + o;
                        from_x[pixels] = x + whet_tap_x(d, &t, n, p) + q * d->sw * d->c + g * ci;
                        if (++pixels < WHET_DEPTH) continue;
                        tap_dw(dw + o * ldw + k * ci, ldw, from_dy, from_x, pixels, width, ci);
                        pixels = 0;
                    }
            if (pixels > 0) tap_dw(dw + o * ldw + k * ci, ldw, from_dy, from_x, pixels, width, ci);
        }
    }
}
