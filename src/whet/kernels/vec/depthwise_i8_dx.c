/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bytes.h"
#include "whet_columns.h"
#include "whet_kernels_i8.h"
#include "whet_threads.h"

enum { CHANNELS = 64, TAPS = 128 }; /* whose weights are kept as floats */

typedef struct {
    float *dx;
    const float *dy;
    const int8_t *w;
    const whet_conv2d_t *d;
} layer_t;

/* The pixels of dy that reach a pixel of dx, in order, and the taps that take them there. */
typedef struct {
    const float *dy[TAPS];
    int32_t tap[TAPS], count;
} reached_t;

static void find(reached_t *v, const layer_t *l, int32_t i) {
    const whet_conv2d_t *d = l->d;
    const int32_t row = i / d->w % d->h + d->ph, col = i % d->w + d->pw;
    const float *image = l->dy + i / (d->h * d->w) * d->p * d->q * d->c;
    v->count = 0;
    for (int32_t r = d->kh - 1; r >= 0; r--) {
        const int32_t below = row - r * d->dh, p = below / d->sh;
        if (below < 0 || p * d->sh != below || p >= d->p) continue;
        for (int32_t s = d->kw - 1; s >= 0; s--) {
            const int32_t right = col - s * d->dw, q = right / d->sw;
            if (right < 0 || q * d->sw != right || q >= d->q) continue;
            v->dy[v->count] = image + (p * d->q + q) * d->c;
            v->tap[v->count++] = r * d->kw + s;
        }
    }
}

/* dx of channels c + j on, with weights of channels from c on; `vectors` is a constant. */
#define COLUMN(t, vec, unaligned, lanes)                                                          \
    static inline __attribute__((always_inline)) void sum_##t(float *dx, const reached_t *v,      \
                                                              const float *w, int32_t at,         \
                                                              int32_t j, const int32_t vectors) { \
        vec sum[4];                                                                               \
        for (int32_t e = 0; e < vectors; e++) sum[e] = whet_none_##t();                           \
        for (int32_t k = 0; k < v->count; k++) {                                                  \
            const float *u = v->dy[k] + at, *tap = w + v->tap[k] * CHANNELS + j;                  \
            _Pragma("GCC unroll 4") for (int32_t e = 0; e < vectors; e++) sum[e] +=               \
                *(const unaligned *)(u + e * (lanes)) * *(const unaligned *)(tap + e * (lanes));  \
        }                                                                                         \
        _Pragma("GCC unroll 4") for (int32_t e = 0; e < vectors; e++) *                           \
            (unaligned *)(dx + e * (lanes)) = sum[e];                                             \
    }                                                                                             \
    static inline void one_##t(float *dx, const reached_t *v, const float *w, int32_t c,          \
                               int32_t j) {                                                       \
        sum_##t(dx + j, v, w, c + j, j, 1);                                                       \
    }
COLUMN(v, whet_vec_t, whet_vec_u, WHET_LANES)
COLUMN(h, whet_half_t, whet_half_u, WHET_LANES / 2)
COLUMN(s, float, float, 1)

/* Rows [first, end) of all images. */
static void run(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_conv2d_t *d = l->d;
    float w[TAPS * CHANNELS];
    for (int32_t c = 0; c < d->c; c += CHANNELS) {
        const int32_t n = whet_min(d->c - c, CHANNELS);
        for (int32_t k = 0; k < d->kh * d->kw; k++)
            for (int32_t j = 0; j < n; j++) w[k * CHANNELS + j] = (float)l->w[k * d->c + c + j];
        for (int32_t i = first * d->w; i < end * d->w; i++) {
            float *dx = l->dx + i * d->c + c;
            reached_t v;
            find(&v, l, i);
            int32_t from = 0;
            for (; from + 4 * WHET_LANES <= n; from += 4 * WHET_LANES)
                sum_v(dx + from, &v, w, c + from, from, 4);
            WHET_COLUMNS(n - from, one, dx + from, &v, w + from, c + from, j);
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
 * workspace  35 KB of stack */
void whet_depthwise_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    const layer_t l = {dx, dy, w, d};
    if (d->kh * d->kw > TAPS)
        scatter(&l);
    else
        whet_share_work(run, &l, d->n * d->h,
                        (int64_t)d->n * d->p * d->q * d->c * d->kh * d->kw * 2);
}
