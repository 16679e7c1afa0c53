/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bytes.h"
#include "whet_kernels_i8.h"
#include "whet_threads.h"

/* The taps of a row of the window are summed together, for a vector of channels. */

enum { WIDE = 7 }; /* taps summed together */

typedef struct {
    float *dw;
    const float *dy;
    const int8_t *x;
    int32_t zero;
    const whet_conv2d_t *d;
} layer_t;

/* Adds the products of pixel q of a row to sum[taps], those inside the image only; `taps` is a
 * constant. */
#define COLUMN(t, vec, unaligned)                                                                  \
    static inline __attribute__((always_inline)) void edge_##t(                                    \
        vec *sum, const layer_t *l, const float *dy, const int8_t *x, int32_t q, int32_t s,        \
        const int32_t taps) {                                                                      \
        const whet_conv2d_t *d = l->d;                                                             \
        const vec g = *(const unaligned *)(dy + q * d->c);                                         \
        _Pragma("GCC unroll 7") for (int32_t e = 0; e < taps; e++) {                               \
            const int32_t col = q * d->sw + (s + e) * d->dw - d->pw;                               \
            if (col >= 0 && col < d->w) sum[e] += g * whet_floats_##t(x + col * d->c, l->zero);    \
        }                                                                                          \
    }                                                                                              \
    /* dw of taps (r,s), (r,s+1), ... for the channels from c on. */                               \
    static inline __attribute__((always_inline)) void taps_##t(                                    \
        const layer_t *l, int32_t r, int32_t s, int32_t c, const int32_t taps) {                   \
        const whet_conv2d_t *d = l->d;                                                             \
        const whet_range_t low = whet_outputs(s * d->dw - d->pw, d->w, d->sw, d->q);               \
        const whet_range_t high = whet_outputs((s + taps - 1) * d->dw - d->pw, d->w, d->sw, d->q); \
        const int32_t from = whet_min(low.first, d->q);                                            \
        const int32_t to = high.end > from ? high.end : from;                                      \
        const int32_t x_step = d->sw * d->c, tap_step = d->dw * d->c, zero = l->zero;              \
        vec sum[WIDE];                                                                             \
        _Pragma("GCC unroll 7") for (int32_t e = 0; e < taps; e++) sum[e] = whet_none_##t();       \
        for (int32_t i = 0; i < d->n * d->p; i++) {                                                \
            const int32_t row = i % d->p * d->sh + r * d->dh - d->ph;                              \
            if (row < 0 || row >= d->h) continue;                                                  \
            const float *dy = l->dy + i * d->q * d->c + c;                                         \
            const int8_t *x = l->x + (i / d->p * d->h + row) * d->w * d->c + c;                    \
            for (int32_t q = 0; q < from; q++) edge_##t(sum, l, dy, x, q, s, taps);                \
            const int8_t *u = x + from * x_step + (s * d->dw - d->pw) * d->c;                      \
            for (int32_t q = from; q < to; q++, u += x_step) {                                     \
                const vec g = *(const unaligned *)(dy + q * d->c);                                 \
                _Pragma("GCC unroll 7") for (int32_t e = 0; e < taps; e++) sum[e] +=               \
                    g * whet_floats_##t(u + e * tap_step, zero);                                   \
            }                                                                                      \
            for (int32_t q = to; q < d->q; q++) edge_##t(sum, l, dy, x, q, s, taps);               \
        }                                                                                          \
        _Pragma("GCC unroll 7") for (int32_t e = 0; e < taps; e++) *                               \
            (unaligned *)(l->dw + (r * d->kw + s + e) * d->c + c) = sum[e];                        \
    }                                                                                              \
    static void column_##t(const layer_t *l, int32_t c) {                                          \
        for (int32_t r = 0; r < l->d->kh; r++) {                                                   \
            int32_t s = 0;                                                                         \
            for (; s + 7 <= l->d->kw; s += 7) taps_##t(l, r, s, c, 7);                             \
            for (; s + 5 <= l->d->kw; s += 5) taps_##t(l, r, s, c, 5);                             \
            for (; s + 3 <= l->d->kw; s += 3) taps_##t(l, r, s, c, 3);                             \
            for (; s < l->d->kw; s++) taps_##t(l, r, s, c, 1);                                     \
        }                                                                                          \
    }
COLUMN(v, whet_vec_t, whet_vec_u)
COLUMN(h, whet_half_t, whet_half_u)
COLUMN(s, float, float)

/* Units are of WHET_LANES channels. */
static void run(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    for (int32_t i = first; i < end; i++) {
        const int32_t to = whet_min((i + 1) * WHET_LANES, l->d->c);
        int32_t c = i * WHET_LANES;
        for (; c + WHET_LANES <= to; c += WHET_LANES) column_v(l, c);
        for (; c + WHET_LANES / 2 <= to; c += WHET_LANES / 2) column_h(l, c);
        for (; c < to; c++) column_s(l, c);
    }
}

/* formula    dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] - zero),
 *            padding adds nothing
 * shapes     dw[kh,kw,c], dy[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  none */
void whet_depthwise_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d) {
    const layer_t l = {dw, dy, x, zero, d};
    whet_share_work(run, &l, (d->c + WHET_LANES - 1) / WHET_LANES,
                    (int64_t)d->n * d->p * d->q * d->c * d->kh * d->kw * 2);
}
