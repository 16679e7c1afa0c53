/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of int8 weights: a tile of some outputs and some channels of a tap at a time, summed
 * over all pixels. Channels of x are converted to floats in a panel, which all outputs share unless
 * there are more pixels than fit into one. */
#ifndef WHET_DW_I8_H
#define WHET_DW_I8_H

#include "whet_bytes.h"
#include "whet_threads.h"

/* Outputs and vectors of channels of a tile. */
enum { ROWS = WHET_APART_ROWS, VECTORS = WHET_APART_VECTORS };
enum { WIDTH = VECTORS * WHET_LANES, PIXELS = 256 /* of a panel */ };

typedef struct whet_dw {
    const float *dy;
    const int8_t *x;
    int32_t zero;
    int32_t first, outputs, blocks; /* outputs of a group from `first` on, blocks of up to ROWS */
    const whet_conv2d_t *d;
    /* consumes tile[rows, WIDTH]: n numbers for each of outputs [o, o + rows), which are numbers
     * [at, at + n) of an output's weights */
    void (*spend)(const struct whet_dw *l, float *tile, int32_t o, int32_t rows, int32_t at,
                  int32_t n);
    const void *more; /* context of `spend` */
} whet_dw_t;

/* Some channels of the pixels that a tap reads, and the positions of the outputs that read them. */
typedef struct {
    float x[PIXELS * WIDTH];
    const float *dy[PIXELS];
    int32_t count;
} panel_t;

static inline int32_t pixels_of(const whet_dw_t *l, const whet_tap_t *tap) {
    const int32_t high = tap->rows.end - tap->rows.first;
    return high > 0 && tap->width > 0 ? l->d->n * high * tap->width : 0;
}

/* Pixels of a tap from `from` on, and n channels of them from c on; vectors are padded with
 * zeros. */
static void fill_panel(panel_t *to, const whet_dw_t *l, const whet_tap_t *tap, int32_t from,
                       int32_t c, int32_t n) {
    const whet_conv2d_t *d = l->d;
    to->count = whet_min(pixels_of(l, tap) - from, PIXELS);
    if (to->count == 0) return;
    const int32_t line = from / tap->width, high = tap->rows.end - tap->rows.first;
    int32_t image = line / high, p = tap->rows.first + line % high, q = from % tap->width;
    for (int32_t i = 0; i < to->count; i++) {
        const int8_t *x = l->x + whet_tap_x(d, tap, image, p) + q * d->sw * d->c + c;
        to->dy[i] = l->dy + whet_tap_y(d, tap, image, p) + q * d->o;
        for (int32_t j = 0; j < n; j += WHET_LANES) {
            int8_t some[WHET_LANES];
            for (int32_t k = 0; k < WHET_LANES && n - j < WHET_LANES; k++)
                some[k] = (int8_t)(j + k < n ? x[j + k] : l->zero);
            whet_store(to->x + i * WIDTH + j,
                       whet_floats_v(n - j < WHET_LANES ? some : x + j, l->zero));
        }
        if (++q < tap->width) continue;
        q = 0;
        if (++p < tap->rows.end) continue;
        p = tap->rows.first;
        image++;
    }
}

/* Sums of `together` outputs from o on, in vectors (v) or half a vector (h); added to the tile if
 * `onto`. The last two arguments are constants after inlining. */
#define TILE(t, vec, unaligned, lanes)                                                          \
    static inline __attribute__((always_inline)) void sum_##t(                                  \
        float *tile, const panel_t *from, int32_t o, int32_t onto, const int32_t together,      \
        const int32_t vectors) {                                                                \
        vec sum[ROWS][VECTORS];                                                                 \
        _Pragma("GCC unroll 16") for (int32_t i = 0; i < together; i++)                         \
            _Pragma("GCC unroll 2") for (int32_t e = 0; e < vectors; e++) {                     \
            sum[i][e] = whet_none_##t();                                                        \
            if (onto) sum[i][e] = *(const unaligned *)(tile + i * WIDTH + e * (lanes));         \
        }                                                                                       \
        const float *x = from->x;                                                               \
        for (int32_t k = 0; k < from->count; k++, x += WIDTH) {                                 \
            const float *dy = from->dy[k] + o;                                                  \
            vec u[VECTORS];                                                                     \
            for (int32_t e = 0; e < vectors; e++) u[e] = *(const unaligned *)(x + e * (lanes)); \
            _Pragma("GCC unroll 16") for (int32_t i = 0; i < together; i++)                     \
                _Pragma("GCC unroll 2") for (int32_t e = 0; e < vectors; e++) sum[i][e] +=      \
                dy[i] * u[e];                                                                   \
        }                                                                                       \
        _Pragma("GCC unroll 16") for (int32_t i = 0; i < together; i++)                         \
                _Pragma("GCC unroll 2") for (int32_t e = 0; e < vectors; e++) *                 \
            (unaligned *)(tile + i * WIDTH + e * (lanes)) = sum[i][e];                          \
    }
TILE(v, whet_vec_t, whet_vec_u, WHET_LANES)
TILE(h, whet_half_t, whet_half_u, WHET_LANES / 2)

/* A whole tile, or one with fewer rows in pieces. */
#define ROWS_OF(name, t, vectors)                                                               \
    static void name(float *tile, const panel_t *from, int32_t o, int32_t onto, int32_t rows) { \
        int32_t i = 0;                                                                          \
        for (; i + ROWS <= rows; i += ROWS) sum_##t(tile, from, o, onto, ROWS, vectors);        \
        for (; i + 4 <= rows; i += 4) sum_##t(tile + i * WIDTH, from, o + i, onto, 4, vectors); \
        for (; i < rows; i++) sum_##t(tile + i * WIDTH, from, o + i, onto, 1, vectors);         \
    }
ROWS_OF(sum_rows, v, VECTORS)
ROWS_OF(sum_one_vector, v, 1)
ROWS_OF(sum_half, h, 1)

/* Tiles of blocks [b, end) of a group, for tap k and n channels from j on. */
static void make_tiles(const whet_dw_t *l, int32_t k, int32_t g, int32_t j, int32_t b,
                       int32_t end) {
    const int32_t ci = l->d->c / l->d->groups, n = whet_min(ci - j, WIDTH);
    const whet_tap_t tap = whet_tap(l->d, k);
    const int32_t pixels = pixels_of(l, &tap);
    float tile[ROWS * WIDTH];
    panel_t panel;
    if (pixels <= PIXELS) fill_panel(&panel, l, &tap, 0, g * ci + j, n);
    for (; b < end; b++) {
        const int32_t o = l->first + g * l->outputs + b * ROWS;
        const int32_t rows = whet_min(l->outputs - b * ROWS, ROWS);
        for (int32_t from = 0; from == 0 || from < pixels; from += PIXELS) {
            if (pixels > PIXELS) fill_panel(&panel, l, &tap, from, g * ci + j, n);
            if (n <= WHET_LANES / 2)
                sum_half(tile, &panel, o, from > 0, rows);
            else if (n <= WHET_LANES)
                sum_one_vector(tile, &panel, o, from > 0, rows);
            else
                sum_rows(tile, &panel, o, from > 0, rows);
        }
        l->spend(l, tile, o, rows, k * ci + j, n);
    }
}

/* Units are blocks of outputs, tap by tap. */
static void run_dw(const void *args, int32_t first, int32_t end) {
    const whet_dw_t *l = args;
    const int32_t groups = l->d->groups;
    while (first < end) {
        const int32_t i = first / l->blocks, stop = whet_min((i + 1) * l->blocks, end);
        for (int32_t j = 0; j < l->d->c / groups; j += WIDTH)
            make_tiles(l, i / groups, i % groups, j, first - i * l->blocks, stop - i * l->blocks);
        first = stop;
    }
}

/* The whole gradient, for `outputs` of every group. */
static void whet_share_dw(whet_dw_t *l) {
    const whet_conv2d_t *d = l->d;
    const int64_t products = (int64_t)d->n * d->p * d->q * l->outputs;
    l->blocks = (l->outputs + ROWS - 1) / ROWS;
    whet_share_work(run_dw, l, d->kh * d->kw * d->groups * l->blocks,
                    products * d->kh * d->kw * d->c);
}

#endif
