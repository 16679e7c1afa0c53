/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bytes.h"
#include "whet_columns.h"
#include "whet_kernels_i8.h"
#include "whet_threads.h"

enum {
    TAPS = 128,
    WEIGHTS = 1 << 14
}; /* taps of a window, and those converted to floats at a
                                         * time */

typedef struct {
    float *dx;
    const float *dy;
    const int8_t *w;
    int32_t wide; /* channels at a time, which share one search for pixels */
    const whet_conv2d_t *d;
} layer_t;

/* The pixels of dy that contribute to a pixel of dx, in order, and the positions of their weights.
 * Advancing by the stride advances all of them by one, as long as none leaves dy: `run` times. */
typedef struct {
    const float *dy[TAPS];
    int32_t tap[TAPS], count, run;
} reached_t;

static void find(reached_t *v, const layer_t *l, int32_t image, int32_t row, int32_t col) {
    const whet_conv2d_t *d = l->d;
    int32_t all = 1, last = 0, columns = 0, at[TAPS], tap[TAPS]; /* of dy, and of the window */
    for (int32_t s = d->kw - 1; s >= 0; s--) {
        const int32_t right = col + d->pw - s * d->dw, q = right / d->sw;
        if (q * d->sw != right) continue;
        all &= right >= 0;
        if (right < 0 || q >= d->q) continue;
        last = q > last ? q : last;
        at[columns] = q * d->c;
        tap[columns++] = s;
    }
    v->count = 0;
    for (int32_t r = d->kh - 1; r >= 0; r--) {
        const int32_t below = row + d->ph - r * d->dh, p = below / d->sh;
        if (below < 0 || p * d->sh != below || p >= d->p) continue;
        const float *line = l->dy + (image * d->p + p) * d->q * d->c;
        for (int32_t k = 0; k < columns; k++) {
            v->dy[v->count] = line + at[k];
            v->tap[v->count++] = (r * d->kw + tap[k]) * l->wide;
        }
    }
    v->run = all ? whet_min(d->q - last, (d->w - 1 - col) / d->sw + 1) : 1;
}

/* dx of `pixels` pixels, for channels c + j on, with weights of channels from c on; the last two
 * arguments are constants after inlining. */
#define COLUMN(t, vec, unaligned, lanes)                                                   \
    static inline __attribute__((always_inline)) void sum_##t(                             \
        float *dx, const reached_t *v, const float *w, int32_t at, const whet_conv2d_t *d, \
        const int32_t pixels, const int32_t vectors) {                                     \
        vec sum[4][4];                                                                     \
        const int32_t count = v->count, c = d->c, step = d->sw * d->c;                     \
        _Pragma("GCC unroll 4") for (int32_t i = 0; i < pixels; i++)                       \
            _Pragma("GCC unroll 4") for (int32_t e = 0; e < vectors; e++) sum[i][e] =      \
                whet_none_##t();                                                           \
        for (int32_t k = 0; k < count; k++) {                                              \
            const float *u = v->dy[k] + at, *tap = w + v->tap[k];                          \
            vec by[4];                                                                     \
            _Pragma("GCC unroll 4") for (int32_t e = 0; e < vectors; e++) by[e] =          \
                *(const unaligned *)(tap + e * (lanes));                                   \
            _Pragma("GCC unroll 4") for (int32_t i = 0; i < pixels; i++)                   \
                _Pragma("GCC unroll 4") for (int32_t e = 0; e < vectors; e++) sum[i][e] += \
                *(const unaligned *)(u + i * c + e * (lanes)) * by[e];                     \
        }                                                                                  \
        _Pragma("GCC unroll 4") for (int32_t i = 0; i < pixels; i++)                       \
                _Pragma("GCC unroll 4") for (int32_t e = 0; e < vectors; e++) *            \
            (unaligned *)(dx + i * step + e * (lanes)) = sum[i][e];                        \
    }                                                                                      \
    static inline void one_##t(float *dx, const reached_t *v, const float *w, int32_t at,  \
                               const whet_conv2d_t *d, int32_t j) {                        \
        sum_##t(dx + j, v, w + j, at + j, d, 1, 1);                                        \
    }                                                                                      \
    static inline void four_##t(float *dx, const reached_t *v, const float *w, int32_t at, \
                                const whet_conv2d_t *d, int32_t j) {                       \
        sum_##t(dx + j, v, w + j, at + j, d, 4, 1);                                        \
    }
COLUMN(v, whet_vec_t, whet_vec_u, WHET_LANES)
COLUMN(h, whet_half_t, whet_half_u, WHET_LANES / 2)
COLUMN(s, float, float, 1)

/* `run` pixels of dx from (row, col) on, `n` channels from c on. */
static void make_run(const layer_t *l, const reached_t *v, const float *w, float *dx, int32_t c,
                     int32_t n, int32_t run) {
    const whet_conv2d_t *d = l->d;
    const int32_t step = d->sw * d->c;
    int32_t i = 0;
    for (; i + 4 <= run; i += 4, dx += 4 * step) {
        int32_t from = 0;
        for (; from + 2 * WHET_LANES <= n; from += 2 * WHET_LANES)
            sum_v(dx + from, v, w + from, i * d->c + c + from, d, 4, 2);
        WHET_COLUMNS(n - from, four, dx + from, v, w + from, i * d->c + c + from, d, j);
    }
    for (; i < run; i++, dx += step) {
        int32_t from = 0;
        for (; from + 4 * WHET_LANES <= n; from += 4 * WHET_LANES)
            sum_v(dx + from, v, w + from, i * d->c + c + from, d, 1, 4);
        WHET_COLUMNS(n - from, one, dx + from, v, w + from, i * d->c + c + from, d, j);
    }
}

/* Rows [first, end) of all images. */
static void run_rows(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_conv2d_t *d = l->d;
    float w[WEIGHTS];
    for (int32_t c = 0; c < d->c; c += l->wide) {
        const int32_t n = whet_min(d->c - c, l->wide);
        for (int32_t k = 0; k < d->kh * d->kw; k++)
            for (int32_t j = 0; j < n; j++) w[k * l->wide + j] = (float)l->w[k * d->c + c + j];
        for (int32_t i = first; i < end; i++)
            for (int32_t left = 0; left < whet_min(d->sw, d->w); left++)
                for (int32_t col = left; col < d->w;) {
                    reached_t v;
                    find(&v, l, i / d->h, i % d->h, col);
                    make_run(l, &v, w, l->dx + (i * d->w + col) * d->c + c, c, n, v.run);
                    col += v.run * d->sw;
                }
    }
}

/* Windows of many taps: every output adds to the pixels it reads. */
static void scatter(const layer_t *l) {
    const whet_conv2d_t *d = l->d;
    whet_fill(l->dx, d->n * d->h * d->w * d->c, 0.0f);
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        float *image = l->dx + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t k = 0; k < rows.taps * cols.taps; k++) {
            const int32_t r = k / cols.taps, s = k % cols.taps;
            const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
            const int8_t *w = l->w + ((rows.cut + r) * d->kw + cols.cut + s) * d->c;
            const float *u = l->dy + i * d->c;
            for (int32_t c = 0; c < d->c; c++) image[at * d->c + c] += u[c] * (float)w[c];
        }
    }
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c]
 * aliasing   none
 * rounding   one sum over the pixels of dy, row by row; every product and every sum is rounded
 * workspace  70 KB of stack */
void whet_depthwise_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    const int32_t vectors = WEIGHTS / (d->kh * d->kw) / WHET_LANES;
    const layer_t l = {dx, dy, w, whet_min(d->c, vectors * WHET_LANES), d};
    if (d->kh * d->kw > TAPS)
        scatter(&l);
    else
        whet_share_work(run_rows, &l, d->n * d->h,
                        (int64_t)d->n * d->p * d->q * d->c * d->kh * d->kw * 2);
}
