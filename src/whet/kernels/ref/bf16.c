/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_bf16.h"
#include "whet_stored.h"

#include "whet_matmul.h"

/* a[r,l] is at a[r*ar + l*al], b[l,j] at b[l*bl + j*bj]; or w[l,j] is b, w[j,l] if `across`. */
typedef struct {
    const float *a, *b;
    const whet_stored_t *w;
    int32_t ar, al, bl, bj, across;
} operands_t;

/* x rounded to bfloat16, to the nearest, ties to even. */
static inline float whet_round_bf16(float x) {
    const uint32_t bits = whet_bits_of(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return x; /* NaN */
    return whet_from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

/* panel[depth,width] = rows from l on and columns from j on of b, rounded. */
static void pack(float *panel, const operands_t *p, int32_t l, int32_t depth, int32_t j,
                 int32_t width) {
    const int32_t across = p->across; /* rows of w are columns of b */
    float piece[WHET_DEPTH];
    for (int32_t m = 0; p->w != NULL && m < (across ? width : depth); m++) {
        if (across)
            whet_read_stored(piece, p->w, j + m, l, depth);
        else
            whet_read_stored(piece, p->w, l + m, j, width);
        for (int32_t e = 0; e < (across ? depth : width); e++)
            panel[across ? e * width + m : m * width + e] = piece[e];
    }
    for (int32_t k = 0; p->w == NULL && k < depth; k++)
        for (int32_t c = 0; c < width; c++)
            panel[k * width + c] = p->b[(l + k) * p->bl + (j + c) * p->bj];
    for (int32_t e = 0; e < depth * width; e++) panel[e] = whet_round_bf16(panel[e]);
}

/* y[rows,width] += the products of `depth` from l on, for columns from j on. */
WHET_OWN_FRAME static void add_piece(float *y, int32_t ldy, const operands_t *p, int32_t rows,
                                     int32_t l, int32_t depth, int32_t j, int32_t width) {
    float panel[WHET_DEPTH * WHET_TILE], left[4 * WHET_DEPTH];
    pack(panel, p, l, depth, j, width);
    for (int32_t r = 0, some; r < rows; r += some) {
        some = whet_min(rows - r, 4);
        for (int32_t e = 0; e < some; e++)
            for (int32_t k = 0; k < depth; k++)
                left[e * WHET_DEPTH + k] = whet_round_bf16(p->a[(r + e) * p->ar + (l + k) * p->al]);
        whet_panel(y + r * ldy, ldy, left, WHET_DEPTH, 1, panel, width, some, width, depth);
    }
}

/* y[rows,columns] += a[rows,depth] b[depth,columns] */
static void add_product(float *y, const operands_t *p, int32_t rows, int32_t columns,
                        int32_t depth) {
    for (int32_t l = 0; l < depth; l += WHET_DEPTH)
        for (int32_t j = 0; j < columns; j += WHET_TILE)
            add_piece(y + j, columns, p, rows, l, whet_min(depth - l, WHET_DEPTH), j,
                      whet_min(columns - j, WHET_TILE));
}

/* formula    y = min(max(linear(x, w, b) + add, low), high)
 * shapes     y[rows,o], x[rows,i], w[o,i], b[o] or NULL, add[rows,o] or NULL
 * aliasing   y may be add
 * rounding   x and w to bfloat16; sums of up to WHET_DEPTH products are added one after the other
 * workspace  WHET_DEPTH * (WHET_TILE + 5) floats of stack */
void whet_linear_bf16_f32(float *y, const float *x, const float *w, const float *b,
                          const float *add, float low, float high, int32_t rows, int32_t i,
                          int32_t o) {
    const operands_t p = {x, w, NULL, i, 1, 1, i, 1};
    whet_start_rows(y, b, add, rows, o);
    add_product(y, &p, rows, o, i);
    whet_clip_all(y, rows * o, low, high);
}

/* formula    dx[r,i] = sum_o dy[r,o] * w[o,i]
 * shapes     dx[rows,i], dy[rows,o], w[o,i]
 * aliasing   none
 * rounding   dy and w to bfloat16; sums as linear_bf16
 * workspace  as linear_bf16 */
void whet_linear_bf16_dx_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                             int32_t o) {
    const operands_t p = {dy, w, NULL, o, 1, i, 1, 0};
    whet_fill(dx, rows * i, 0.0f);
    add_product(dx, &p, rows, i, o);
}

/* formula    dw[o,i] = sum_r dy[r,o] * x[r,i]
 * shapes     dw[o,i], dy[rows,o], x[rows,i]
 * aliasing   none
 * rounding   dy and x to bfloat16; sums as linear_bf16
 * workspace  as linear_bf16 */
void whet_linear_bf16_dw_f32(float *dw, const float *dy, const float *x, int32_t rows, int32_t i,
                             int32_t o) {
    const operands_t p = {dy, x, NULL, 1, o, i, 1, 0};
    whet_fill(dw, o * i, 0.0f);
    add_product(dw, &p, o, i, rows);
}

/* formula    as linear_bf16
 * shapes     as linear_bf16, w[o,i] as it is stored
 * aliasing   y may be add
 * rounding   as linear_bf16 of the same w in floats, to the bit
 * workspace  as linear_bf16 */
void whet_linear_stored_bf16_f32(float *y, const float *x, const void *w, const float *table,
                                 const float *b, const float *add, float low, float high,
                                 int32_t rows, int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    const operands_t p = {x, NULL, &from, i, 1, 1, i, 1};
    whet_start_rows(y, b, add, rows, o);
    add_product(y, &p, rows, o, i);
    whet_clip_all(y, rows * o, low, high);
}

/* formula    as linear_bf16_dx
 * shapes     as linear_bf16_dx, w[o,i] as it is stored
 * aliasing   none
 * rounding   as linear_bf16_dx of the same w in floats, to the bit
 * workspace  as linear_bf16 */
void whet_linear_stored_bf16_dx_f32(float *dx, const float *dy, const void *w, const float *table,
                                    int32_t rows, int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    const operands_t p = {dy, NULL, &from, o, 1, i, 1, 0};
    whet_fill(dx, rows * i, 0.0f);
    add_product(dx, &p, rows, i, o);
}
