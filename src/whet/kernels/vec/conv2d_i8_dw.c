/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bytes.h"
#include "whet_kernels_i8.h"
#include "whet_threads.h"

/* Some outputs are summed at a time, for one tap and a vector of channels, over all pixels. */

#if WHET_LANES == 16 || defined(__aarch64__)
enum { ROWS = 8 };
#else
enum { ROWS = 4 };
#endif

typedef struct {
    float *dw;
    const float *dy;
    const int8_t *x;
    int32_t zero;
    int32_t first, outputs, blocks; /* outputs of a group from `first` on, blocks of up to ROWS */
    const whet_conv2d_t *d;
} layer_t;

/* One tap of `rows` outputs from o on; `together` = ROWS or 1, and `vectors`, are constants after
 * inlining. */
#define BLOCK(t, vec, unaligned, lanes)                                                            \
    static inline __attribute__((always_inline)) void block_##t(                                   \
        const layer_t *l, const whet_tap_t *tap, int32_t k, int32_t o, int32_t j,                  \
        const int32_t together, const int32_t vectors) {                                           \
        const whet_conv2d_t *d = l->d;                                                             \
        const int32_t ci = d->c / d->groups, g = o / (d->o / d->groups);                           \
        const int32_t ldw = d->kh * d->kw * ci, zero = l->zero, step = d->sw * d->c;               \
        vec sum[ROWS][2];                                                                          \
        for (int32_t i = 0; i < together; i++)                                                     \
            for (int32_t e = 0; e < vectors; e++) sum[i][e] = whet_none_##t();                     \
        for (int32_t n = 0; n < d->n; n++)                                                         \
            for (int32_t p = tap->rows.first; p < tap->rows.end; p++) {                            \
                const float *dy = l->dy + whet_tap_y(d, tap, n, p) + o;                            \
                const int8_t *x = l->x + whet_tap_x(d, tap, n, p) + g * ci + j;                    \
                for (int32_t q = 0; q < tap->width; q++, dy += d->o, x += step) {                  \
                    vec u[2];                                                                      \
                    for (int32_t e = 0; e < vectors; e++)                                          \
                        u[e] = whet_floats_##t(x + e * (lanes), zero);                             \
                    _Pragma("GCC unroll 8") for (int32_t i = 0; i < together; i++)                 \
                        _Pragma("GCC unroll 2") for (int32_t e = 0; e < vectors; e++) sum[i][e] += \
                        dy[i] * u[e];                                                              \
                }                                                                                  \
            }                                                                                      \
        float *to = l->dw + (o - l->first) * ldw + k * ci + j;                                     \
        _Pragma("GCC unroll 8") for (int32_t i = 0; i < together;                                  \
                                     i++, to += ldw) for (int32_t e = 0; e < vectors; e++) *       \
            (unaligned *)(to + e * (lanes)) = sum[i][e];                                           \
    }
BLOCK(v, whet_vec_t, whet_vec_u, WHET_LANES)
BLOCK(h, whet_half_t, whet_half_u, WHET_LANES / 2)
BLOCK(s, float, float, 1)

/* Several outputs, or one. */
#define ALL_CHANNELS(name, together)                                                         \
    static void name(const layer_t *l, const whet_tap_t *tap, int32_t k, int32_t o) {        \
        const int32_t ci = l->d->c / l->d->groups;                                           \
        int32_t j = 0;                                                                       \
        for (; j + 2 * WHET_LANES <= ci; j += 2 * WHET_LANES)                                \
            block_v(l, tap, k, o, j, together, 2);                                           \
        for (; j + WHET_LANES <= ci; j += WHET_LANES) block_v(l, tap, k, o, j, together, 1); \
        for (; j + WHET_LANES / 2 <= ci; j += WHET_LANES / 2)                                \
            block_h(l, tap, k, o, j, together, 1);                                           \
        for (; j < ci; j++) block_s(l, tap, k, o, j, together, 1);                           \
    }
ALL_CHANNELS(several, ROWS)
ALL_CHANNELS(single, 1)

/* Units are blocks of outputs, tap by tap. */
static void run(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_conv2d_t *d = l->d;
    const int32_t all = l->blocks * d->groups;
    for (int32_t i = first; i < end; i++) {
        const whet_tap_t tap = whet_tap(d, i / all);
        const int32_t g = i % all / l->blocks, from = i % l->blocks * ROWS;
        const int32_t count = whet_min(l->outputs - from, ROWS);
        const int32_t o = l->first + g * l->outputs + from;
        if (count == ROWS)
            several(l, &tap, i / all, o);
        else
            for (int32_t k = 0; k < count; k++) single(l, &tap, i / all, o + k);
    }
}

static void share(const layer_t *l) {
    const whet_conv2d_t *d = l->d;
    const int64_t products = (int64_t)d->n * d->p * d->q * l->outputs;
    whet_share_work(run, l, d->kh * d->kw * d->groups * l->blocks, products * d->kh * d->kw * d->c);
}

/* formula    dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero),
 *            padding adds nothing
 * shapes     dw[o,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  none */
void whet_conv2d_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                       const whet_conv2d_t *d) {
    const int32_t outputs = d->o / d->groups;
    const layer_t l = {dw, dy, x, zero, 0, outputs, (outputs + ROWS - 1) / ROWS, d};
    share(&l);
}

/* formula    rows [first, first + count) of conv2d_i8_dw, without groups
 * shapes     dw[count,kh,kw,c], the others as conv2d_i8_dw
 * aliasing   none
 * rounding   as conv2d_i8_dw
 * workspace  none */
void whet_conv2d_i8_dw_rows(float *dw, const float *dy, const int8_t *x, int32_t zero,
                            int32_t first, int32_t count, const whet_conv2d_t *d) {
    const layer_t l = {dw, dy, x, zero, first, count, (count + ROWS - 1) / ROWS, d};
    share(&l);
}
