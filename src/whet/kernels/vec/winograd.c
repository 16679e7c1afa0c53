/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_columns.h"
#include "whet_threads.h"

/* Convolutions with 3x3 windows of stride 1, with Winograd's method [1]: 2x2 outputs
 * at a time from 4x4 inputs, with 16 products for each pair of channels where 36 would be needed.
 *     y = A' [(G w G') * (B' x B)] A      dw = G' [(A dy A') * (B' x B)] G
 *         | 1  1  1  0 |       | 1  0 -1  0 |      | 1   0   0  |
 *    A' = | 0  1 -1 -1 |  B' = | 0  1  1  0 |  G = | 1/2 1/2 1/2|
 *                              | 0 -1  1  0 |      | 1/2-1/2 1/2|
 *                              | 0  1  0 -1 |      | 0   0   1  |
 * The products are 16 matrix products over tiles, TILES of them at a time.
 * [1] Lavin and Gray, Fast Algorithms for Convolutional Neural Networks, 2015. */
enum { TILES = 192 };

typedef struct {
    const whet_conv2d_t *d;
    int32_t down, right, first, count; /* tiles of an image; those being processed */
    const float *x, *w, *bias, *add;
    float *y;
    float low, high;
    int32_t flip;     /* windows are rotated by 180 degrees */
    float *u, *v, *m; /* [16,o,c] of w, [16,tiles,c] of x, [16,tiles,o] of y */
} tiles_t;

/* Transforms of one column of channels: 4x4 inputs, 2x2 outputs or 3x3 weights at a time. */
#define COLUMN(t, vec, unaligned)                                                                 \
    /* to[16] = B' from[16] B; NULL represents zeros */                                           \
    static inline void input_##t(float *to, int32_t step, const float *const *from, int32_t j) {  \
        vec a[4][4], b[4][4];                                                                     \
        for (int32_t i = 0; i < 16; i++)                                                          \
            if (from[i] == NULL)                                                                  \
                a[i / 4][i % 4] = (vec){0.0f};                                                    \
            else                                                                                  \
                a[i / 4][i % 4] = *(const unaligned *)(from[i] + j);                              \
        for (int32_t i = 0; i < 4; i++) {                                                         \
            b[0][i] = a[0][i] - a[2][i];                                                          \
            b[1][i] = a[1][i] + a[2][i];                                                          \
            b[2][i] = a[2][i] - a[1][i];                                                          \
            b[3][i] = a[1][i] - a[3][i];                                                          \
        }                                                                                         \
        for (int32_t i = 0; i < 4; i++, to += 4 * (ptrdiff_t)step) {                              \
            *(unaligned *)(to + j) = b[i][0] - b[i][2];                                           \
            *(unaligned *)(to + step + j) = b[i][1] + b[i][2];                                    \
            *(unaligned *)(to + 2 * step + j) = b[i][2] - b[i][1];                                \
            *(unaligned *)(to + 3 * step + j) = b[i][1] - b[i][3];                                \
        }                                                                                         \
    }                                                                                             \
    /* to[4] = A' from[16] A */                                                                   \
    static inline void output_##t(float *to, const float *from, int32_t step, int32_t j,          \
                                  int32_t width) {                                                \
        vec a[4][4], b[2][4];                                                                     \
        for (int32_t i = 0; i < 16; i++)                                                          \
            a[i / 4][i % 4] = *(const unaligned *)(from + i * (ptrdiff_t)step + j);               \
        for (int32_t i = 0; i < 4; i++) {                                                         \
            b[0][i] = a[0][i] + a[1][i] + a[2][i];                                                \
            b[1][i] = a[1][i] - a[2][i] - a[3][i];                                                \
        }                                                                                         \
        for (int32_t i = 0; i < 2; i++) {                                                         \
            *(unaligned *)(to + (2 * i) * width + j) = b[i][0] + b[i][1] + b[i][2];               \
            *(unaligned *)(to + (2 * i + 1) * width + j) = b[i][1] - b[i][2] - b[i][3];           \
        }                                                                                         \
    }                                                                                             \
    /* to[16] = A from[4] A' */                                                                   \
    static inline void spread_##t(float *to, int32_t step, const float *const *from, int32_t j) { \
        vec a[2][2], b[4][2];                                                                     \
        for (int32_t i = 0; i < 4; i++)                                                           \
            if (from[i] == NULL)                                                                  \
                a[i / 2][i % 2] = (vec){0.0f};                                                    \
            else                                                                                  \
                a[i / 2][i % 2] = *(const unaligned *)(from[i] + j);                              \
        for (int32_t i = 0; i < 2; i++) {                                                         \
            b[0][i] = a[0][i];                                                                    \
            b[1][i] = a[0][i] + a[1][i];                                                          \
            b[2][i] = a[0][i] - a[1][i];                                                          \
            b[3][i] = -a[1][i];                                                                   \
        }                                                                                         \
        for (int32_t i = 0; i < 4; i++, to += 4 * (ptrdiff_t)step) {                              \
            *(unaligned *)(to + j) = b[i][0];                                                     \
            *(unaligned *)(to + step + j) = b[i][0] + b[i][1];                                    \
            *(unaligned *)(to + 2 * step + j) = b[i][0] - b[i][1];                                \
            *(unaligned *)(to + 3 * step + j) = -b[i][1];                                         \
        }                                                                                         \
    }                                                                                             \
    /* to[16] = G from[9] G' */                                                                   \
    static inline void weight_##t(float *to, ptrdiff_t step, const float *from, int32_t c,        \
                                  int32_t flip, int32_t j) {                                      \
        vec a[3][3], b[4][3];                                                                     \
        for (int32_t i = 0; i < 9; i++)                                                           \
            a[i / 3][i % 3] = *(const unaligned *)(from + (flip ? 8 - i : i) * c + j);            \
        for (int32_t i = 0; i < 3; i++) {                                                         \
            b[0][i] = a[0][i];                                                                    \
            b[1][i] = 0.5f * (a[0][i] + a[1][i] + a[2][i]);                                       \
            b[2][i] = 0.5f * (a[0][i] - a[1][i] + a[2][i]);                                       \
            b[3][i] = a[2][i];                                                                    \
        }                                                                                         \
        for (int32_t i = 0; i < 4; i++, to += 4 * step) {                                         \
            *(unaligned *)(to + j) = b[i][0];                                                     \
            *(unaligned *)(to + step + j) = 0.5f * (b[i][0] + b[i][1] + b[i][2]);                 \
            *(unaligned *)(to + 2 * step + j) = 0.5f * (b[i][0] - b[i][1] + b[i][2]);             \
            *(unaligned *)(to + 3 * step + j) = b[i][2];                                          \
        }                                                                                         \
    }                                                                                             \
    /* to[9] = G' from[16] G */                                                                   \
    static inline void slope_##t(float *to, int32_t c, const float *from, ptrdiff_t step,         \
                                 int32_t j) {                                                     \
        vec a[4][4], b[3][4];                                                                     \
        for (int32_t i = 0; i < 16; i++)                                                          \
            a[i / 4][i % 4] = *(const unaligned *)(from + i * step + j);                          \
        for (int32_t i = 0; i < 4; i++) {                                                         \
            b[0][i] = a[0][i] + 0.5f * (a[1][i] + a[2][i]);                                       \
            b[1][i] = 0.5f * (a[1][i] - a[2][i]);                                                 \
            b[2][i] = 0.5f * (a[1][i] + a[2][i]) + a[3][i];                                       \
        }                                                                                         \
        for (int32_t i = 0; i < 3; i++, to += 3 * c) {                                            \
            *(unaligned *)(to + j) = b[i][0] + 0.5f * (b[i][1] + b[i][2]);                        \
            *(unaligned *)(to + c + j) = 0.5f * (b[i][1] - b[i][2]);                              \
            *(unaligned *)(to + 2 * c + j) = 0.5f * (b[i][1] + b[i][2]) + b[i][3];                \
        }                                                                                         \
    }

COLUMN(v, whet_vec_t, whet_vec_u)
COLUMN(h, whet_half_t, whet_half_u)
COLUMN(s, whet_one_t, whet_one_t)

/* ---- The five transforms, for some of the current tiles or weights. */

/* Pointers to size x size pixels from (row, col) on, NULL outside. */
static void pixels(const float **at, const float *image, int32_t row, int32_t col, int32_t size,
                   int32_t h, int32_t w, int32_t c) {
    for (int32_t i = 0; i < size * size; i++) {
        const int32_t r = row + i / size, s = col + i % size;
        at[i] = r >= 0 && r < h && s >= 0 && s < w ? image + (r * w + s) * c : NULL;
    }
}

static void inputs(const void *args, int32_t first, int32_t end) {
    const tiles_t *a = args;
    const whet_conv2d_t *d = a->d;
    for (int32_t i = first; i < end; i++) {
        const int32_t tile = a->first + i, row = tile / a->right % a->down, col = tile % a->right;
        const float *image = a->x + tile / a->right / a->down * d->h * d->w * d->c, *at[16];
        pixels(at, image, 2 * row - d->ph, 2 * col - d->pw, 4, d->h, d->w, d->c);
        WHET_COLUMNS(d->c, input, a->v + i * d->c, a->count * d->c, at, j);
    }
}

/* The gradient of y, for that of w: passed in `add` of the arguments. */
static void spreads(const void *args, int32_t first, int32_t end) {
    const tiles_t *a = args;
    const whet_conv2d_t *d = a->d;
    for (int32_t i = first; i < end; i++) {
        const int32_t tile = a->first + i, row = tile / a->right % a->down, col = tile % a->right;
        const float *image = a->add + tile / a->right / a->down * d->p * d->q * d->o, *at[4];
        pixels(at, image, 2 * row, 2 * col, 2, d->p, d->q, d->o);
        WHET_COLUMNS(d->o, spread, a->m + i * d->o, a->count * d->o, at, j);
    }
}

/* One pixel: y = min(max(x + bias + add, low), high) */
static void finish(const tiles_t *a, float *y, const float *x, const float *add, int32_t n) {
    int32_t j = 0;
    for (; j + WHET_LANES <= n; j += WHET_LANES) {
        whet_vec_t v = whet_load(x + j);
        if (a->bias) v += whet_load(a->bias + j);
        if (add) v += whet_load(add + j);
        whet_store(y + j, whet_clip_vec(v, a->low, a->high));
    }
    for (; j < n; j++) {
        const float v = x[j] + (a->bias ? a->bias[j] : 0.0f);
        y[j] = whet_clip(add ? v + add[j] : v, a->low, a->high);
    }
}

enum { AT_ONCE = 256 }; /* channels of a result */

static void outputs(const void *args, int32_t first, int32_t end) {
    const tiles_t *a = args;
    const whet_conv2d_t *d = a->d;
    float y[4 * AT_ONCE];
    for (int32_t i = first; i < end; i++)
        for (int32_t c = 0; c < d->o; c += AT_ONCE) {
            const int32_t n = whet_min(d->o - c, AT_ONCE), tile = a->first + i;
            const int32_t row = 2 * (tile / a->right % a->down), col = 2 * (tile % a->right);
            const int32_t image = tile / a->right / a->down * d->p * d->q;
            WHET_COLUMNS(n, output, y, a->m + i * d->o + c, a->count * d->o, j, AT_ONCE);
            for (int32_t k = 0; k < 4; k++) {
                const int32_t p = row + k / 2, q = col + k % 2;
                const int32_t to = (image + p * d->q + q) * d->o + c;
                tiles_t own = *a;
                own.bias = a->bias ? a->bias + c : NULL;
                if (p < d->p && q < d->q)
                    finish(&own, a->y + to, y + k * AT_ONCE, a->add ? a->add + to : NULL, n);
            }
        }
}

/* u[16,o,c] of w[o,3,3,c], where o are the rows of w, whatever it is used for. */
static void weights(const void *args, int32_t first, int32_t end) {
    const tiles_t *a = args;
    const int32_t c = a->flip ? a->d->o : a->d->c, all = a->d->c * a->d->o;
    for (int32_t o = first; o < end; o++)
        WHET_COLUMNS(c, weight, a->u + o * c, all, a->w + o * 9 * c, c, a->flip, j);
}

static void slopes(const void *args, int32_t first, int32_t end) {
    const tiles_t *a = args;
    const int32_t c = a->d->c, all = c * a->d->o;
    for (int32_t o = first; o < end; o++)
        WHET_COLUMNS(c, slope, a->y + o * 9 * c, c, a->u + o * c, all, j);
}

/* ---- The 16 products. */

static void products(const void *args, int32_t first, int32_t end) {
    const tiles_t *a = args;
    const int32_t c = a->d->c, o = a->d->o;
    for (int32_t i = first; i < end; i++) {
        whet_product_t p = {.rows = a->count, .columns = o, .depth = c, .b = a->u + i * c * o};
        p.bl = a->flip ? o : 1;
        p.bj = a->flip ? 1 : c;
        p.low = -INFINITY;
        p.high = INFINITY;
        whet_dense_product(a->m + i * a->count * o, o, a->v + i * a->count * c, c, &p);
    }
}

static void outer_products(const void *args, int32_t first, int32_t end) {
    const tiles_t *a = args;
    const int32_t c = a->d->c, o = a->d->o;
    for (int32_t i = first; i < end; i++)
        whet_dense_outer(a->u + i * c * o, a->m + i * a->count * o, a->v + i * a->count * c, o, c,
                         a->count, a->first > 0);
}

static tiles_t tiles_of(const whet_conv2d_t *d, float *workspace) {
    tiles_t a = {.d = d, .down = (d->p + 1) / 2, .right = (d->q + 1) / 2, .u = workspace};
    const int32_t most = whet_min(d->n * a.down * a.right, TILES);
    a.v = a.u + 16 * d->c * d->o;
    a.m = a.v + 16 * most * d->c;
    a.low = -INFINITY;
    a.high = INFINITY;
    return a;
}

/* y = conv(x, u), where u is the transformed w. */
static void convolve(tiles_t *a) {
    const whet_conv2d_t *d = a->d;
    const int32_t all = d->n * a->down * a->right;
    for (; a->first < all; a->first += a->count) {
        a->count = whet_min(all - a->first, TILES);
        whet_share_work(inputs, a, a->count, (int64_t)a->count * d->c * 32);
        whet_share_work(products, a, 16, (int64_t)a->count * d->c * d->o * 16);
        whet_share_work(outputs, a, a->count, (int64_t)a->count * d->o * 32);
    }
}

/* formula    as conv2d_fused, for 3x3 windows of stride 1, without groups or dilation
 * shapes     as conv2d_fused
 * aliasing   y may be add
 * rounding   that of Winograd's method, about twice that of the plain sums
 * workspace  16 * (c * o + min(tiles, TILES) * (c + o)) floats, and 80 KB of stack */
void whet_conv2d_winograd_f32(float *y, const float *x, const float *w, const float *b,
                              const float *add, float low, float high, const whet_conv2d_t *d,
                              float *workspace) {
    tiles_t a = tiles_of(d, workspace);
    a.x = x;
    a.w = w;
    a.y = y;
    a.bias = b;
    a.add = add;
    a.low = low;
    a.high = high;
    whet_share_work(weights, &a, d->o, (int64_t)d->o * d->c * 32);
    convolve(&a);
}

/* formula    as conv2d_dx, for 3x3 windows of stride 1, without groups or dilation
 * shapes     as conv2d_dx; padding of 2 at most
 * aliasing   none
 * rounding   as conv2d_winograd
 * workspace  as conv2d_winograd */
void whet_conv2d_winograd_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d,
                                 float *workspace) {
    whet_conv2d_t back = *d;
    back.h = d->p;
    back.w = d->q;
    back.c = d->o;
    back.p = d->h;
    back.q = d->w;
    back.o = d->c;
    back.ph = 2 - d->ph;
    back.pw = 2 - d->pw;
    tiles_t a = tiles_of(&back, workspace);
    a.x = dy;
    a.w = w;
    a.y = dx;
    a.flip = 1;
    whet_share_work(weights, &a, d->o, (int64_t)d->o * d->c * 32);
    convolve(&a);
}

/* formula    as conv2d_dw, for 3x3 windows of stride 1, without groups or dilation
 * shapes     as conv2d_dw
 * aliasing   none
 * rounding   as conv2d_winograd
 * workspace  as conv2d_winograd */
void whet_conv2d_winograd_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d,
                                 float *workspace) {
    tiles_t a = tiles_of(d, workspace);
    const int32_t all = d->n * a.down * a.right;
    a.x = x;
    a.add = dy;
    a.y = dw;
    for (; a.first < all; a.first += a.count) {
        a.count = whet_min(all - a.first, TILES);
        whet_share_work(inputs, &a, a.count, (int64_t)a.count * d->c * 32);
        whet_share_work(spreads, &a, a.count, (int64_t)a.count * d->o * 32);
        whet_share_work(outer_products, &a, 16, (int64_t)a.count * d->c * d->o * 16);
    }
    whet_share_work(slopes, &a, d->o, (int64_t)d->o * d->c * 32);
}
