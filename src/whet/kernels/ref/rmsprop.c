/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    h = g + weight_decay * w;  v' = v + fresh * (h^2 - v);  a' = a + fresh * (h - a);
 *            d = h / (sqrt(v' - a'^2, at least 0) + eps);  m' = momentum * m + d;
 *            w' = w - lr * lr_scale * m'; without a, v' alone is under the root; without m, d is
 *            taken for m'; fresh = 1 - alpha
 * shapes     next[n], v_next[n], a_next[n], m_next[n], w[n], g[n], v[n], a[n], m[n], lr[1]; a and
 *            a_next, or m and m_next, may be NULL
 * aliasing   next = w, v_next = v, a_next = a, m_next = m
 * rounding   float, element by element
 * workspace  none */
void whet_rmsprop_f32(float *next, float *v_next, float *a_next, float *m_next, const float *w,
                      const float *g, const float *v, const float *a, const float *m,
                      const float *lr, int32_t n, float lr_scale, float weight_decay, float fresh,
                      float eps, float momentum) {
    const float rate = *lr * lr_scale;
    for (int32_t i = 0; i < n; i++) {
        const float h = g[i] + weight_decay * w[i], square = v[i] + fresh * (h * h - v[i]);
        float spread = square;
        v_next[i] = square;
        if (a) {
            const float mean = a[i] + fresh * (h - a[i]), rest = square - mean * mean;
            spread = rest < 0.0f ? 0.0f : rest;
            a_next[i] = mean;
        }
        float change = h / (sqrtf(spread) + eps);
        if (m) {
            change = momentum * m[i] + change;
            m_next[i] = change;
        }
        next[i] = w[i] - rate * change;
    }
}
