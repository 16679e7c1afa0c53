/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    w', m' = sgd_momentum(w, conv2d_dw(dy, x), m, lr)
 * shapes     as conv2d_dw and sgd_momentum; the gradient is computed and applied `rows` at a time
 * aliasing   next = w, m_next = m
 * rounding   as conv2d_dw and sgd_momentum
 * workspace  rows * kh * kw * c / groups floats */
void whet_dw_sgd_momentum_f32(float *next, float *m_next, const float *w, const float *dy,
                              const float *x, const float *m, const float *lr,
                              const whet_conv2d_t *d, int32_t rows, float lr_scale,
                              float weight_decay, float momentum, int32_t nesterov,
                              float *workspace) {
    const int32_t size = d->kh * d->kw * (d->c / d->groups);
    for (int32_t o = 0; o < d->o; o += rows) {
        const int32_t count = whet_min(rows, d->o - o), at = o * size;
        whet_conv2d_dw_rows_f32(workspace, dy, x, o, count, d);
        whet_sgd_momentum_f32(next + at, m_next + at, w + at, workspace, m + at, lr, count * size,
                              lr_scale, weight_decay, momentum, nesterov);
    }
}
