/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_blocks.h"
#include "whet_threads.h"

/* y = a' b, summed down the columns of a: weight gradients. */
enum { POINTERS = 4096, ALONG = 128 }; /* rows of b in a panel */

MULTIPLY(going_down, 1)

typedef struct {
    const whet_outer_t *p;
    int32_t tiles, columns; /* of columns, over all taps; whether threads split them */
} outer_share_t;

/* Rows [i, end) of the columns from c on, of one tap: adds the products of rows [l, l + k). */
static void outer_tile(const whet_outer_t *p, const float *const *b, int32_t l, int32_t k,
                       int32_t t, int32_t c, int32_t i, int32_t end) {
    float panel[ALONG * WHET_TILE], tile[WHET_ROWS * WHET_TILE];
    const int32_t n = whet_min(p->columns - c, WHET_TILE), h = halves_of(n);
    const int32_t wide = h * WHET_LANES / 2;
    const int32_t direct = p->b != NULL && c + wide <= p->ldb;
    const float *right = direct ? p->b + l * p->ldb + c : panel;
    for (int32_t m = 0; m < k && !direct; m++) {
        const float *row = p->b != NULL ? p->b + (l + m) * p->ldb : b[t * k + m];
        copy_row(panel + m * wide, row == NULL ? zeros : row + c, n, wide);
    }
    const int32_t onto = p->onto || l > 0;
    for (int32_t rows; i < end; i += rows) {
        rows = next_rows(end - i);
        const left_t left = {NULL, 0, 1, 0, p->a + l * p->lda + i, p->lda};
        going_down(tile, wide, right, direct ? p->ldb : wide, k, &left, NULL, rows, h);
        for (int32_t r = 0; r < rows; r++) {
            float *y = p->y + (i + r) * p->ldy + t * p->columns + c;
            const float *u = tile + r * wide;
            int32_t j = 0;
            for (; j + WHET_LANES <= n; j += WHET_LANES)
                whet_store(y + j, onto ? whet_load(y + j) + whet_load(u + j) : whet_load(u + j));
            for (; j + WHET_LANES / 2 <= n; j += WHET_LANES / 2) {
                const whet_half_t v = whet_load_half(u + j);
                whet_store_half(y + j, onto ? whet_load_half(y + j) + v : v);
            }
            for (; j < n; j++) y[j] = onto ? y[j] + u[j] : u[j];
        }
    }
}

static void some_of_outer(const void *args, int32_t first, int32_t end) {
    const outer_share_t *s = args;
    const whet_outer_t *p = s->p;
    const int32_t along = whet_min(ALONG, POINTERS / p->taps), per_tap = s->tiles / p->taps;
    const int32_t rows = s->columns ? p->rows : row_after(p->rows, end);
    const float *b[POINTERS];
    for (int32_t l = 0, k; l < p->depth; l += k) {
        k = whet_min(p->depth - l, along);
        if (p->b == NULL) p->find(p->who, b, l, k);
        for (int32_t i = s->columns ? first : 0; i < (s->columns ? end : s->tiles); i++)
            outer_tile(p, b, l, k, i / per_tap, i % per_tap * WHET_TILE,
                       s->columns ? 0 : first * WHET_ROWS, rows);
    }
}

/* formula    see whet_outer_t
 * shapes     y[rows,taps,columns], a[depth,rows], b[depth,taps,columns]; taps <= POINTERS
 * aliasing   none
 * rounding   sums of up to ALONG products, one after the other
 * workspace  some 50 KB of stack */
void whet_outer(const whet_outer_t *p) {
    const int64_t work = (int64_t)p->rows * p->columns * p->taps * p->depth;
    const int32_t tiles = p->taps * ((p->columns + WHET_TILE - 1) / WHET_TILE);
    const int32_t blocks = row_units(p->rows);
    const outer_share_t s = {p, tiles, tiles >= blocks};
    whet_share_work(some_of_outer, &s, s.columns ? tiles : blocks, work);
}

/* formula    y[i,j] = sum_l a[l,i] * b[l,j], or y += that if `onto`
 * shapes     y[m,n], a[k,m], b[k,n]
 * aliasing   none
 * rounding   as outer
 * workspace  as outer */
void whet_dense_outer(float *y, const float *a, const float *b, int32_t m, int32_t n, int32_t k,
                      int32_t onto) {
    const whet_outer_t p = {.rows = m,
                            .columns = n,
                            .taps = 1,
                            .depth = k,
                            .a = a,
                            .lda = m,
                            .b = b,
                            .ldb = n,
                            .y = y,
                            .ldy = n,
                            .onto = onto};
    whet_outer(&p);
}
