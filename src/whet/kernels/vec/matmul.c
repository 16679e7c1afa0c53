/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bits.h"
#include "whet_blocks.h"
#include "whet_panels.h"
#include "whet_threads.h"

/* y = a b, where pointers locate the rows of a and y. A panel of b serves all rows of a chunk. */
enum { CHUNK = 384, POINTERS = 4096 };

MULTIPLY(by_rows, 0)

/* ---- Panels. */

/* panel[k,wide] = rows [l, l + k) and columns [c, c + n) of what p reads in place of b. */
static void pack_read(const whet_product_t *p, float *panel, int32_t wide, int32_t l, int32_t k,
                      int32_t c, int32_t n) {
    if (p->bj == 1) {
        p->read(p->w, panel, wide, l, k, c, n);
        for (int32_t m = 0; m < k && n < wide; m++) whet_fill(panel + m * wide + n, wide - n, 0.0f);
        return;
    }
    float rows[4 * DEEP];
    for (int32_t j = 0; j < n; j += 4) {
        const int32_t count = whet_min(n - j, 4);
        p->read(p->w, rows, DEEP, c + j, count, l, k);
        pack_columns(panel + j, wide, whet_min(wide - j, 4), rows, DEEP, count, k);
    }
}

/* panel[k,wide] = rows [l, l + k) and columns [c, c + n) of b(t). */
static void pack(const whet_product_t *p, float *panel, int32_t wide, int32_t t, int32_t l,
                 int32_t k, int32_t c, int32_t n) {
    if (p->read) {
        pack_read(p, panel, wide, l, k, c, n);
        return;
    }
    const float *b = p->b + (p->at ? p->at[t] : 0) + l * p->bl + c * p->bj;
    if (p->bl == 1) {
        pack_columns(panel, wide, wide, b, p->bj, n, k);
        return;
    }
    for (int32_t m = 0; m < k; m++) {
        const float *row = b + m * p->bl;
        __builtin_prefetch(row + WHET_TILE); /* of the next panel */
        __builtin_prefetch(row + WHET_TILE + WHET_LANES);
        copy_row(panel + m * wide, row, n, wide);
    }
}

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
                if (fits && p->taps == 1 && p->bj == 1 && !p->read && (few || p->bl == n)) {
                    right = p->b + (p->at ? p->at[t] : 0) + l * p->bl + c;
                    ldb = p->bl;
                }
                for (int32_t i = 0; i < taps && right == panel; i++)
                    pack(p, panel + i * k * wide, wide, t + i, l, k, c, n);
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

/* Sums of a dot product, in lanes. */
typedef struct {
    whet_vec_t even, odd;
} lanes_t;

/* sum[r] += a[r] . b, as far as k elements fill lanes; `rows` is a constant after inlining. */
static inline __attribute__((always_inline)) void dot_lanes(lanes_t *sum, const float *a,
                                                            int32_t lda, const float *b, int32_t k,
                                                            const int32_t rows) {
    whet_vec_t s[FEW], t[FEW];
    for (int32_t r = 0; r < rows; r++) {
        s[r] = sum[r].even;
        t[r] = sum[r].odd;
    }
    for (int32_t l = 0; l + 2 * WHET_LANES <= k; l += 2 * WHET_LANES) {
        const whet_vec_t u = whet_load(b + l), v = whet_load(b + l + WHET_LANES);
#pragma GCC unroll 4
        for (int32_t r = 0; r < rows; r++) {
            s[r] += whet_load(a + r * lda + l) * u;
            t[r] += whet_load(a + r * lda + l + WHET_LANES) * v;
        }
    }
    for (int32_t r = 0; r < rows; r++) {
        sum[r].even = s[r];
        sum[r].odd = t[r];
    }
}

static inline int32_t next_few(int32_t left) { return left >= FEW ? FEW : left >= 2 ? 2 : 1; }

/* For any number of rows: sum[rows]. */
static inline void dot_more(lanes_t *sum, const float *a, int32_t lda, const float *b, int32_t k,
                            int32_t rows) {
    for (int32_t i = 0, few; i < rows; i += few, sum += few, a += few * lda) {
        few = next_few(rows - i);
        if (few == FEW)
            dot_lanes(sum, a, lda, b, k, FEW);
        else if (few == 2)
            dot_lanes(sum, a, lda, b, k, 2);
        else
            dot_lanes(sum, a, lda, b, k, 1);
    }
}

/* y[.,j] = the sums, with products that filled no lanes: the last k % TILE elements of a row of a
 * and of b, which ends at `end`. */
static void end_dots(const whet_product_t *p, const lanes_t *sum, int32_t j, const float *end) {
    const dense_t *d = p->who;
    const int32_t rest = p->depth % (2 * WHET_LANES);
    for (int32_t r = 0; r < p->rows; r++) {
        const float *a = d->a + r * d->lda + p->depth;
        float total = whet_sum_lanes(sum[r].even + sum[r].odd);
        for (int32_t l = -rest; l < 0; l++) total += a[l] * end[l];
        finish_row(p, d->y + r * d->ldy + j, j, &total, 1, 1, 1);
    }
}

static inline void start_dots(lanes_t *sum, int32_t rows) {
    for (int32_t r = 0; r < rows; r++) sum[r].even = sum[r].odd = whet_all(0.0f);
}

/* Columns [first, end), where a column of b is a row in memory. */
static void dots(const void *args, int32_t first, int32_t end) {
    const whet_product_t *p = args;
    const dense_t *d = p->who;
    for (int32_t j = first; j < end; j++) {
        const float *b = p->b + j * p->bj;
        lanes_t sum[SOME];
        start_dots(sum, p->rows);
        dot_more(sum, d->a, d->lda, b, p->depth, p->rows);
        end_dots(p, sum, j, b + p->depth);
    }
}

/* As dots, where rows of w are read, a piece of some of them at a time. */
static void read_dots(const void *args, int32_t first, int32_t end) {
    const whet_product_t *p = args;
    const dense_t *d = p->who;
    float piece[FEW * DEEP];
    for (int32_t j = first, n; j < end; j += n) {
        lanes_t sum[FEW][SOME];
        int32_t k = 0;
        n = whet_min(end - j, FEW);
        for (int32_t i = 0; i < n; i++) start_dots(sum[i], p->rows);
        for (int32_t l = 0; l < p->depth; l += k) {
            k = whet_min(p->depth - l, DEEP);
            p->read(p->w, piece, DEEP, j, n, l, k);
            for (int32_t i = 0; i < n; i++)
                dot_more(sum[i], d->a + l, d->lda, piece + i * DEEP, k, p->rows);
        }
        for (int32_t i = 0; i < n; i++) end_dots(p, sum[i], j + i, piece + i * DEEP + k);
    }
}

/* For a few more rows, STRIP columns at a time: the transpose of the product is computed, with a
 * panel of the interleaved rows of a, so that b need not be copied. */
static void strips(const void *args, int32_t first, int32_t end) {
    const whet_product_t *p = args;
    const dense_t *d = p->who;
    const int32_t h = halves_of(p->rows), wide = h * WHET_LANES / 2;
    float panel[DEEP * WHET_TILE], tile[STRIP * WHET_TILE], turned[WHET_TILE * STRIP];
    float read[STRIP * DEEP];
    for (int32_t l = 0, k; l < p->depth; l += k) {
        k = whet_min(p->depth - l, DEEP);
        pack_columns(panel, wide, wide, d->a + l, d->lda, p->rows, k);
        for (int32_t j = first * STRIP; j < whet_min(end * STRIP, p->columns); j += STRIP) {
            const int32_t n = whet_min(p->columns - j, STRIP);
            const float *b[STRIP];
            if (p->read) p->read(p->w, read, DEEP, j, n, l, k);
            for (int32_t i = 0; i < STRIP; i++)
                b[i] = i >= n ? NULL : p->read ? read + i * DEEP : p->b + (j + i) * p->bj;
            const left_t left = {b, STRIP, 1, p->read ? 0 : l, NULL, 0};
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

/* y[n] += the sum of x[r] * b[r][n], four rows of b. */
static void add_four(float *y, int32_t n, const float *x, const float *const *b) {
    const float *b0 = b[0], *b1 = b[1], *b2 = b[2], *b3 = b[3];
    int32_t c = 0;
    for (; c + WHET_LANES <= n; c += WHET_LANES)
        whet_store(y + c,
                   whet_load(y + c) + ((x[0] * whet_load(b0 + c) + x[1] * whet_load(b1 + c)) +
                                       (x[2] * whet_load(b2 + c) + x[3] * whet_load(b3 + c))));
    for (; c < n; c++) y[c] += (x[0] * b0[c] + x[1] * b1[c]) + (x[2] * b2[c] + x[3] * b3[c]);
}

/* Columns [j, j + n) of y += a[l] * b[l], where rows of b are contiguous. What is read of w is at
 * most DEEP columns. */
static void add_columns(const whet_product_t *p, int32_t j, int32_t n) {
    const dense_t *d = p->who;
    float piece[4 * DEEP];
    for (int32_t i = 0; i < p->rows; i++) whet_fill(d->y + i * d->ldy + j, n, 0.0f);
    for (int32_t l = 0; l < p->depth; l += 4) {
        const int32_t count = whet_min(p->depth - l, 4);
        const float *b[4];
        if (p->read) p->read(p->w, piece, DEEP, l, count, j, n);
        for (int32_t r = 0; r < 4; r++) { /* the last again, instead of one past the end */
            const int32_t row = whet_min(r, count - 1);
            b[r] = p->read ? piece + row * DEEP : p->b + (l + row) * p->bl + j;
        }
        for (int32_t i = 0; i < p->rows; i++) {
            const float *a = d->a + i * d->lda + l;
            const float x[4] = {a[0], count > 1 ? a[1] : 0.0f, count > 2 ? a[2] : 0.0f,
                                count > 3 ? a[3] : 0.0f};
            add_four(d->y + i * d->ldy + j, n, x, b);
        }
    }
}

static void add_rows(const void *args, int32_t first, int32_t end) {
    const whet_product_t *p = args;
    const int32_t last = whet_min(end * WHET_TILE, p->columns);
    const int32_t most = p->read ? DEEP : p->columns;
    for (int32_t j = first * WHET_TILE; j < last; j += most)
        add_columns(p, j, whet_min(last - j, most));
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
        whet_share_work(p->read ? read_dots : dots, p, p->columns, work);
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
