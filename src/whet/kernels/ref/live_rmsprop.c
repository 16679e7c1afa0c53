/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_live.h"

/* formula    v', s', a', m' = rmsprop(v, linear_live_dw(dy, x, bits), s, a, m, lr)
 * shapes     as linear_live_dw and rmsprop; the gradient is computed and applied `block`
 *            elements at a time
 * aliasing   next = v, s_next = s, a_next = a, m_next = m
 * rounding   as linear_live_dw and rmsprop
 * workspace  block floats */
void whet_live_rmsprop_f32(float *next, float *s_next, float *a_next, float *m_next, const float *v,
                           const float *dy, const float *x, const uint8_t *bits, const float *s,
                           const float *a, const float *m, const float *lr, int32_t rows, int32_t i,
                           int32_t o, int32_t block, float lr_scale, float weight_decay,
                           float fresh, float eps, float momentum, float *workspace) {
    whet_live_t at = whet_first_live(bits, i, o);
    for (int32_t k = 0, count; (count = whet_live_dw(workspace, block, &at, dy, x, rows, o)) > 0;
         k += count)
        whet_rmsprop_f32(next + k, s_next + k, a ? a_next + k : NULL, m ? m_next + k : NULL, v + k,
                         workspace, s + k, a ? a + k : NULL, m ? m + k : NULL, lr, count, lr_scale,
                         weight_decay, fresh, eps, momentum);
}
