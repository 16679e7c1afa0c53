/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_moments.h"

/* formula    m' = (1 - fresh1) * m + fresh1 * h;  v' = (1 - fresh2) * v + fresh2 * h^2;
 *            w' = w - rate * (m' / c1) / (sqrt(v' / c2) + eps), c = 1 - (1 - fresh)^t,
 *            rate = lr * lr_scale; h = g + weight_decay * w, or h = g and w shrinks by
 *            1 - rate * weight_decay first if decoupled
 * shapes     next[n], m_next[n], v_next[n], w[n], g[n], m[n], v[n], t[1], lr[1]; elements from
 *            `first` on of a parameter
 * aliasing   next = w, m_next = m, v_next = v
 * rounding   as adam in float; then m' and v' down or up to bf16, in turn (whet_to_bf16)
 * workspace  none */
void whet_adam_bf16(float *next, uint16_t *m_next, uint16_t *v_next, const float *w, const float *g,
                    const uint16_t *m, const uint16_t *v, const float *t, const float *lr,
                    int32_t n, int32_t first, float lr_scale, float weight_decay, float fresh1,
                    float fresh2, float eps, int32_t decoupled) {
    const float c1 = (float)whet_correction(fresh1, *t), c2 = (float)whet_correction(fresh2, *t);
    const float rate = *lr * lr_scale, step = rate / c1, scale = whet_rsqrt(c2);
    const float keep = decoupled ? 1.0f - rate * weight_decay : 1.0f;
    const float decay = decoupled ? 0.0f : weight_decay;
    const uint32_t turn = (uint32_t)first + (uint32_t)*t;
    for (int32_t i = 0; i < n; i++) {
        const float h = g[i] + decay * w[i], old = whet_from_bf16(m[i]);
        const float spread = whet_from_bf16(v[i]);
        const float mean = old + fresh1 * (h - old), square = spread + fresh2 * (h * h - spread);
        next[i] = w[i] * keep - step * mean / (sqrtf(square) * scale + eps);
        m_next[i] = whet_to_bf16(mean, turn + (uint32_t)i);
        v_next[i] = whet_to_bf16(square, turn + (uint32_t)i);
    }
}
