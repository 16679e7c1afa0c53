/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* Channels lie next to each other, so a vector holds some of them for one pixel, and every sum over
 * a window stays in registers. A run of channels is cut into 4, 2 and 1 vectors, half a vector, and
 * single channels. */

typedef float whet_one_t;

/* Positions of a window along an axis: taps first, first + step, ... (count of them), and the
 * place in the other array that the first one meets; the next ones meet places `move` apart. */
typedef struct {
    int32_t first, step, count, place, move;
} run_t;

/* Forward: what output i reads. */
static inline run_t reads(int32_t i, int32_t size, int32_t kernel, int32_t stride, int32_t pad,
                          int32_t dilation) {
    const whet_span_t s = whet_span(i, size, kernel, stride, pad, dilation);
    const run_t v = {s.cut, 1, s.taps, s.first, dilation};
    return v;
}

/* Backward: which outputs read input i; without dilation every stride-th tap meets one, and the
 * outputs they belong to go down by one. */
static inline run_t read_by(int32_t i, int32_t outputs, int32_t kernel, int32_t stride,
                            int32_t pad) {
    const int32_t at = i + pad;
    int32_t tap = at % stride, place = at / stride;
    if (place >= outputs) {
        tap += (place - outputs + 1) * stride;
        place = outputs - 1;
    }
    int32_t count = tap < kernel ? (kernel - tap - 1) / stride + 1 : 0;
    count = whet_min(count, place + 1);
    const run_t v = {tap, stride, count > 0 ? count : 0, place, -1};
    return v;
}

/* y += sum over rows and columns of u * w, for NV vectors of channels. */
#define WINDOW(name, vec, unaligned, NV)                                                       \
    static inline __attribute__((always_inline)) void name(                                    \
        float *y, const float *u, const float *w, int32_t c, int32_t width, int32_t kw,        \
        run_t rows, run_t cols) {                                                              \
        enum { lanes = sizeof(vec) / sizeof(float) };                                          \
        vec sum[NV];                                                                           \
        for (int32_t v = 0; v < NV; v++) sum[v] = *(const unaligned *)(y + v * lanes);         \
        for (int32_t r = 0; r < rows.count; r++) {                                             \
            const float *ur = u + ((rows.place + r * rows.move) * width + cols.place) * c;     \
            const float *wr = w + ((rows.first + r * rows.step) * kw + cols.first) * c;        \
            for (int32_t s = 0; s < cols.count; s++, ur += cols.move * c, wr += cols.step * c) \
                for (int32_t v = 0; v < NV; v++)                                               \
                    sum[v] += *(const unaligned *)(ur + v * lanes) *                           \
                              *(const unaligned *)(wr + v * lanes);                            \
        }                                                                                      \
        for (int32_t v = 0; v < NV; v++) *(unaligned *)(y + v * lanes) = sum[v];               \
    }

WINDOW(window_4, whet_vec_t, whet_vec_u, 4)
WINDOW(window_2, whet_vec_t, whet_vec_u, 2)
WINDOW(window_1, whet_vec_t, whet_vec_u, 1)
WINDOW(window_h, whet_half_t, whet_half_u, 1)
WINDOW(window_s, whet_one_t, whet_one_t, 1)

/* One pixel, all its channels. */
static inline void pixel(float *y, const float *u, const float *w, int32_t c, int32_t width,
                         int32_t kw, run_t rows, run_t cols) {
    int32_t i = 0;
    for (; i + 4 * WHET_LANES <= c; i += 4 * WHET_LANES)
        window_4(y + i, u + i, w + i, c, width, kw, rows, cols);
    for (; i + 2 * WHET_LANES <= c; i += 2 * WHET_LANES)
        window_2(y + i, u + i, w + i, c, width, kw, rows, cols);
    for (; i + WHET_LANES <= c; i += WHET_LANES)
        window_1(y + i, u + i, w + i, c, width, kw, rows, cols);
    for (; i + WHET_LANES / 2 <= c; i += WHET_LANES / 2)
        window_h(y + i, u + i, w + i, c, width, kw, rows, cols);
    for (; i < c; i++) window_s(y + i, u + i, w + i, c, width, kw, rows, cols);
}

/* y += depthwise(x, w) */
static void accumulate(float *y, const float *x, const float *w, const whet_conv2d_t *d) {
    for (int32_t n = 0; n < d->n; n++, x += d->h * d->w * d->c)
        for (int32_t p = 0; p < d->p; p++) {
            const run_t rows = reads(p, d->h, d->kh, d->sh, d->ph, d->dh);
            for (int32_t q = 0; q < d->q; q++, y += d->c)
                pixel(y, x, w, d->c, d->w, d->kw, rows, reads(q, d->w, d->kw, d->sw, d->pw, d->dw));
        }
}

/* formula    y[n,p,q,c] = b[c] + sum_{r,s} x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] * w[r,s,c]
 * shapes     y[n,p,q,c], x[n,h,w,c], w[kh,kw,c], b[c] or NULL
 * aliasing   none
 * rounding   one sum over the window, from b
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

/* With dilation: every output adds to the pixels it reads. */
static void scatter(float *dx, const float *dy, const float *w, const whet_conv2d_t *d) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        float *image = dx + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t r = 0; r < rows.taps; r++)
            for (int32_t s = 0; s < cols.taps; s++) {
                const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
                const float *v = w + ((rows.cut + r) * d->kw + cols.cut + s) * d->c;
                for (int32_t c = 0; c < d->c; c++) image[at * d->c + c] += dy[i * d->c + c] * v[c];
            }
    }
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c]
 * aliasing   none
 * rounding   one sum over the outputs that read a pixel
 * workspace  none */
void whet_depthwise_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d) {
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    if (d->dh != 1 || d->dw != 1) {
        scatter(dx, dy, w, d);
        return;
    }
    for (int32_t n = 0; n < d->n; n++, dy += d->p * d->q * d->c)
        for (int32_t i = 0; i < d->h; i++) {
            const run_t rows = read_by(i, d->p, d->kh, d->sh, d->ph);
            for (int32_t j = 0; j < d->w; j++, dx += d->c)
                pixel(dx, dy, w, d->c, d->q, d->kw, rows, read_by(j, d->q, d->kw, d->sw, d->pw));
        }
}

/* dw += sum over k pixels of dy * x, for NV vectors of channels. */
#define ALONG(name, vec, unaligned, NV)                                                           \
    static inline __attribute__((always_inline)) void name(                                       \
        float *dw, const float *dy, const float *x, int32_t dy_step, int32_t x_step, int32_t k) { \
        enum { lanes = sizeof(vec) / sizeof(float) };                                             \
        vec sum[NV];                                                                              \
        for (int32_t v = 0; v < NV; v++) sum[v] = *(const unaligned *)(dw + v * lanes);           \
        for (; k > 0; k--, dy += dy_step, x += x_step)                                            \
            for (int32_t v = 0; v < NV; v++)                                                      \
                sum[v] +=                                                                         \
                    *(const unaligned *)(dy + v * lanes) * *(const unaligned *)(x + v * lanes);   \
        for (int32_t v = 0; v < NV; v++) *(unaligned *)(dw + v * lanes) = sum[v];                 \
    }

ALONG(along_4, whet_vec_t, whet_vec_u, 4)
ALONG(along_2, whet_vec_t, whet_vec_u, 2)
ALONG(along_1, whet_vec_t, whet_vec_u, 1)
ALONG(along_h, whet_half_t, whet_half_u, 1)
ALONG(along_s, whet_one_t, whet_one_t, 1)

static inline void along_row(float *dw, const float *dy, const float *x, int32_t c, int32_t x_step,
                             int32_t k) {
    int32_t i = 0;
    for (; i + 4 * WHET_LANES <= c; i += 4 * WHET_LANES)
        along_4(dw + i, dy + i, x + i, c, x_step, k);
    for (; i + 2 * WHET_LANES <= c; i += 2 * WHET_LANES)
        along_2(dw + i, dy + i, x + i, c, x_step, k);
    for (; i + WHET_LANES <= c; i += WHET_LANES) along_1(dw + i, dy + i, x + i, c, x_step, k);
    for (; i + WHET_LANES / 2 <= c; i += WHET_LANES / 2)
        along_h(dw + i, dy + i, x + i, c, x_step, k);
    for (; i < c; i++) along_s(dw + i, dy + i, x + i, c, x_step, k);
}

/* formula    dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c]
 * shapes     dw[kh,kw,c], dy[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   sums along q, one row after the other; rows of all taps share what they read
 * workspace  none */
void whet_depthwise_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d) {
    whet_fill(dw, d->kh * d->kw * d->c, 0.0f);
    for (int32_t n = 0; n < d->n; n++)
        for (int32_t p = 0; p < d->p; p++)
            for (int32_t k = 0; k < d->kh * d->kw; k++) {
                const whet_tap_t t = whet_tap(d, k);
                if (p < t.rows.first || p >= t.rows.end) continue;
                along_row(dw + k * d->c, dy + whet_tap_y(d, &t, n, p), x + whet_tap_x(d, &t, n, p),
                          d->c, d->sw * d->c, t.width);
            }
}
