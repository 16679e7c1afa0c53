/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bytes.h"
#include "whet_kernels_i8.h"
#include "whet_threads.h"

/* Some pixels of dx are summed at a time, for all channels, vector by vector. A missing pixel of dy
 * is replaced by zeros, which do not change a sum: it starts at 0 and is never -0. */

/* Pixels and vectors of channels summed at a time. */
enum { ROWS = WHET_APART_ROWS, VECTORS = WHET_APART_VECTORS };
enum { DEPTH = 256, TAPS = 64 };

static const float zeros[DEPTH];

typedef struct {
    float *dx;
    const float *dy;
    const int8_t *w;
    const whet_conv2d_t *d;
} layer_t;

/* Pixels of dx of one residue modulo the stride: they have the same taps. */
typedef struct {
    int32_t top, left, high, wide, count;
} class_t;

static class_t class_of(const whet_conv2d_t *d, int32_t k) {
    class_t v = {k / d->sw, k % d->sw, 0, 0, 0};
    v.high = v.top < d->h ? (d->h - v.top - 1) / d->sh + 1 : 0;
    v.wide = v.left < d->w ? (d->w - v.left - 1) / d->sw + 1 : 0;
    v.count = d->n * v.high * v.wide;
    return v;
}

/* Positions of some pixels of dx, and what is added to them: for every tap that contributes, its
 * position in w and the pixels of dy. */
typedef struct {
    int32_t image[ROWS], row[ROWS], col[ROWS];
    const float *at[TAPS][ROWS];
    int32_t tap[TAPS], count;
} pixels_t;

/* at[ROWS] = rows of dy for one tap, or NULL; 0 if there is none at all. */
static int32_t find(const float **at, const layer_t *l, const pixels_t *v, int32_t r, int32_t s) {
    const whet_conv2d_t *d = l->d;
    int32_t found = 0;
    for (int32_t k = 0; k < ROWS; k++) {
        const int32_t below = v->row[k] + d->ph - r * d->dh;
        const int32_t right = v->col[k] + d->pw - s * d->dw;
        const int32_t p = d->sh == 1 ? below : below / d->sh;
        const int32_t q = d->sw == 1 ? right : right / d->sw;
        at[k] = NULL;
        if (below < 0 || right < 0 || p * d->sh != below || q * d->sw != right) continue;
        if (p >= d->p || q >= d->q) continue;
        at[k] = l->dy + ((v->image[k] * d->p + p) * d->q + q) * d->o;
        found = 1;
    }
    return found;
}

/* The next taps, from `tap` down; returns the tap reached. */
static int32_t find_all(pixels_t *v, const layer_t *l, int32_t tap) {
    v->count = 0;
    for (; tap >= 0 && v->count < TAPS; tap--)
        if (find(v->at[v->count], l, v, tap / l->d->kw, tap % l->d->kw)) v->tap[v->count++] = tap;
    return tap;
}

/* Sums of ROWS pixels, from channel j of a group on: a vector (v), half of one (h) or a number (s);
 * added to dx if `onto`. Weights are converted to floats one step before they are used. `vectors`
 * is a constant after inlining. */
#define BLOCK(t, vec, unaligned, lanes)                                                            \
    static inline __attribute__((always_inline)) void block_##t(                                   \
        const layer_t *l, const pixels_t *v, int32_t rows, int32_t onto, int32_t g, int32_t j,     \
        const int32_t vectors) {                                                                   \
        const whet_conv2d_t *d = l->d;                                                             \
        const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;      \
        float *dx[ROWS];                                                                           \
        vec sum[ROWS][VECTORS];                                                                    \
        _Pragma("GCC unroll 16") for (int32_t k = 0; k < ROWS; k++) {                              \
            const int32_t pixel = (v->image[k] * d->h + v->row[k]) * d->w + v->col[k];             \
            dx[k] = l->dx + pixel * d->c + g * ci + j;                                             \
            _Pragma("GCC unroll 2") for (int32_t e = 0; e < vectors; e++) {                        \
                sum[k][e] = whet_none_##t();                                                       \
                if (onto) sum[k][e] = *(const unaligned *)(dx[k] + e * (lanes));                   \
            }                                                                                      \
        }                                                                                          \
        for (int32_t i = 0; i < v->count; i++)                                                     \
            for (int32_t first = 0; first < co; first += DEPTH) {                                  \
                const int8_t *w = l->w + (g * co + first) * ldw + v->tap[i] * ci + j;              \
                const int32_t depth = whet_min(co - first, DEPTH);                                 \
                const float *row[ROWS];                                                            \
                vec next[VECTORS];                                                                 \
                _Pragma("GCC unroll 16") for (int32_t k = 0; k < ROWS; k++) row[k] =               \
                    v->at[i][k] ? v->at[i][k] + g * co + first : zeros;                            \
                for (int32_t e = 0; e < vectors; e++)                                              \
                    next[e] = whet_floats_##t(w + e * (lanes), 0);                                 \
                for (int32_t o = 0; o < depth; o++) {                                              \
                    vec u[VECTORS];                                                                \
                    if (o + 1 < depth) w += ldw;                                                   \
                    for (int32_t e = 0; e < vectors; e++) {                                        \
                        u[e] = next[e];                                                            \
                        next[e] = whet_floats_##t(w + e * (lanes), 0);                             \
                    }                                                                              \
                    _Pragma("GCC unroll 16") for (int32_t k = 0; k < ROWS; k++)                    \
                        _Pragma("GCC unroll 2") for (int32_t e = 0; e < vectors; e++) sum[k][e] += \
                        row[k][o] * u[e];                                                          \
                }                                                                                  \
            }                                                                                      \
        _Pragma("GCC unroll 16") for (int32_t k = 0; k < ROWS; k++) {                              \
            if (k >= rows) break;                                                                  \
            for (int32_t e = 0; e < vectors; e++) *(unaligned *)(dx[k] + e * (lanes)) = sum[k][e]; \
        }                                                                                          \
    }
BLOCK(v, whet_vec_t, whet_vec_u, WHET_LANES)
BLOCK(h, whet_half_t, whet_half_u, WHET_LANES / 2)
BLOCK(s, float, float, 1)

static __attribute__((noinline)) void make_group(const layer_t *l, const pixels_t *v, int32_t rows,
                                                 int32_t onto, int32_t g) {
    const int32_t ci = l->d->c / l->d->groups;
    int32_t j = 0;
    for (; j + VECTORS * WHET_LANES <= ci; j += VECTORS * WHET_LANES)
        block_v(l, v, rows, onto, g, j, VECTORS);
    for (; j + WHET_LANES <= ci; j += WHET_LANES) block_v(l, v, rows, onto, g, j, 1);
    for (; j + WHET_LANES / 2 <= ci; j += WHET_LANES / 2) block_h(l, v, rows, onto, g, j, 1);
    for (; j < ci; j++) block_s(l, v, rows, onto, g, j, 1);
}

static int32_t blocks_of(const class_t *a) { return (a->count + ROWS - 1) / ROWS; }

/* Blocks [first, end) where a pixel of dx depends on a single pixel of dy. */
static void run_pixels(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_conv2d_t *d = l->d;
    pixels_t v = {.count = 1};
    for (int32_t i = first; i < end; i++) {
        const int32_t rows = whet_min(d->n * d->h * d->w - i * ROWS, ROWS);
        for (int32_t r = 0; r < ROWS; r++) {
            v.col[r] = i * ROWS + whet_min(r, rows - 1); /* counted from the first block */
            v.at[0][r] = l->dy + v.col[r] * d->o;
        }
        for (int32_t g = 0; g < d->groups; g++) make_group(l, &v, rows, 0, g);
    }
}

/* Blocks [first, end) of all classes, in sequence. */
static void run(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_conv2d_t *d = l->d;
    for (int32_t k = 0, before = 0; k < d->sh * d->sw; k++) {
        const class_t a = class_of(d, k);
        const int32_t to = whet_min(end - before, blocks_of(&a));
        for (int32_t i = first > before ? first - before : 0; i < to; i++) {
            const int32_t rows = whet_min(a.count - i * ROWS, ROWS);
            pixels_t v;
            for (int32_t r = 0; r < ROWS; r++) {
                const int32_t at = i * ROWS + whet_min(r, rows - 1);
                v.image[r] = at / (a.high * a.wide);
                v.row[r] = a.top + at / a.wide % a.high * d->sh;
                v.col[r] = a.left + at % a.wide * d->sw;
            }
            for (int32_t tap = d->kh * d->kw - 1, onto = 0; tap >= 0 || !onto; onto = 1) {
                tap = find_all(&v, l, tap);
                for (int32_t g = 0; g < d->groups; g++) make_group(l, &v, rows, onto, g);
            }
        }
        before += blocks_of(&a);
    }
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] += dy[n,p,q,o] * w[o,r,s,i], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,o], w[o,kh,kw,c/groups]
 * aliasing   none
 * rounding   one sum, over the pixels of dy row by row and of each over its channels; every product
 *            and every sum is rounded
 * workspace  none */
void whet_conv2d_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    const layer_t l = {dx, dy, w, d};
    const int64_t work = (int64_t)d->n * d->p * d->q * d->o * d->kh * d->kw * (d->c / d->groups);
    const int32_t alone = d->kh * d->kw * d->sh * d->sw == 1 && d->ph == 0 && d->pw == 0 &&
                          d->p == d->h && d->q == d->w;
    int32_t blocks = 0;
    for (int32_t k = 0; k < d->sh * d->sw; k++) {
        const class_t a = class_of(d, k);
        blocks += blocks_of(&a);
    }
    whet_share_work(alone ? run_pixels : run, &l, blocks, work);
}
