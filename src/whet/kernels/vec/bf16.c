/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_bf16.h"
#include "whet_stored.h"

#include "whet_bf16.h"
#include "whet_panels.h"
#include "whet_read.h"
#include "whet_threads.h"

/* y = a b of numbers rounded to bfloat16, two products at a time. For some rows and PIECE of depth,
 * a is rounded once; for every tile of columns, b is rounded to a panel that serves these rows. */
enum { PIECE = 256, HELD = 1 << 14 }; /* words of a */

typedef struct {
    float *y;
    const float *a;         /* [rows,depth], or [depth,rows] if `down` */
    const float *b;         /* [depth,columns], or [columns,depth] if `across` */
    const whet_stored_t *w; /* or these, as they are stored */
    int32_t rows, columns, depth, down, across;
    const float *bias, *add;
    float low, high;
    int32_t by_columns; /* whether threads split columns, not rows */
} args_t;

/* ---- Words of pairs along the depth; an odd one is paired with 0. */

/* to[k/2] = the pairs of x[k] */
static void pairs(uint32_t *to, const float *x, int32_t k) {
    int32_t l = 0;
    for (; l + WHET_TILE <= k; l += WHET_TILE) whet_pairs_bf16(to + l / 2, x + l);
    if (l == k) return;
    float rest[WHET_TILE] = {0.0f};
    uint32_t words[WHET_LANES];
    memcpy(rest, x + l, (size_t)(k - l) * sizeof *x);
    whet_pairs_bf16(words, rest);
    memcpy(to + l / 2, words, (size_t)((k - l + 1) / 2) * sizeof *words);
}

/* to[n] = the pairs of two rows; there is no second one if `high` is NULL */
static void zipped(uint32_t *to, const float *low, const float *high, int32_t n) {
    int32_t i = 0;
    for (; i + WHET_LANES <= n; i += WHET_LANES)
        *(whet_words_u *)(to + i) =
            whet_zip_bf16(whet_load(low + i), high != NULL ? whet_load(high + i) : whet_all(0.0f));
    if (i == n) return;
    float rest[2][WHET_LANES] = {{0.0f}};
    uint32_t words[WHET_LANES];
    memcpy(rest[0], low + i, (size_t)(n - i) * sizeof *low);
    if (high != NULL) memcpy(rest[1], high + i, (size_t)(n - i) * sizeof *high);
    *(whet_words_u *)words = whet_zip_bf16(whet_load(rest[0]), whet_load(rest[1]));
    memcpy(to + i, words, (size_t)(n - i) * sizeof *words);
}

/* Rows [r, r + n) and depth [l, l + k) of a; a row is k/2 words, or a column if `down`. */
static void round_rows(uint32_t *to, const args_t *p, int32_t r, int32_t n, int32_t l, int32_t k) {
    const int32_t half = (k + 1) / 2;
    for (int32_t i = 0; i < n && !p->down; i++)
        pairs(to + i * half, p->a + (r + i) * p->depth + l, k);
    for (int32_t m = 0; m < k && p->down; m += 2) {
        const float *row = p->a + (l + m) * p->rows + r;
        zipped(to + m / 2 * n, row, m + 1 < k ? row + p->rows : NULL, n);
    }
}

/* panel[k/2,WHET_TILE] = the pairs of depth [l, l + k) and columns [j, j + n) of b. */
static void pack(uint32_t *panel, const args_t *p, int32_t l, int32_t k, int32_t j, int32_t n) {
    float read[4 * PIECE];
    if (p->across) { /* columns are rows in memory: pairs of four of them are transposed */
        const int32_t half = (k + 1) / 2;
        uint32_t words[4][PIECE / 2 + 4];
        for (int32_t c = 0; c < WHET_TILE; c += 4) {
            const int32_t count = whet_min(n - c, 4);
            if (p->w != NULL && count > 0) whet_read_rows(p->w, read, PIECE, j + c, count, l, k);
            for (int32_t e = 0; e < 4; e++)
                if (e < count)
                    pairs(words[e], p->w ? read + e * PIECE : p->b + (j + c + e) * p->depth + l, k);
                else
                    memset(words[e], 0, sizeof words[e]);
            for (int32_t m = 0; m < half; m += 4) {
                float turned[4 * 4];
                transpose4(turned, 4, (const float *)(const void *)(words[0] + m), PIECE / 2 + 4);
                for (int32_t e = 0; e < whet_min(half - m, 4); e++)
                    memcpy(panel + (m + e) * WHET_TILE + c, turned + 4 * e, 16);
            }
        }
        return;
    }
    for (int32_t m = 0; m < k; m += 2) {
        uint32_t *to = panel + m / 2 * WHET_TILE;
        const float *row = read;
        int32_t next = PIECE;
        if (p->w != NULL) {
            whet_read_rows(p->w, read, PIECE, l + m, whet_min(k - m, 2), j, n);
        } else {
            row = p->b + (l + m) * p->columns + j;
            next = p->columns;
        }
        zipped(to, row, m + 1 < k ? row + next : NULL, n);
        memset(to + n, 0, (size_t)(WHET_TILE - n) * sizeof *to);
    }
}

/* ---- Blocks. */

/* tile[rows,WHET_TILE] = the products of `half` words; those of row r and word l of a are at a[r *
 * step + l], or at a[l * step + r] if `down`. Both are constants after inlining. */
static inline __attribute__((always_inline)) void block(float *tile, const uint32_t *a,
                                                        int32_t step, const uint32_t *b,
                                                        int32_t half, const int32_t rows,
                                                        const int32_t down) {
    whet_vec_t sum[8][2];
    for (int32_t r = 0; r < rows; r++) sum[r][0] = sum[r][1] = whet_all(0.0f);
    for (int32_t l = 0; l < half; l++, b += WHET_TILE) {
        const whet_words_t u = *(const whet_words_u *)b,
                           v = *(const whet_words_u *)(b + WHET_LANES);
#pragma GCC unroll 8
        for (int32_t r = 0; r < rows; r++) {
            const whet_words_t x = (whet_words_t){0} + (down ? a[l * step + r] : a[r * step + l]);
            sum[r][0] = whet_dot_bf16(sum[r][0], x, u);
            sum[r][1] = whet_dot_bf16(sum[r][1], x, v);
        }
    }
    for (int32_t r = 0; r < rows; r++)
        for (int32_t v = 0; v < 2; v++)
            whet_store(tile + r * WHET_TILE + v * WHET_LANES, sum[r][v]);
}

#define OF_ROWS(n)                               \
    case n:                                      \
        if (down)                                \
            block(tile, a, step, b, half, n, 1); \
        else                                     \
            block(tile, a, step, b, half, n, 0); \
        break;

static void multiply(float *tile, const uint32_t *a, int32_t step, const uint32_t *b, int32_t half,
                     int32_t rows, int32_t down) {
    switch (rows) {
        OF_ROWS(1)
        OF_ROWS(2)
        OF_ROWS(3)
        OF_ROWS(4)
        OF_ROWS(5)
        OF_ROWS(6)
        OF_ROWS(7)
        OF_ROWS(8)
    }
}

/* y[n] = tile[n], with bias and add if `first` (else added to y), clipped if `last`. */
static void finish(const args_t *p, float *y, const float *tile, int32_t j, int32_t n,
                   int32_t first, int32_t last) {
    const float *bias = first && p->bias != NULL ? p->bias + j : NULL;
    const float *add = !first ? y : p->add != NULL ? p->add + (y - p->y) : NULL;
    float v[WHET_TILE];
    memcpy(v, tile, sizeof v);
    for (int32_t c = 0; c < n && bias != NULL; c++) v[c] += bias[c];
    for (int32_t c = 0; c < n && add != NULL; c++) v[c] += add[c];
    if (last)
        for (int32_t c = 0; c < n; c++) v[c] = whet_clip(v[c], p->low, p->high);
    memcpy(y, v, (size_t)n * sizeof *y);
}

static void some(const void *args, int32_t first, int32_t end) {
    const args_t *p = args;
    const int32_t unit = p->by_columns ? WHET_TILE : WHET_ROWS;
    const int32_t size = p->by_columns ? p->columns : p->rows;
    const int32_t last = whet_min(end * unit, size), deep = whet_min(p->depth, PIECE);
    const int32_t from = p->by_columns ? 0 : first * unit, to = p->by_columns ? p->rows : last;
    const int32_t most = HELD / ((deep + 1) / 2) / WHET_ROWS * WHET_ROWS;
    uint32_t a[HELD], panel[PIECE / 2 * WHET_TILE];
    float tile[8 * WHET_TILE];
    for (int32_t i = from, count; i < to; i += count) {
        count = whet_min(to - i, most);
        for (int32_t l = 0; l < p->depth; l += deep) {
            const int32_t k = whet_min(p->depth - l, deep), half = (k + 1) / 2;
            round_rows(a, p, i, count, l, k);
            const int32_t j0 = p->by_columns ? first * unit : 0;
            for (int32_t j = j0; j < (p->by_columns ? last : p->columns); j += WHET_TILE) {
                const int32_t n = whet_min(p->columns - j, WHET_TILE);
                pack(panel, p, l, k, j, n);
                for (int32_t r = 0, rows; r < count; r += rows) {
                    rows = whet_min(count - r, 8);
                    const uint32_t *left = p->down ? a + r : a + r * half;
                    multiply(tile, left, p->down ? count : half, panel, half, rows, p->down);
                    for (int32_t e = 0; e < rows; e++)
                        finish(p, p->y + (i + r + e) * p->columns + j, tile + e * WHET_TILE, j, n,
                               l == 0, l + k == p->depth);
                }
            }
        }
    }
}

static void product(args_t *p) {
    p->by_columns = p->columns > 2 * p->rows;
    const int32_t unit = p->by_columns ? WHET_TILE : WHET_ROWS;
    const int32_t size = p->by_columns ? p->columns : p->rows;
    whet_share_work(some, p, (size + unit - 1) / unit,
                    (int64_t)p->rows * p->columns * p->depth / 2);
}

/* formula    y = min(max(linear(x, w, b) + add, low), high)
 * shapes     y[rows,o], x[rows,i], w[o,i], b[o] or NULL, add[rows,o] or NULL
 * aliasing   y may be add
 * rounding   x and w to bfloat16; their products are added in floats, up to PIECE one after the
 *            other, two at a time
 * workspace  some 90 KB of stack */
void whet_linear_bf16_f32(float *y, const float *x, const float *w, const float *b,
                          const float *add, float low, float high, int32_t rows, int32_t i,
                          int32_t o) {
    args_t p = {.y = y, .a = x, .b = w, .rows = rows, .columns = o, .depth = i, .across = 1};
    p.bias = b;
    p.add = add;
    p.low = low;
    p.high = high;
    product(&p);
}

/* formula    dx[r,i] = sum_o dy[r,o] * w[o,i]
 * shapes     dx[rows,i], dy[rows,o], w[o,i]
 * aliasing   none
 * rounding   dy and w to bfloat16; sums as linear_bf16
 * workspace  some 90 KB of stack */
void whet_linear_bf16_dx_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                             int32_t o) {
    args_t p = {.y = dx, .a = dy, .b = w, .rows = rows, .columns = i, .depth = o};
    p.low = -INFINITY;
    p.high = INFINITY;
    product(&p);
}

/* formula    dw[o,i] = sum_r dy[r,o] * x[r,i]
 * shapes     dw[o,i], dy[rows,o], x[rows,i]
 * aliasing   none
 * rounding   dy and x to bfloat16; sums as linear_bf16
 * workspace  some 90 KB of stack */
void whet_linear_bf16_dw_f32(float *dw, const float *dy, const float *x, int32_t rows, int32_t i,
                             int32_t o) {
    args_t p = {.y = dw, .a = dy, .b = x, .rows = o, .columns = i, .depth = rows};
    p.down = 1;
    p.low = -INFINITY;
    p.high = INFINITY;
    product(&p);
}

/* formula    as linear_bf16, dx as linear_bf16_dx
 * shapes     as those, w[o,i] as it is stored
 * aliasing   y may be add
 * rounding   as those of the same w in floats
 * workspace  some 90 KB of stack */
void whet_linear_stored_bf16_f32(float *y, const float *x, const void *w, const float *table,
                                 const float *b, const float *add, float low, float high,
                                 int32_t rows, int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    args_t p = {.y = y, .a = x, .w = &from, .rows = rows, .columns = o, .depth = i, .across = 1};
    p.bias = b;
    p.add = add;
    p.low = low;
    p.high = high;
    product(&p);
}

/* The same for dx[r,i] = sum_o dy[r,o] * w[o,i]. */
void whet_linear_stored_bf16_dx_f32(float *dx, const float *dy, const void *w, const float *table,
                                    int32_t rows, int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    args_t p = {.y = dx, .a = dy, .w = &from, .rows = rows, .columns = i, .depth = o};
    p.low = -INFINITY;
    p.high = INFINITY;
    product(&p);
}
