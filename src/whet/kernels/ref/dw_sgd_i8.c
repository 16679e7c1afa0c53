/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_i8.h"

/* The move of rows [o, o + count) of q, from their gradient. */
static void move_of(float *move, const int8_t *q, const float *dy, const int8_t *x,
                    const float *scale, const float *lr, int32_t zero, const whet_conv2d_t *d,
                    int32_t o, int32_t count, int32_t scales, float unit, float lr_scale,
                    float weight_decay) {
    const int32_t size = d->kh * d->kw * d->c;
    whet_conv2d_i8_dw_rows(move, dy, x, zero, o, count, d);
    if (scales == 1)
        whet_sgd_step_i8(move, q + o * size, move, scale, lr, 1, 1, count * size, unit, lr_scale,
                         weight_decay);
    else
        whet_sgd_step_i8(move, q + o * size, move, scale + o, lr, 1, count, size, unit, lr_scale,
                         weight_decay);
}

/* formula    q' = settle_nearest(q, sgd_step(q, conv2d_i8_dw(dy, x), scale, lr))
 * shapes     as those; groups = 1; `rows` of the gradient are made and spent at a time
 * aliasing   next = q
 * rounding   as those
 * workspace  rows * kh * kw * c floats */
void whet_dw_sgd_nearest_i8(int8_t *next, const int8_t *q, const float *dy, const int8_t *x,
                            const float *scale, const float *lr, int32_t zero,
                            const whet_conv2d_t *d, int32_t rows, int32_t scales, float unit,
                            float lr_scale, float weight_decay, float *workspace) {
    const int32_t size = d->kh * d->kw * d->c;
    for (int32_t o = 0; o < d->o; o += rows) {
        const int32_t count = whet_min(rows, d->o - o), at = o * size;
        move_of(workspace, q, dy, x, scale, lr, zero, d, o, count, scales, unit, lr_scale,
                weight_decay);
        whet_settle_nearest_i8(next + at, q + at, workspace, count * size);
    }
}

/* formula    q', c' = settle_carry(q, sgd_step(q, conv2d_i8_dw(dy, x), scale, lr), c)
 * shapes     as those; groups = 1; `rows` of the gradient are made and spent at a time
 * aliasing   next = q, c_next = c
 * rounding   as those
 * workspace  rows * kh * kw * c floats */
void whet_dw_sgd_carry_i8(int8_t *next, int8_t *c_next, const int8_t *q, const float *dy,
                          const int8_t *x, const float *scale, const float *lr, const int8_t *c,
                          int32_t zero, const whet_conv2d_t *d, int32_t rows, int32_t scales,
                          float unit, float lr_scale, float weight_decay, float *workspace) {
    const int32_t size = d->kh * d->kw * d->c;
    for (int32_t o = 0; o < d->o; o += rows) {
        const int32_t count = whet_min(rows, d->o - o), at = o * size;
        move_of(workspace, q, dy, x, scale, lr, zero, d, o, count, scales, unit, lr_scale,
                weight_decay);
        whet_settle_carry_i8_i8(next + at, c_next + at, q + at, workspace, c + at, count * size);
    }
}
