/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[r,o] = b[o] + sum_i x[r,i] * w[o,i]
 * shapes     y[rows,o], x[rows,i], w[o,i], b[o] or NULL
 * aliasing   none
 * rounding   sums of WHET_DEPTH products or in WHET_TILE lanes
 * workspace  WHET_DEPTH * WHET_TILE floats of stack */
void whet_linear_f32(float *y, const float *x, const float *w, const float *b, int32_t rows,
                     int32_t i, int32_t o) {
    whet_fill_rows(y, b, rows, o);
    whet_matmul_nt(y, x, w, rows, o, i);
}

/* formula    y = min(max(linear(x, w, b) + add, low), high)
 * shapes     as linear; add[rows,o] or NULL
 * aliasing   y may be add
 * rounding   as linear, starting from add + b
 * workspace  WHET_DEPTH * WHET_TILE floats of stack */
void whet_linear_fused_f32(float *y, const float *x, const float *w, const float *b,
                           const float *add, float low, float high, int32_t rows, int32_t i,
                           int32_t o) {
    whet_start_rows(y, b, add, rows, o);
    whet_matmul_nt(y, x, w, rows, o, i);
    whet_clip_all(y, rows * o, low, high);
}

/* formula    dx[r,i] = sum_o dy[r,o] * w[o,i]
 * shapes     dx[rows,i], dy[rows,o], w[o,i]
 * aliasing   none
 * rounding   sums of WHET_DEPTH products
 * workspace  none */
void whet_linear_dx_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                        int32_t o) {
    whet_fill(dx, rows * i, 0.0f);
    whet_matmul(dx, i, dy, o, 1, w, i, rows, i, o);
}

/* formula    dw[o,i] = sum_r dy[r,o] * x[r,i]
 * shapes     dw[o,i], dy[rows,o], x[rows,i]
 * aliasing   none
 * rounding   sums of WHET_DEPTH products
 * workspace  none */
void whet_linear_dw_f32(float *dw, const float *dy, const float *x, int32_t rows, int32_t i,
                        int32_t o) {
    whet_fill(dw, o * i, 0.0f);
    whet_matmul(dw, i, dy, 1, o, x, i, o, i, rows);
}
