/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    m' = momentum * m + h, h = g + weight_decay * w;
 *            w' = w - lr * lr_scale * (nesterov ? h + momentum * m' : m')
 * shapes     next[n], m_next[n], w[n], g[n], m[n], lr[1]
 * aliasing   next = w, m_next = m
 * rounding   float, element by element
 * workspace  none */
void whet_sgd_momentum_f32(float *next, float *m_next, const float *w, const float *g,
                           const float *m, const float *lr, int32_t n, float lr_scale,
                           float weight_decay, float momentum, int32_t nesterov) {
    const float rate = *lr * lr_scale;
    for (int32_t i = 0; i < n; i++) {
        const float h = g[i] + weight_decay * w[i], moved = momentum * m[i] + h;
        next[i] = w[i] - rate * (nesterov ? h + momentum * moved : moved);
        m_next[i] = moved;
    }
}
