/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    w', v', a', m' = rmsprop(w, conv2d_dw(dy, x), v, a, m, lr)
 * shapes     as conv2d_dw and rmsprop; `rows` of the gradient are made and spent at a time
 * aliasing   next = w, v_next = v, a_next = a, m_next = m
 * rounding   as conv2d_dw and rmsprop
 * workspace  rows * kh * kw * c / groups floats */
void whet_dw_rmsprop_f32(float *next, float *v_next, float *a_next, float *m_next, const float *w,
                         const float *dy, const float *x, const float *v, const float *a,
                         const float *m, const float *lr, const whet_conv2d_t *d, int32_t rows,
                         float lr_scale, float weight_decay, float fresh, float eps, float momentum,
                         float *workspace) {
    const int32_t size = d->kh * d->kw * (d->c / d->groups);
    for (int32_t o = 0; o < d->o; o += rows) {
        const int32_t count = whet_min(rows, d->o - o), at = o * size;
        whet_conv2d_dw_rows_f32(workspace, dy, x, o, count, d);
        whet_rmsprop_f32(next + at, v_next + at, a ? a_next + at : NULL, m ? m_next + at : NULL,
                         w + at, workspace, v + at, a ? a + at : NULL, m ? m + at : NULL, lr,
                         count * size, lr_scale, weight_decay, fresh, eps, momentum);
    }
}
