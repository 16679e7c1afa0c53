/* SPDX-License-Identifier: Apache-2.0 */
#define GRADIENT int8_t
#define DW_ROWS(dw, u, first, count) \
    whet_conv2d_i8_dw_rows_i8(dw, (u)->dy, (u)->x, (u)->by, (u)->zero, first, count, (u)->d)
#include "whet_dw_sgd.h"

/* formula    q' = settle_nearest(q, sgd_step(q, conv2d_i8_dw_i8(dy, x, by), scale, lr))
 * shapes     as those; groups = 1; the gradient is computed and applied `rows` at a time
 * aliasing   next = q
 * rounding   as those
 * workspace  rows * kh * kw * c floats */
void whet_dw_sgd_nearest_i8_i8(int8_t *next, const int8_t *q, const int8_t *dy, const int8_t *x,
                               const float *by, const float *scale, const float *lr, int32_t zero,
                               const whet_conv2d_t *d, int32_t rows, int32_t scales, float unit,
                               float lr_scale, float weight_decay, float *workspace) {
    const update_t u = {q, dy,   x,      by,   scale,    lr,          zero,
                        d, rows, scales, unit, lr_scale, weight_decay};
    nearest(next, &u, workspace);
}

/* formula    q', c' = settle_carry(q, sgd_step(q, conv2d_i8_dw_i8(dy, x, by), scale, lr), c)
 * shapes     as those; groups = 1; the gradient is computed and applied `rows` at a time
 * aliasing   next = q, c_next = c
 * rounding   as those
 * workspace  rows * kh * kw * c floats */
void whet_dw_sgd_carry_i8_i8(int8_t *next, int8_t *c_next, const int8_t *q, const int8_t *dy,
                             const int8_t *x, const float *by, const float *scale, const float *lr,
                             const int8_t *c, int32_t zero, const whet_conv2d_t *d, int32_t rows,
                             int32_t scales, float unit, float lr_scale, float weight_decay,
                             float *workspace) {
    const update_t u = {q, dy,   x,      by,   scale,    lr,          zero,
                        d, rows, scales, unit, lr_scale, weight_decay};
    carried(next, c_next, &u, c, workspace);
}
