/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"
#include "whet_live.h"

/* formula    v', m' = sgd_momentum(v, linear_live_dw(dy, x, bits), m, lr)
 * shapes     as linear_live_dw and sgd_momentum; the gradient is computed and applied `block`
 *            elements at a time
 * aliasing   next = v, m_next = m
 * rounding   as linear_live_dw and sgd_momentum
 * workspace  block floats */
void whet_live_sgd_momentum_f32(float *next, float *m_next, const float *v, const float *dy,
                                const float *x, const uint8_t *bits, const float *m,
                                const float *lr, int32_t rows, int32_t i, int32_t o, int32_t block,
                                float lr_scale, float weight_decay, float momentum,
                                int32_t nesterov, float *workspace) {
    whet_live_t at = whet_first_live(bits, i, o);
    for (int32_t k = 0, count; (count = whet_live_dw(workspace, block, &at, dy, x, rows, o)) > 0;
         k += count)
        whet_sgd_momentum_f32(next + k, m_next + k, v + k, workspace, m + k, lr, count, lr_scale,
                              weight_decay, momentum, nesterov);
}
