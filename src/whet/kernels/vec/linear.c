/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[r,o] = b[o] + sum_i x[r,i] * w[o,i]
 * shapes     y[rows,o], x[rows,i], w[o,i], b[o] or NULL
 * aliasing   none
 * rounding   as whet_dense_product
 * workspace  some 70 KB of stack */
void whet_linear_f32(float *y, const float *x, const float *w, const float *b, int32_t rows,
                     int32_t i, int32_t o) {
    whet_linear_fused_f32(y, x, w, b, NULL, -INFINITY, INFINITY, rows, i, o);
}

/* formula    y = min(max(linear(x, w, b) + add, low), high)
 * shapes     as linear; add[rows,o] or NULL
 * aliasing   y may be add
 * rounding   as linear, plus b, plus add
 * workspace  some 70 KB of stack */
void whet_linear_fused_f32(float *y, const float *x, const float *w, const float *b,
                           const float *add, float low, float high, int32_t rows, int32_t i,
                           int32_t o) {
    whet_product_t p = {.rows = rows, .columns = o, .depth = i, .b = w, .bl = 1, .bj = i};
    p.bias = b;
    p.add = add;
    p.low = low;
    p.high = high;
    whet_dense_product(y, o, x, i, &p);
}

/* formula    dx[r,i] = sum_o dy[r,o] * w[o,i]
 * shapes     dx[rows,i], dy[rows,o], w[o,i]
 * aliasing   none
 * rounding   as whet_dense_product
 * workspace  some 70 KB of stack */
void whet_linear_dx_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                        int32_t o) {
    whet_product_t p = {.rows = rows, .columns = i, .depth = o, .b = w, .bl = i, .bj = 1};
    p.low = -INFINITY;
    p.high = INFINITY;
    whet_dense_product(dx, i, dy, o, &p);
}

/* formula    dw[o,i] = sum_r dy[r,o] * x[r,i]
 * shapes     dw[o,i], dy[rows,o], x[rows,i]
 * aliasing   none
 * rounding   as whet_outer
 * workspace  some 50 KB of stack */
void whet_linear_dw_f32(float *dw, const float *dy, const float *x, int32_t rows, int32_t i,
                        int32_t o) {
    whet_dense_outer(dw, dy, x, o, i, rows, 0);
}
