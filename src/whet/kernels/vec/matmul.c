/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bits.h"
#include "whet_blocks.h"
#include "whet_panels.h"
#include "whet_threads.h"

/* y = a b, where pointers locate the rows of a and y. A panel of b serves all rows of a chunk. */
enum { CHUNK = 384, POINTERS = 4096 };

MULTIPLY(by_rows, 0)

/* ---- Results. */

/* y[n] = tile[n], with bias and add if `first` (else added to y), clipped if `last`. */
static inline void finish_row(const whet_product_t *p, float *y, int32_t j, const float *tile,
                              int32_t n, const int32_t first, const int32_t last) {
    const float *bias = first && p->bias ? p->bias + j : NULL;
    const float *add = !first ? y : p->add ? p->add + (y - p->add_origin) : NULL;
    const int32_t clip = last && !(p->low == -INFINITY && p->high == INFINITY);
    int32_t i = 0;
    for (; i + WHET_LANES <= n; i += WHET_LANES) {
        whet_vec_t v = whet_load(tile + i);
        if (bias) v += whet_load(bias + i);
        if (add) v += whet_load(add + i);
        if (clip) v = whet_clip_vec(v, p->low, p->high);
        whet_store(y + i, v);
    }
    if (i + WHET_LANES / 2 <= n) {
        whet_half_t v = whet_load_half(tile + i);
        if (bias) v += whet_load_half(bias + i);
        if (add) v += whet_load_half(add + i);
        if (clip) v = whet_clip_half(v, p->low, p->high);
        whet_store_half(y + i, v);
        i += WHET_LANES / 2;
    }
    for (; i < n; i++) {
        float v = tile[i];
        if (bias) v += bias[i];
        if (add) v += add[i];
        y[i] = clip ? whet_clip(v, p->low, p->high) : v;
    }
}

/* ---- Products of rows. */

typedef struct {
    float *y;
    const float *a;
    int32_t ldy, lda;
} dense_t;

static void find_dense(const void *who, const float **a, float **y, int32_t first, int32_t count) {
    const dense_t *d = who;
    for (int32_t i = 0; i < count; i++) {
        a[i] = d->a + (first + i) * d->lda;
        y[i] = d->y + (first + i) * d->ldy;
    }
}

typedef struct {
    const whet_product_t *p;
    int32_t columns; /* whether threads split columns, not rows */
} share_t;

/* Whether a product is the final result. */
static int32_t is_plain(const whet_product_t *p) {
    return !p->bias && !p->add && p->low == -INFINITY && p->high == INFINITY;
}

/* Rows [first, first + count) of a chunk, whose pointers are ready, and columns [j, end). */
static void chunk(const whet_product_t *p, const float *const *a, float *const *y, int32_t count,
                  int32_t j, int32_t end) {
    float panel[DEEP * WHET_TILE], tile[WHET_ROWS * WHET_TILE];
    const int32_t deep = whet_min(p->depth, DEEP);
    const int32_t together = whet_min(p->taps, DEEP / deep); /* taps that share a panel */
    const int32_t few = count <= 2 * WHET_ROWS;              /* then a panel does not pay */
    const int32_t clips = !(p->low == -INFINITY && p->high == INFINITY);
    for (int32_t t = 0; t < p->taps; t += together)
        for (int32_t l = 0; l < p->depth; l += deep) {
            const int32_t taps = whet_min(p->taps - t, together);
            const int32_t k = whet_min(p->depth - l, deep);
            const int32_t first = t == 0 && l == 0;
            const int32_t last = t + taps == p->taps && l + k == p->depth;
            for (int32_t c = j; c < end; c += WHET_TILE) {
                const int32_t n = whet_min(end - c, WHET_TILE), h = halves_of(n);
                const int32_t wide = h * WHET_LANES / 2, fits = n == wide;
                const float *right = panel;
                int32_t ldb = wide;
                if (fits && p->taps == 1 && p->bj == 1 && (few || p->bl == n)) {
                    right = p->b + (p->at ? p->at[t] : 0) + l * p->bl + c;
                    ldb = p->bl;
                }
                for (int32_t i = 0; i < taps && right == panel; i++) {
                    const float *b = p->b + (p->at ? p->at[t + i] : 0) + l * p->bl + c * p->bj;
                    float *to = panel + i * k * wide;
                    if (p->bl == 1)
                        pack_columns(to, wide, b, p->bj, n, k);
                    else
                        for (int32_t m = 0; m < k; m++) {
                            const float *row = b + m * p->bl;
                            __builtin_prefetch(row + WHET_TILE); /* of the next panel */
                            __builtin_prefetch(row + WHET_TILE + WHET_LANES);
                            copy_row(to + m * wide, row, n, wide);
                        }
                }
                for (int32_t r = 0, rows; r < count; r += rows) {
                    rows = next_rows(count - r);
                    const left_t left = {a + t * count + r, count, taps, l, NULL, 0};
                    if (fits && p->ldy > 0) {
                        float *to = y[r] + c;
                        const float *add = p->add ? p->add + (to - p->add_origin) : NULL;
                        const finish_t f = {first && p->bias ? p->bias + c : NULL, first ? add : to,
                                            last && clips, p->low, p->high};
                        by_rows(to, p->ldy, right, ldb, k, &left, &f, rows, h);
                        continue;
                    }
                    by_rows(tile, wide, right, ldb, k, &left, NULL, rows, h);
                    for (int32_t i = 0; i < rows; i++)
                        finish_row(p, y[r + i] + c, c, tile + i * wide, n, first, last);
                }
            }
        }
}

/* Whether the bits of y are computed per chunk: all columns of some rows, in whole bytes. */
static int32_t by_chunk(const share_t *s) {
    return s->p->bits != NULL && !s->columns && s->p->columns % 8 == 0;
}

static void take_bits(const whet_product_t *p, int32_t first, int32_t count) {
    const int32_t at = first * p->columns;
    whet_take_bits(p->bits + at / 8, p->add_origin + at, count * p->columns, p->low, p->high);
}

static void some_of_product(const void *args, int32_t first, int32_t end) {
    const share_t *s = args;
    const whet_product_t *p = s->p;
    const int32_t size = whet_min(CHUNK, POINTERS / p->taps / 2 * 2);
    const int32_t rows = s->columns ? p->rows : row_after(p->rows, end);
    const int32_t columns = s->columns ? whet_min(end * WHET_TILE, p->columns) : p->columns;
    const float *a[POINTERS];
    float *y[CHUNK];
    for (int32_t i = s->columns ? 0 : first * WHET_ROWS, count; i < rows; i += count) {
        count = whet_min(rows - i, rows - i == size + 1 ? size - 2 : size); /* see next_rows */
        p->find(p->who, a, y, i, count);
        chunk(p, a, y, count, s->columns ? first * WHET_TILE : 0, columns);
        if (by_chunk(s)) take_bits(p, i, count); /* while they are in the cache */
    }
}

/* formula    see whet_product_t
 * shapes     y[rows,columns], a[rows,taps,depth], b[taps,depth,columns]; taps <= POINTERS / 4
 * aliasing   y may be add
 * rounding   sums of up to DEEP products, one after the other
 * workspace  some 70 KB of stack */
void whet_product(const whet_product_t *p) {
    const int64_t work = (int64_t)p->rows * p->columns * p->taps * p->depth;
    const share_t s = {p, p->columns > 2 * p->rows};
    const int32_t units = s.columns ? (p->columns + WHET_TILE - 1) / WHET_TILE : row_units(p->rows);
    whet_share_work(some_of_product, &s, units, work);
    if (p->bits != NULL && !by_chunk(&s)) take_bits(p, 0, p->rows);
}

/* ---- Products of a few rows: b is read once, in place. */

enum { FEW = 4, SOME = 8, LITTLE = 16, STRIP = WHET_ROWS >= 8 ? 8 : 4 };

/* sum[r] = a[r] . b, where `rows` is a constant after inlining. */
static inline __attribute__((always_inline)) void dot_rows(float *sum, const float *a, int32_t lda,
                                                           const float *b, int32_t k,
                                                           const int32_t rows) {
    whet_vec_t s[FEW], t[FEW];
    for (int32_t r = 0; r < rows; r++) s[r] = t[r] = whet_all(0.0f);
    int32_t l = 0;
    for (; l + 2 * WHET_LANES <= k; l += 2 * WHET_LANES) {
        const whet_vec_t u = whet_load(b + l), v = whet_load(b + l + WHET_LANES);
#pragma GCC unroll 4
        for (int32_t r = 0; r < rows; r++) {
            s[r] += whet_load(a + r * lda + l) * u;
            t[r] += whet_load(a + r * lda + l + WHET_LANES) * v;
        }
    }
#pragma GCC unroll 4
    for (int32_t r = 0; r < rows; r++) sum[r] = whet_sum_lanes(s[r] + t[r]);
    for (; l < k; l++)
        for (int32_t r = 0; r < rows; r++) sum[r] += a[r * lda + l] * b[l];
}

/* Columns [first, end), where a column of b is a row in memory. */
static void dots(const void *args, int32_t first, int32_t end) {
    const whet_product_t *p = args;
    const dense_t *d = p->who;
    for (int32_t j = first; j < end; j++) {
        const float *b = p->b + j * p->bj;
        for (int32_t i = 0, rows; i < p->rows; i += rows) {
            const int32_t left = p->rows - i;
            const float *a = d->a + i * d->lda;
            float sum[FEW];
            rows = left >= FEW ? FEW : left >= 2 ? 2 : 1;
            if (rows == FEW)
                dot_rows(sum, a, d->lda, b, p->depth, FEW);
            else if (rows == 2)
                dot_rows(sum, a, d->lda, b, p->depth, 2);
            else
                dot_rows(sum, a, d->lda, b, p->depth, 1);
            for (int32_t r = 0; r < rows; r++)
                finish_row(p, d->y + (i + r) * d->ldy + j, j, sum + r, 1, 1, 1);
        }
    }
}

/* For a few more rows, STRIP columns at a time: the transpose of the product is computed, with a
 * panel of the interleaved rows of a, so that b need not be copied. */
static void strips(const void *args, int32_t first, int32_t end) {
    const whet_product_t *p = args;
    const dense_t *d = p->who;
    const int32_t h = halves_of(p->rows), wide = h * WHET_LANES / 2;
    float panel[DEEP * WHET_TILE], tile[STRIP * WHET_TILE], turned[WHET_TILE * STRIP];
    for (int32_t l = 0, k; l < p->depth; l += k) {
        k = whet_min(p->depth - l, DEEP);
        pack_columns(panel, wide, d->a + l, d->lda, p->rows, k);
        for (int32_t j = first * STRIP; j < whet_min(end * STRIP, p->columns); j += STRIP) {
            const int32_t n = whet_min(p->columns - j, STRIP);
            const float *b[STRIP];
            for (int32_t i = 0; i < STRIP; i++) b[i] = i < n ? p->b + (j + i) * p->bj : NULL;
            const left_t left = {b, STRIP, 1, l, NULL, 0};
            by_rows(tile, wide, panel, wide, k, &left, NULL, STRIP, h);
            for (int32_t r = 0; r < wide; r += 4)
                for (int32_t i = 0; i < STRIP; i += 4)
                    transpose4(turned + r * STRIP + i, STRIP, tile + i * wide + r, wide);
            for (int32_t r = 0; r < p->rows; r++)
                finish_row(p, d->y + r * d->ldy + j, j, turned + r * STRIP, n, l == 0,
                           l + k == p->depth);
        }
    }
}

/* Where rows of b are contiguous: y += a[l] * b[l], four rows of b at a time. */
static void add_rows(const void *args, int32_t first, int32_t end) {
    const whet_product_t *p = args;
    const dense_t *d = p->who;
    const int32_t j = first * WHET_TILE, n = whet_min(end * WHET_TILE, p->columns) - j;
    for (int32_t i = 0; i < p->rows; i++) {
        const float *a = d->a + i * d->lda;
        float *y = d->y + i * d->ldy + j;
        whet_fill(y, n, 0.0f);
        for (int32_t l = 0; l < p->depth; l += 4) {
            const float *b = p->b + l * p->bl + j;
            const float x[4] = {a[l], l + 1 < p->depth ? a[l + 1] : 0.0f,
                                l + 2 < p->depth ? a[l + 2] : 0.0f,
                                l + 3 < p->depth ? a[l + 3] : 0.0f};
            const int32_t last = whet_min(p->depth - 1 - l, 3) * p->bl; /* instead of one past the
                                                                         * end */
            const float *b1 = b + whet_min(p->bl, last), *b2 = b + whet_min(2 * p->bl, last);
            const float *b3 = b + last;
            int32_t c = 0;
            for (; c + WHET_LANES <= n; c += WHET_LANES)
                whet_store(y + c, whet_load(y + c) +
                                      ((x[0] * whet_load(b + c) + x[1] * whet_load(b1 + c)) +
                                       (x[2] * whet_load(b2 + c) + x[3] * whet_load(b3 + c))));
            for (; c < n; c++) y[c] += (x[0] * b[c] + x[1] * b1[c]) + (x[2] * b2[c] + x[3] * b3[c]);
        }
    }
}

/* formula    as product, with a[i,l] at a[i*lda + l] and y[i,j] at y[i*ldy + j]
 * shapes     y[rows,columns], a[rows,depth]
 * aliasing   y may be add
 * rounding   as product; with few rows in lanes, or four products at a time
 * workspace  as product */
void whet_dense_product(float *y, int32_t ldy, const float *a, int32_t lda, whet_product_t *p) {
    const dense_t d = {y, a, ldy, lda};
    const int64_t work = (int64_t)p->rows * p->columns * p->depth;
    p->taps = 1;
    p->find = find_dense;
    p->who = &d;
    p->ldy = ldy;
    p->add_origin = y;
    if (p->bl == 1 && p->rows <= SOME)
        whet_share_work(dots, p, p->columns, work);
    else if (p->bl == 1 && p->rows <= whet_min(LITTLE, WHET_TILE))
        whet_share_work(strips, p, (p->columns + STRIP - 1) / STRIP, work);
    else if (p->bj == 1 && p->rows < FEW && is_plain(p))
        whet_share_work(add_rows, p, (p->columns + WHET_TILE - 1) / WHET_TILE, work);
    else {
        whet_product(p);
        return;
    }
    if (p->bits != NULL) take_bits(p, 0, p->rows);
}
