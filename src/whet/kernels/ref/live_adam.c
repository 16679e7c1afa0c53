/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_live.h"

/* formula    v', m', s' = adam(v, linear_live_dw(dy, x, bits), m, s, t, lr)
 * shapes     as linear_live_dw and adam; the gradient is computed and applied `block` elements at
 *            a time
 * aliasing   next = v, m_next = m, s_next = s
 * rounding   as linear_live_dw and adam
 * workspace  block floats */
void whet_live_adam_f32(float *next, float *m_next, float *s_next, const float *v, const float *dy,
                        const float *x, const uint8_t *bits, const float *m, const float *s,
                        const float *t, const float *lr, int32_t rows, int32_t i, int32_t o,
                        int32_t block, float lr_scale, float weight_decay, float fresh1,
                        float fresh2, float eps, int32_t decoupled, float *workspace) {
    whet_live_t at = whet_first_live(bits, i, o);
    for (int32_t k = 0, count; (count = whet_live_dw(workspace, block, &at, dy, x, rows, o)) > 0;
         k += count)
        whet_adam_f32(next + k, m_next + k, s_next + k, v + k, workspace, m + k, s + k, t, lr,
                      count, lr_scale, weight_decay, fresh1, fresh2, eps, decoupled);
}
