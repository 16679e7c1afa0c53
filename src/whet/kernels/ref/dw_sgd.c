/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    w' = sgd(w, conv2d_dw(dy, x), lr)
 * shapes     as conv2d_dw and sgd; the gradient is computed and applied `rows` at a time
 * aliasing   next = w
 * rounding   as conv2d_dw and sgd
 * workspace  rows * kh * kw * c / groups floats */
void whet_dw_sgd_f32(float *next, const float *w, const float *dy, const float *x, const float *lr,
                     const whet_conv2d_t *d, int32_t rows, float lr_scale, float weight_decay,
                     float *workspace) {
    const int32_t size = d->kh * d->kw * (d->c / d->groups);
    for (int32_t o = 0; o < d->o; o += rows) {
        const int32_t count = whet_min(rows, d->o - o), at = o * size;
        whet_conv2d_dw_rows_f32(workspace, dy, x, o, count, d);
        whet_sgd_f32(next + at, w + at, workspace, lr, count * size, lr_scale, weight_decay);
    }
}
