/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_dots.h"
#include "whet_stored.h"

#include "whet_narrow.h"

#include "whet_dot.h"
#include "whet_threads.h"

/* A tile has two vectors of outputs. For PIECE elements of depth at a time, its rows of w are
 * copied to a panel of interleaved quads, which serves all rows of q. */
enum { OUTPUTS = 2 * WHET_DOTS, PIECE = 512, CHUNK = 128, QUADS = WHET_BLOCK / 4 };
enum { MOST = WHET_WIDE == 64 ? 6 : 4 }; /* rows of a block; registers hold two sums for each */

typedef whet_dot_reals_t reals_t;
typedef float reals_u __attribute__((vector_size(WHET_WIDE), aligned(4), may_alias));

typedef struct {
    float *y;
    const int8_t *q;
    const float *scale;
    const int32_t *sums;
    const whet_stored_t *w;
    const float *b, *add;
    float low, high;
    int32_t rows, i, o;
} args_t;

/* Rows of w as they are multiplied, and their scales and minima if these are of blocks. */
typedef struct {
    whet_dots_t quad[PIECE / 4][2];
    float d[PIECE / WHET_BLOCK][OUTPUTS], m[PIECE / WHET_BLOCK][OUTPUTS];
} panel_t;

/* What an element of the panel is more than that of w; fewer bits are unsigned anyway. */
static inline int32_t offset_of(int32_t form) {
    return form == WHET_Q4_1 ? 0 : form == WHET_Q4_0 ? 8 : WHET_FLIP;
}

/* Lanes c to c + 3 of four quads, which are 2 vectors apart: those of rows from[4]. */
static inline void turn_quads(whet_dots_t *to, int32_t c, const uint8_t *const from[4]) {
    whet_ints_16 row[4], turned[4];
    for (int32_t n = 0; n < 4; n++) memcpy(&row[n], from[n], sizeof row[n]);
    whet_turn(turned, row[0], row[1], row[2], row[3]);
    for (int32_t n = 0; n < 4; n++)
        memcpy((uint8_t *)(to + 2 * n) + 4 * c, &turned[n], sizeof turned[n]);
}

/* A block of WHET_DOTS rows of w, `stride` bytes apart; beyond n of them, the last again. */
static inline __attribute__((always_inline)) void pack_block(whet_dots_t *to, const uint8_t *block,
                                                             size_t stride, int32_t n,
                                                             const int32_t skip,
                                                             const int32_t bits) {
    const whet_dots_t nibble = (whet_dots_t){0} + 0x0f0f0f0f, flip = whet_flips();
    for (int32_t c = 0; c < WHET_DOTS; c += 4) {
        const uint8_t *from[4];
        for (int32_t e = 0; e < 4; e++)
            from[e] = block + (size_t)whet_min(c + e, n - 1) * stride + skip;
        turn_quads(to, c, from);
        for (int32_t e = 0; e < 4; e++) from[e] += 16;
        if (bits == 8) turn_quads(to + QUADS, c, from);
    }
    for (int32_t e = 0; e < QUADS; e++) {
        if (bits == 8) to[2 * e] ^= flip;
        if (bits == 4 && e < QUADS / 2) {
            to[QUADS + 2 * e] = to[2 * e] >> 4 & nibble;
            to[2 * e] &= nibble;
        }
    }
}

/* k elements from l on of n rows of w, from j on. */
static void pack(panel_t *to, const whet_stored_t *w, int32_t j, int32_t n, int32_t l, int32_t k) {
    const int32_t form = w->form, bytes = form == WHET_Q8_ROWS ? 32 : whet_block_bytes(form);
    const size_t stride = (size_t)(w->columns / WHET_BLOCK) * (size_t)bytes;
    for (int32_t v = 0; v < 2; v++) {
        const int32_t first = whet_min(v * WHET_DOTS, n - 1),
                      count = whet_min(n - first, WHET_DOTS);
        const uint8_t *rows = w->data + (size_t)(j + first) * stride;
        for (int32_t e = 0; e < k / WHET_BLOCK; e++) {
            const uint8_t *block = rows + (size_t)(l / WHET_BLOCK + e) * (size_t)bytes;
            whet_dots_t *quads = &to->quad[e * QUADS][v];
            if (form == WHET_Q8_ROWS)
                pack_block(quads, block, stride, count, 0, 8);
            else if (form == WHET_Q8_0)
                pack_block(quads, block, stride, count, 2, 8);
            else
                pack_block(quads, block, stride, count, form == WHET_Q4_1 ? 4 : 2, 4);
            for (int32_t c = 0; c < WHET_DOTS && form != WHET_Q8_ROWS; c++) {
                const uint8_t *at = block + (size_t)whet_min(c, count - 1) * stride;
                to->d[e][v * WHET_DOTS + c] = whet_read_half(at);
                if (form == WHET_Q4_1) to->m[e][v * WHET_DOTS + c] = whet_read_half(at + 2);
            }
        }
    }
}

static inline whet_dots_t all_quad(const int8_t *q) {
    int32_t quad;
    memcpy(&quad, q, sizeof quad);
    return (whet_dots_t){0} + quad;
}

/* sum += the products of `quads` quads, for rows of q that are i apart. */
static inline __attribute__((always_inline)) void add_quads(whet_dots_t sum[MOST][2],
                                                            const whet_dots_t (*b)[2],
                                                            const int8_t *q, int32_t i,
                                                            int32_t quads, const int32_t rows) {
    for (int32_t l = 0; l < quads; l++) {
        const whet_dots_t u = b[l][0], v = b[l][1];
#pragma GCC unroll 6
        for (int32_t r = 0; r < rows; r++) {
            const whet_dots_t x = all_quad(q + r * i + 4 * l);
            sum[r][0] = WHET_OF_DOTS(whet_dot)(sum[r][0], u, x);
            sum[r][1] = WHET_OF_DOTS(whet_dot)(sum[r][1], v, x);
        }
    }
}

/* tile[rows,OUTPUTS] += q w', where scales are of rows: integers. */
static inline __attribute__((always_inline)) void add_whole(float *tile, const panel_t *p,
                                                            const int8_t *q, int32_t i, int32_t k,
                                                            const int32_t rows) {
    whet_dots_t sum[MOST][2];
    for (int32_t r = 0; r < rows; r++) memcpy(sum[r], tile + r * OUTPUTS, sizeof sum[r]);
    add_quads(sum, p->quad, q, i, k / 4, rows);
    for (int32_t r = 0; r < rows; r++) memcpy(tile + r * OUTPUTS, sum[r], sizeof sum[r]);
}

/* Where the rows are of blocks, sums are floats. */
static inline __attribute__((always_inline)) void add_blocks(float *tile, const panel_t *p,
                                                             const int8_t *q, const int32_t *sums,
                                                             int32_t i, int32_t k,
                                                             const int32_t rows,
                                                             const int32_t form) {
    reals_t v[MOST][2];
    for (int32_t r = 0; r < rows; r++) memcpy(v[r], tile + r * OUTPUTS, sizeof v[r]);
    for (int32_t e = 0; e < k / WHET_BLOCK; e++) {
        whet_dots_t sum[MOST][2];
#pragma GCC unroll 6
        for (int32_t r = 0; r < rows; r++)
            sum[r][0] = sum[r][1] =
                (whet_dots_t){0} - offset_of(form) * sums[r * (i / WHET_BLOCK) + e];
        add_quads(sum, p->quad + e * QUADS, q + e * WHET_BLOCK, i, QUADS, rows);
#pragma GCC unroll 6
        for (int32_t r = 0; r < rows; r++) {
            const reals_t all = (reals_t){0.0f} + (float)sums[r * (i / WHET_BLOCK) + e];
            for (int32_t n = 0; n < 2; n++) {
                const reals_t d = *(const reals_u *)(p->d[e] + n * WHET_DOTS);
                const reals_t dots = __builtin_convertvector(sum[r][n], reals_t);
                v[r][n] = whet_fma_dots(d, dots, v[r][n]);
                if (form == WHET_Q4_1) {
                    const reals_t m = *(const reals_u *)(p->m[e] + n * WHET_DOTS);
                    v[r][n] = whet_fma_dots(m, all, v[r][n]);
                }
            }
        }
    }
    for (int32_t r = 0; r < rows; r++) memcpy(tile + r * OUTPUTS, v[r], sizeof v[r]);
}

#define OF_ROWS(n)                                                            \
    case n:                                                                   \
        if (form == WHET_Q8_ROWS) add_whole(tile, p, q, i, k, n);             \
        if (form == WHET_Q8_0) add_blocks(tile, p, q, s, i, k, n, WHET_Q8_0); \
        if (form == WHET_Q4_0) add_blocks(tile, p, q, s, i, k, n, WHET_Q4_0); \
        if (form == WHET_Q4_1) add_blocks(tile, p, q, s, i, k, n, WHET_Q4_1); \
        break;

static void add_rows(float *tile, const panel_t *p, const int8_t *q, const int32_t *s, int32_t i,
                     int32_t k, int32_t rows, int32_t form) {
    switch (rows) {
        OF_ROWS(1)
        OF_ROWS(2)
        OF_ROWS(3)
        OF_ROWS(4)
#if WHET_WIDE == 64
        OF_ROWS(5)
        OF_ROWS(6)
#endif
    }
}

/* Row r of y from column j on, n of them, from what the tile has summed. */
static void finish_row(const args_t *a, const float *tile, int32_t r, int32_t j, int32_t n) {
    const float scale = a->scale[r];
    float v[OUTPUTS], *y = a->y + r * a->o + j;
    if (a->w->form == WHET_Q8_ROWS) {
        uint32_t sum[OUTPUTS], total = 0;
        memcpy(sum, tile, sizeof sum);
        for (int32_t k = 0; k < a->i / WHET_BLOCK; k++)
            total += (uint32_t)a->sums[r * (a->i / WHET_BLOCK) + k];
        for (int32_t c = 0; c < n; c++)
            v[c] = (float)(int32_t)(sum[c] - WHET_FLIP * total) * a->w->table[j + c];
    } else {
        memcpy(v, tile, sizeof v);
    }
    for (int32_t c = 0; c < n; c++) v[c] = fmaf(v[c], scale, a->b != NULL ? a->b[j + c] : 0.0f);
    for (int32_t c = 0; c < n && a->add != NULL; c++) v[c] += a->add[r * a->o + j + c];
    for (int32_t c = 0; c < n; c++) y[c] = whet_clip(v[c], a->low, a->high);
}

/* Tiles [first, end) of columns. */
static void some_tiles(const void *args, int32_t first, int32_t end) {
    const args_t *a = args;
    panel_t panel;
    float tile[CHUNK * OUTPUTS];
    for (int32_t j = first * OUTPUTS; j < whet_min(end * OUTPUTS, a->o); j += OUTPUTS)
        for (int32_t r = 0; r < a->rows; r += CHUNK) {
            const int32_t n = whet_min(a->o - j, OUTPUTS), count = whet_min(a->rows - r, CHUNK);
            memset(tile, 0, (size_t)(count * OUTPUTS) * sizeof *tile);
            for (int32_t l = 0, k; l < a->i; l += k) {
                k = whet_min(a->i - l, PIECE);
                pack(&panel, a->w, j, n, l, k);
                for (int32_t t = 0, some; t < count; t += some) {
                    some = whet_min(count - t, MOST);
                    add_rows(tile + t * OUTPUTS, &panel, a->q + (r + t) * a->i + l,
                             a->sums + ((r + t) * a->i + l) / WHET_BLOCK, a->i, k, some,
                             a->w->form);
                }
            }
            for (int32_t t = 0; t < count; t++) finish_row(a, tile + t * OUTPUTS, r + t, j, n);
        }
}

/* formula    y = min(max(scale[r] * (q w') + b + add, low), high)
 * shapes     y[rows,o], q[rows,i], scale[rows], sums[rows,i/WHET_BLOCK] of q, w[o,i] as it is
 *            stored, b[o] or NULL, add[rows,o] or NULL; i <= 2^17
 * aliasing   y may be add
 * rounding   as in ref/, to the bit
 * workspace  some 40 KB of stack */
void whet_linear_dots_f32(float *y, const int8_t *q, const float *scale, const int32_t *sums,
                          const void *w, const float *table, const float *b, const float *add,
                          float low, float high, int32_t rows, int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    const args_t a = {y, q, scale, sums, &from, b, add, low, high, rows, i, o};
    whet_share_work(some_tiles, &a, (o + OUTPUTS - 1) / OUTPUTS, (int64_t)rows * o * i / 4);
}
