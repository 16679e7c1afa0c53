/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bits.h"
#include "whet_columns.h"
#include "whet_threads.h"

#define WHET_WEIGHT                 float
#define WHET_ADD_PRODUCT(sum, a, b) ((sum) + (a) * (b))
#include "whet_scatter.h"

/* Channels are contiguous, so a vector holds some of them for one pixel. A row of results is
 * computed in columns of a vector, half a vector or one channel. Away from the left and right edge
 * all pixels have the same taps, whose weights are then loaded once for the whole row. */

/* Taps of a window along an axis: first, first + step, ... (count of them), and the position in the
 * other array for the first one; positions for the next are `move` apart. */
typedef struct {
    int32_t first, step, count, place, move;
} run_t;

/* Forward: the inputs of output i. */
static inline run_t reads(int32_t i, int32_t size, int32_t kernel, int32_t stride, int32_t pad,
                          int32_t dilation) {
    const whet_span_t s = whet_span(i, size, kernel, stride, pad, dilation);
    const run_t v = {s.cut, 1, s.taps, s.first, dilation};
    return v;
}

/* Backward: the outputs that read input i. Without dilation every stride-th tap has one, and their
 * positions decrease by one. */
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

/* A row of `count` pixels with the same taps: pixel i of y, i * y_step from the first, sums the
 * pixels of u at an offset of i * u_step from those of the first. */
typedef struct {
    float *y;
    const float *u, *w, *bias, *add; /* bias and add may be NULL */
    int32_t count, y_step, u_step, c, kw;
    int32_t down, right; /* elements of u from one tap to the next */
    run_t rows, cols;
    float low, high;
} row_t;

enum { MOST = 49 }; /* taps whose weights are in registers */

#define PRAGMA_(text) _Pragma(#text)
#define UNROLL_(n)    PRAGMA_(GCC unroll n)

/* For one kind of column: `t` is its letter, j its first channel. */
#define COLUMN(t, vec, unaligned)                                                                 \
    /* R and S, the taps, are constants after inlining. So is `slides`: to look whether the \
     * window moves by one tap from pixel to pixel. Pixels then go in fours, which read most \
     * of what they read together. Taps may run backwards. */     \
    static inline __attribute__((always_inline)) void row_##t(                                    \
        const row_t *a, int32_t j, const int32_t R, const int32_t S, const int32_t slides) {      \
        const int32_t n = a->count, u_step = a->u_step, y_step = a->y_step;                       \
        const int32_t back = slides && a->right == -u_step, down = a->down;                       \
        const int32_t right = back ? u_step : a->right;                                           \
        const float low = a->low, high = a->high;                                                 \
        const int32_t clip = low != -INFINITY || high != INFINITY;                                \
        vec w[MOST], start = {0.0f};                                                              \
        for (int32_t r = 0; r < R; r++)                                                           \
            for (int32_t s = 0; s < S; s++) {                                                     \
                const int32_t row = a->rows.first + r * a->rows.step;                             \
                const int32_t col = a->cols.first + (back ? S - 1 - s : s) * a->cols.step;        \
                w[r * S + s] = *(const unaligned *)(a->w + (row * a->kw + col) * a->c + j);       \
            }                                                                                     \
        if (a->bias) start = *(const unaligned *)(a->bias + j);                                   \
        const float *u = a->u + j - (back ? (S - 1) * right : 0);                                 \
        const float *add = a->add ? a->add + j : NULL;                                            \
        float *y = a->y + j;                                                                      \
        int32_t i = 0;                                                                            \
        for (; slides && right == u_step && i + 4 <= n; i += 4) {                                 \
            vec sum[4] = {start, start, start, start};                                            \
            UNROLL_(7)                                                                            \
            for (int32_t r = 0; r < R; r++) UNROLL_(10) for (int32_t k = 0; k < S + 3; k++) {     \
                    const vec x = *(const unaligned *)(u + r * down + (i + k) * u_step);          \
                    UNROLL_(4)                                                                    \
                    for (int32_t e = 0; e < 4; e++)                                               \
                        if (k - e >= 0 && k - e < S) sum[e] += w[r * S + k - e] * x;              \
                }                                                                                 \
            UNROLL_(4) for (int32_t e = 0; e < 4; e++) {                                          \
                if (add) sum[e] += *(const unaligned *)(add + (i + e) * y_step);                  \
                if (clip) sum[e] = whet_clip_##t(sum[e], low, high);                              \
                *(unaligned *)(y + (i + e) * y_step) = sum[e];                                    \
            }                                                                                     \
        }                                                                                         \
        for (; i < n; i++) {                                                                      \
            vec sum = start;                                                                      \
            for (int32_t r = 0; r < R; r++)                                                       \
                for (int32_t s = 0; s < S; s++)                                                   \
                    sum += w[r * S + s] *                                                         \
                           *(const unaligned *)(u + i * u_step + r * down + s * right);           \
            if (add) sum += *(const unaligned *)(add + i * y_step);                               \
            if (clip) sum = whet_clip_##t(sum, low, high);                                        \
            *(unaligned *)(y + i * y_step) = sum;                                                 \
        }                                                                                         \
    }                                                                                             \
    /* Any number of taps: near an edge, and for unusual or large windows. */                     \
    static void edge_##t(const row_t *a, int32_t j) {                                             \
        for (int32_t i = 0; i < a->count; i++) {                                                  \
            vec sum = {0.0f}, more = {0.0f};                                                      \
            if (a->bias) sum = *(const unaligned *)(a->bias + j);                                 \
            for (int32_t r = 0; r < a->rows.count; r++) {                                         \
                const int32_t row = a->rows.first + r * a->rows.step;                             \
                const float *w = a->w + (row * a->kw + a->cols.first) * a->c + j;                 \
                const float *u = a->u + i * a->u_step + r * a->down + j;                          \
                const int32_t step = a->cols.step * a->c, right = a->right;                       \
                int32_t s = 0;                                                                    \
                for (; s + 2 <= a->cols.count; s += 2) {                                          \
                    sum +=                                                                        \
                        *(const unaligned *)(w + s * step) * *(const unaligned *)(u + s * right); \
                    more += *(const unaligned *)(w + (s + 1) * step) *                            \
                            *(const unaligned *)(u + (s + 1) * right);                            \
                }                                                                                 \
                if (s < a->cols.count)                                                            \
                    sum +=                                                                        \
                        *(const unaligned *)(w + s * step) * *(const unaligned *)(u + s * right); \
            }                                                                                     \
            sum += more;                                                                          \
            if (a->add) sum += *(const unaligned *)(a->add + i * a->y_step + j);                  \
            *(unaligned *)(a->y + i * a->y_step + j) = whet_clip_##t(sum, a->low, a->high);       \
        }                                                                                         \
    }                                                                                             \
    static void any_row_##t(const row_t *a, int32_t j) {                                          \
        FOR_TAPS(t, 1, 1, 0)                                                                      \
        FOR_TAPS(t, 1, 2, 0)                                                                      \
        FOR_TAPS(t, 2, 1, 0)                                                                      \
        FOR_TAPS(t, 2, 2, 0)                                                                      \
        FOR_TAPS(t, 2, 3, 0)                                                                      \
        FOR_TAPS(t, 3, 2, 0)                                                                      \
        FOR_TAPS(t, 3, 3, 1)                                                                      \
        FOR_TAPS(t, 3, 4, 0)                                                                      \
        FOR_TAPS(t, 4, 3, 0)                                                                      \
        FOR_TAPS(t, 4, 4, 0)                                                                      \
        FOR_TAPS(t, 5, 5, 1)                                                                      \
        FOR_TAPS(t, 7, 7, 1)                                                                      \
        edge_##t(a, j);                                                                           \
    }                                                                                             \
    /* Adds to sums[taps, width] the products of a row of dy and the pixels under one tap row. */ \
    static void along_##t(float *sums, int32_t width, const float *dy, const float *x, int32_t c, \
                          int32_t x_step, int32_t tap_step, int32_t taps, int32_t k, int32_t j) { \
        int32_t s = 0;                                                                            \
        for (; s + 3 <= taps; s += 3) {                                                           \
            const float *u = x + s * tap_step + j;                                                \
            const vec zero = {0.0f};                                                              \
            vec a[3] = {zero, zero, zero}, b[3] = {zero, zero, zero};                             \
            int32_t i = 0;                                                                        \
            for (; i + 2 <= k; i += 2) {                                                          \
                const vec g = *(const unaligned *)(dy + i * c + j);                               \
                const vec h = *(const unaligned *)(dy + (i + 1) * c + j);                         \
                for (int32_t e = 0; e < 3; e++) {                                                 \
                    a[e] += g * *(const unaligned *)(u + i * x_step + e * tap_step);              \
                    b[e] += h * *(const unaligned *)(u + (i + 1) * x_step + e * tap_step);        \
                }                                                                                 \
            }                                                                                     \
            if (i < k) {                                                                          \
                const vec g = *(const unaligned *)(dy + i * c + j);                               \
                for (int32_t e = 0; e < 3; e++)                                                   \
                    a[e] += g * *(const unaligned *)(u + i * x_step + e * tap_step);              \
            }                                                                                     \
            for (int32_t e = 0; e < 3; e++)                                                       \
                *(unaligned *)(sums + (s + e) * width + j) += a[e] + b[e];                        \
        }                                                                                         \
        for (; s < taps; s++) {                                                                   \
            const float *u = x + s * tap_step + j, *g = dy + j;                                   \
            vec a = {0.0f}, b = {0.0f};                                                           \
            int32_t i = 0;                                                                        \
            for (; i + 2 <= k; i += 2) {                                                          \
                a += *(const unaligned *)(g + i * c) * *(const unaligned *)(u + i * x_step);      \
                b += *(const unaligned *)(g + (i + 1) * c) *                                      \
                     *(const unaligned *)(u + (i + 1) * x_step);                                  \
            }                                                                                     \
            if (i < k)                                                                            \
                a += *(const unaligned *)(g + i * c) * *(const unaligned *)(u + i * x_step);      \
            *(unaligned *)(sums + s * width + j) += a + b;                                        \
        }                                                                                         \
    }

/* A row with R x S taps, known at compile time. */
#define FOR_TAPS(t, R, S, slides)                       \
    if (a->rows.count == (R) && a->cols.count == (S)) { \
        row_##t(a, j, R, S, slides);                    \
        return;                                         \
    }

COLUMN(v, whet_vec_t, whet_vec_u)
COLUMN(h, whet_half_t, whet_half_u)
COLUMN(s, whet_one_t, whet_one_t)

static void make_row(const row_t *a) { WHET_COLUMNS(a->c, any_row, a, j); }

typedef struct {
    float *y;
    const float *x, *w, *bias, *add;
    float low, high;
    const whet_conv2d_t *d;
    uint8_t *bits; /* of y, or NULL; a row of y fills whole bytes */
} layer_t;

/* ---- Forward. Rows [first, end) of all images. */

static void forward_rows(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_conv2d_t *d = l->d;
    row_t a = {.w = l->w, .bias = l->bias, .c = d->c, .kw = d->kw, .low = l->low, .high = l->high};
    a.y_step = d->c;
    a.u_step = d->sw * d->c;
    a.down = d->dh * d->w * d->c;
    a.right = d->dw * d->c;
    for (int32_t i = first; i < end; i++) {
        const float *image = l->x + i / d->p * d->h * d->w * d->c;
        a.rows = reads(i % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        for (int32_t q = 0; q < d->q; q += a.count) {
            const int32_t left = q * d->sw - d->pw;
            const int32_t inside = left >= 0 ? d->w - left - (d->kw - 1) * d->dw : 0;
            a.cols = reads(q, d->w, d->kw, d->sw, d->pw, d->dw);
            a.count = inside > 0 ? whet_min((inside - 1) / d->sw + 1, d->q - q) : 1;
            a.y = l->y + (i * d->q + q) * d->c;
            a.u = image + (a.rows.place * d->w + a.cols.place) * d->c;
            a.add = l->add ? l->add + (i * d->q + q) * d->c : NULL;
            make_row(&a);
        }
        if (l->bits != NULL) {
            const int32_t row = d->q * d->c;
            whet_take_bits(l->bits + i * (row / 8), l->y + i * row, row, l->low, l->high);
        }
    }
}

static int64_t work_of(const whet_conv2d_t *d) {
    return (int64_t)d->n * d->p * d->q * d->c * d->kh * d->kw;
}

/* formula    y[n,p,q,c] = b[c] + sum_{r,s} x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] * w[r,s,c]
 * shapes     y[n,p,q,c], x[n,h,w,c], w[kh,kw,c], b[c] or NULL
 * aliasing   none
 * rounding   one sum over the window, from b
 * workspace  none */
void whet_depthwise_f32(float *y, const float *x, const float *w, const float *b,
                        const whet_conv2d_t *d) {
    const layer_t l = {y, x, w, b, NULL, -INFINITY, INFINITY, d, NULL};
    whet_share_work(forward_rows, &l, d->n * d->p, work_of(d));
}

/* formula    y = min(max(depthwise(x, w, b) + add, low), high)
 * shapes     as depthwise; add[n,p,q,c] or NULL
 * aliasing   y may be add
 * rounding   as depthwise, plus add
 * workspace  none */
void whet_depthwise_fused_f32(float *y, const float *x, const float *w, const float *b,
                              const float *add, float low, float high, const whet_conv2d_t *d) {
    const layer_t l = {y, x, w, b, add, low, high, d, NULL};
    whet_share_work(forward_rows, &l, d->n * d->p, work_of(d));
}

/* formula    y = depthwise_fused(...);  bit i % 8 of bits[i / 8] = low < y[i] < high
 * shapes     as depthwise_fused; bits[(n*p*q*c + 7) / 8]; bits after the last element are 0
 * aliasing   as depthwise_fused
 * rounding   as depthwise_fused
 * workspace  as depthwise_fused */
void whet_depthwise_masked_f32(float *y, uint8_t *bits, const float *x, const float *w,
                               const float *b, const float *add, float low, float high,
                               const whet_conv2d_t *d) {
    const int32_t row = d->q * d->c;
    const layer_t l = {y, x, w, b, add, low, high, d, row % 8 == 0 ? bits : NULL};
    whet_share_work(forward_rows, &l, d->n * d->p, work_of(d));
    if (l.bits == NULL) whet_take_bits(bits, y, d->n * d->p * row, low, high);
}

/* ---- The gradient of x. */

/* Rows [first, end) of dx. Pixels of a row with the same residue modulo the stride have the same
 * taps, away from the edges. */
static void backward_rows(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_conv2d_t *d = l->d;
    row_t a = {.w = l->w, .c = d->c, .kw = d->kw, .low = -INFINITY, .high = INFINITY};
    a.y_step = d->sw * d->c;
    a.u_step = d->c;
    a.down = -d->q * d->c;
    a.right = -d->c;
    for (int32_t i = first; i < end; i++) {
        const float *image = l->x + i / d->h * d->p * d->q * d->c;
        a.rows = read_by(i % d->h, d->p, d->kh, d->sh, d->ph);
        for (int32_t left = 0; left < whet_min(d->sw, d->w); left++)
            for (int32_t at = left; at < d->w; at += a.count * d->sw) {
                a.cols = read_by(at, d->q, d->kw, d->sw, d->pw);
                a.count = 1;
                if (a.cols.count == (d->kw - 1 - (at + d->pw) % d->sw) / d->sw + 1) /* all */
                    a.count += whet_min(d->q - 1 - a.cols.place, (d->w - 1 - at) / d->sw);
                a.y = l->y + (i * d->w + at) * d->c;
                a.u = image + (a.rows.place * d->q + a.cols.place) * d->c;
                make_row(&a);
            }
    }
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c]
 * aliasing   none
 * rounding   one sum over the outputs that read a pixel
 * workspace  none */
void whet_depthwise_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d) {
    const layer_t l = {.y = dx, .x = dy, .w = w, .d = d};
    if (d->dh == 1 && d->dw == 1) {
        whet_share_work(backward_rows, &l, d->n * d->h, work_of(d));
        return;
    }
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    whet_scatter(dx, dy, w, d);
}

/* ---- The gradient of w. If there are many rows, they are split into PARTS parts, whose sums are
 * computed separately and then combined, CHANNELS at a time. Only the number of rows decides, so
 * that any number of threads gives the same bits. */

enum { CHANNELS = 64, PARTS = 8, MANY = 64, WIDE = 12 };

typedef struct {
    const float *dy, *x;
    const whet_conv2d_t *d;
    int32_t width, parts; /* channels processed */
    float *sums;          /* [parts, kh*kw, ld] */
    int32_t ld;
} slopes_t;

static void rest_along(int32_t n, float *sums, const float *dy, const float *x, int32_t c,
                       int32_t x_step, int32_t k) {
    WHET_COLUMNS(n, along, sums, 0, dy, x, c, x_step, 0, 1, k, j);
}

/* Adds to sums[width] the products of k pixels of dy and of x; four vectors at a time, so that
 * additions are independent. */
static void along_tap(const slopes_t *a, float *sums, const float *dy, const float *x, int32_t k) {
    const int32_t c = a->d->c, x_step = a->d->sw * c;
    int32_t j = 0;
    for (; j + 4 * WHET_LANES <= a->width; j += 4 * WHET_LANES) {
        whet_vec_t s[4];
        for (int32_t v = 0; v < 4; v++) s[v] = whet_load(sums + j + v * WHET_LANES);
        for (int32_t i = 0; i < k; i++)
            for (int32_t v = 0; v < 4; v++)
                s[v] += whet_load(dy + i * c + j + v * WHET_LANES) *
                        whet_load(x + i * x_step + j + v * WHET_LANES);
        for (int32_t v = 0; v < 4; v++) whet_store(sums + j + v * WHET_LANES, s[v]);
    }
    rest_along(a->width - j, sums + j, dy + j, x + j, c, x_step, k);
}

/* Adds the products of row p of image n to the sums of one part. */
static void slopes_of_row(const slopes_t *a, float *sums, int32_t n, int32_t p) {
    const whet_conv2d_t *d = a->d;
    const float *dy = a->dy + (n * d->p + p) * d->q * d->c;
    const int32_t x_step = d->sw * d->c, tap_step = d->dw * d->c;
    const whet_range_t first = whet_outputs(-d->pw, d->w, d->sw, d->q);
    const whet_range_t last = whet_outputs((d->kw - 1) * d->dw - d->pw, d->w, d->sw, d->q);
    const int32_t wide = d->q >= WIDE; /* then pixels with all taps inside are processed together */
    const int32_t from = wide ? first.first : 0;
    const int32_t to = wide && last.end > from ? last.end : from;
    for (int32_t r = 0; r < d->kh; r++) {
        const int32_t row = p * d->sh + r * d->dh - d->ph;
        if (row < 0 || row >= d->h) continue;
        const float *x = a->x + ((n * d->h + row) * d->w - d->pw) * d->c;
        float *out = sums + r * d->kw * a->ld;
        if (to > from)
            WHET_COLUMNS(a->width, along, out, a->ld, dy + from * d->c, x + from * x_step, d->c,
                         x_step, tap_step, d->kw, to - from, j);
        for (int32_t s = 0; s < d->kw; s++, out += a->ld, x += tap_step) {
            const whet_range_t q = whet_outputs(s * d->dw - d->pw, d->w, d->sw, d->q);
            const int32_t before = whet_min(q.end, from), behind = q.first > to ? q.first : to;
            if (before > q.first)
                along_tap(a, out, dy + q.first * d->c, x + q.first * x_step, before - q.first);
            if (q.end > behind)
                along_tap(a, out, dy + behind * d->c, x + behind * x_step, q.end - behind);
        }
    }
}

static void slopes(const void *args, int32_t first, int32_t end) {
    const slopes_t *a = args;
    const whet_conv2d_t *d = a->d;
    const int32_t rows = d->n * d->p, taps = d->kh * d->kw;
    for (int32_t k = first; k < end; k++) {
        const int32_t to = (int32_t)((int64_t)rows * (k + 1) / a->parts);
        float *sums = a->sums + k * taps * a->ld;
        for (int32_t i = 0; i < taps; i++) whet_fill(sums + i * a->ld, a->width, 0.0f);
        for (int32_t i = (int32_t)((int64_t)rows * k / a->parts); i < to; i++)
            slopes_of_row(a, sums, i / d->p, i % d->p);
    }
}

/* formula    dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c]
 * shapes     dw[kh,kw,c], dy[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   sums along q, added row by row, then part by part
 * workspace  100 KB of stack */
void whet_depthwise_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d) {
    const int32_t taps = d->kh * d->kw;
    if (d->n * d->p < MANY || taps > MOST) {
        const slopes_t a = {dy, x, d, d->c, 1, dw, d->c};
        slopes(&a, 0, 1);
        return;
    }
    float sums[PARTS * MOST * CHANNELS];
    for (int32_t c = 0; c < d->c; c += CHANNELS) {
        const int32_t width = whet_min(d->c - c, CHANNELS);
        const slopes_t a = {dy + c, x + c, d, width, PARTS, sums, CHANNELS};
        whet_share_work(slopes, &a, PARTS, work_of(d) / d->c * width);
        for (int32_t k = 0; k < taps; k++) {
            float *out = dw + k * d->c + c;
            memcpy(out, sums + k * CHANNELS, (size_t)width * sizeof *out);
            for (int32_t i = 1; i < PARTS; i++)
                for (int32_t j = 0; j < width; j++) out[j] += sums[(i * taps + k) * CHANNELS + j];
        }
    }
}
