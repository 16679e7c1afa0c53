/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_moments.h"

/* formula    w', m', v' = adam(w, conv2d_dw(dy, x), m, v, t, lr); m and v are bf16
 * shapes     as conv2d_dw and adam; the gradient is computed and applied `rows` at a time
 * aliasing   next = w, m_next = m, v_next = v
 * rounding   as conv2d_dw and adam_bf16
 * workspace  rows * kh * kw * c / groups floats */
void whet_dw_adam_bf16(float *next, uint16_t *m_next, uint16_t *v_next, const float *w,
                       const float *dy, const float *x, const uint16_t *m, const uint16_t *v,
                       const float *t, const float *lr, const whet_conv2d_t *d, int32_t rows,
                       float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                       int32_t decoupled, float *workspace) {
    const int32_t size = d->kh * d->kw * (d->c / d->groups);
    for (int32_t o = 0; o < d->o; o += rows) {
        const int32_t count = whet_min(rows, d->o - o), at = o * size;
        whet_conv2d_dw_rows_f32(workspace, dy, x, o, count, d);
        whet_adam_bf16(next + at, m_next + at, v_next + at, w + at, workspace, m + at, v + at, t,
                       lr, count * size, at, lr_scale, weight_decay, fresh1, fresh2, eps,
                       decoupled);
    }
}
