/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    m' = (1 - fresh1) * m + fresh1 * h;  v' = (1 - fresh2) * v + fresh2 * h^2;
 *            w' = w - rate * (m' / c1) / (sqrt(v' / c2) + eps), c = 1 - (1 - fresh)^t,
 *            rate = lr * lr_scale; h = g + weight_decay * w, or h = g and w shrinks by
 *            1 - rate * weight_decay first if decoupled
 * shapes     next[n], m_next[n], v_next[n], w[n], g[n], m[n], v[n], t[1], lr[1]
 * aliasing   next = w, m_next = m, v_next = v
 * rounding   float; c in double from 1 - beta, because 1 - 0.999f has lost five digits
 * workspace  none */
void whet_adam_f32(float *next, float *m_next, float *v_next, const float *w, const float *g,
                   const float *m, const float *v, const float *t, const float *lr, int32_t n,
                   float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                   int32_t decoupled) {
    const float c1 = (float)whet_correction(fresh1, *t), c2 = (float)whet_correction(fresh2, *t);
    const float rate = *lr * lr_scale, step = rate / c1, scale = whet_rsqrt(c2);
    const float keep = decoupled ? 1.0f - rate * weight_decay : 1.0f;
    const float decay = decoupled ? 0.0f : weight_decay;
    for (int32_t i = 0; i < n; i++) {
        const float h = g[i] + decay * w[i];
        const float mean = m[i] + fresh1 * (h - m[i]), square = v[i] + fresh2 * (h * h - v[i]);
        next[i] = w[i] * keep - step * mean / (sqrtf(square) * scale + eps);
        m_next[i] = mean;
        v_next[i] = square;
    }
}
