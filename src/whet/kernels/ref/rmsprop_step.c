/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include <math.h>

typedef struct {
    float unit, lr_scale, weight_decay, fresh, eps, momentum;
} rule_t;

typedef struct {
    float *v_next, *a_next, *m_next;
    const float *v, *a, *m;
} moments_t;

/* The whole numbers are in q8, or in q32 if that is NULL, which the compiler knows. */
static inline void step(float *move, const int8_t *q8, const int32_t *q32, const float *g,
                        const float *scale, moments_t to, const float *lr, int32_t outer, int32_t n,
                        int32_t inner, rule_t rule) {
    const float rate = *lr * rule.lr_scale;
    for (int32_t k = 0; k < outer * n; k++) {
        const float s = scale[k % n] * rule.unit, r = 1.0f / s;
        for (int32_t i = k * inner; i < (k + 1) * inner; i++) {
            const float q = (float)(q8 ? q8[i] : q32[i]);
            const float h = g[i] * r + q * s * rule.weight_decay;
            const float square = to.v[i] + rule.fresh * (h * h - to.v[i]);
            float spread = square;
            to.v_next[i] = square;
            if (to.a) {
                const float mean = to.a[i] + rule.fresh * (h - to.a[i]);
                const float rest = square - mean * mean;
                spread = rest < 0.0f ? 0.0f : rest;
                to.a_next[i] = mean;
            }
            float change = h / (sqrtf(spread) + rule.eps);
            if (to.m) {
                change = rule.momentum * to.m[i] + change;
                to.m_next[i] = change;
            }
            move[i] = change * r * rate;
        }
    }
}

/* formula    h = g * r + q * s * weight_decay;  v' = v + fresh * (h^2 - v);
 *            a' = a + fresh * (h - a);  d = h / (sqrt(v' - a'^2, at least 0) + eps);
 *            m' = momentum * m + d;  move = m' * r * (lr * lr_scale), s = scale[c] * unit,
 *            r = 1 / s; without a, v' alone is under the root; without m, d is taken for m'
 * shapes     move[outer,n,inner], v_next, a_next, m_next, q, g, v, a, m likewise, scale[n], lr[1];
 *            c is the index of n; a and a_next, or m and m_next, may be NULL
 * aliasing   move = g, v_next = v, a_next = a, m_next = m
 * rounding   float, from left to right
 * workspace  none */
void whet_rmsprop_step_i8(float *move, float *v_next, float *a_next, float *m_next, const int8_t *q,
                          const float *g, const float *scale, const float *v, const float *a,
                          const float *m, const float *lr, int32_t outer, int32_t n, int32_t inner,
                          float unit, float lr_scale, float weight_decay, float fresh, float eps,
                          float momentum) {
    const rule_t rule = {unit, lr_scale, weight_decay, fresh, eps, momentum};
    const moments_t moments = {v_next, a_next, m_next, v, a, m};
    step(move, q, NULL, g, scale, moments, lr, outer, n, inner, rule);
}

/* The same for wider numbers, which become floats first. */
void whet_rmsprop_step_i32(float *move, float *v_next, float *a_next, float *m_next,
                           const int32_t *q, const float *g, const float *scale, const float *v,
                           const float *a, const float *m, const float *lr, int32_t outer,
                           int32_t n, int32_t inner, float unit, float lr_scale, float weight_decay,
                           float fresh, float eps, float momentum) {
    const rule_t rule = {unit, lr_scale, weight_decay, fresh, eps, momentum};
    const moments_t moments = {v_next, a_next, m_next, v, a, m};
    step(move, NULL, q, g, scale, moments, lr, outer, n, inner, rule);
}
