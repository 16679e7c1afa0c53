/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include <math.h>

typedef struct {
    float unit, lr_scale, weight_decay, fresh1, fresh2, eps;
    int32_t decoupled;
} rule_t;

/* 1 / (1 - (1 - fresh)^t), by squaring in double: the same bits everywhere, unlike pow. */
static float correction(float fresh, float t) {
    double power = 1.0, base = 1.0 - (double)fresh;
    for (uint32_t n = (uint32_t)t; n > 0; n >>= 1) {
        if (n & 1) power *= base;
        base *= base;
    }
    return (float)(1.0 / (1.0 - power));
}

/* The integers are in q8, or in q32 if q8 is NULL, which is known at compile time. */
static inline void step(float *move, float *m_next, float *v_next, const int8_t *q8,
                        const int32_t *q32, const float *g, const float *scale, const float *m,
                        const float *v, const float *t, const float *lr, int32_t outer, int32_t n,
                        int32_t inner, rule_t rule) {
    const float rate = *lr * rule.lr_scale, shrink = rate * rule.weight_decay;
    const float c1 = correction(rule.fresh1, *t), c2 = correction(rule.fresh2, *t);
    for (int32_t k = 0; k < outer * n; k++) {
        const float s = scale[k % n] * rule.unit, r = 1.0f / s;
        for (int32_t i = k * inner; i < (k + 1) * inner; i++) {
            const float q = (float)(q8 ? q8[i] : q32[i]), real = g[i] * r;
            const float h = rule.decoupled ? real : real + q * s * rule.weight_decay;
            const float mean = m[i] + rule.fresh1 * (h - m[i]);
            const float square = v[i] + rule.fresh2 * (h * h - v[i]);
            const float change = mean * c1 / (sqrtf(square * c2) + rule.eps) * r * rate;
            move[i] = rule.decoupled ? change + q * shrink : change;
            m_next[i] = mean;
            v_next[i] = square;
        }
    }
}

/* formula    h = g * r + q * s * weight_decay, or g * r if decoupled;
 *            m' = m + fresh1 * (h - m);  v' = v + fresh2 * (h^2 - v);
 *            move = m' * c1 / (sqrt(v' * c2) + eps) * r * rate, and q * (rate * weight_decay) if
 *            decoupled; c = 1 / (1 - (1 - fresh)^t), s = scale[c] * unit, r = 1 / s,
 *            rate = lr * lr_scale
 * shapes     move[outer,n,inner], m_next, v_next, q, g, m, v likewise, scale[n], t[1], lr[1]; c is
 *            the index of n
 * aliasing   move = g, m_next = m, v_next = v
 * rounding   float, from left to right; c in double
 * workspace  none */
void whet_adam_step_i8(float *move, float *m_next, float *v_next, const int8_t *q, const float *g,
                       const float *scale, const float *m, const float *v, const float *t,
                       const float *lr, int32_t outer, int32_t n, int32_t inner, float unit,
                       float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                       int32_t decoupled) {
    const rule_t rule = {unit, lr_scale, weight_decay, fresh1, fresh2, eps, decoupled};
    step(move, m_next, v_next, q, NULL, g, scale, m, v, t, lr, outer, n, inner, rule);
}

/* The same for int32, which is converted to float first. */
void whet_adam_step_i32(float *move, float *m_next, float *v_next, const int32_t *q, const float *g,
                        const float *scale, const float *m, const float *v, const float *t,
                        const float *lr, int32_t outer, int32_t n, int32_t inner, float unit,
                        float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                        int32_t decoupled) {
    const rule_t rule = {unit, lr_scale, weight_decay, fresh1, fresh2, eps, decoupled};
    step(move, m_next, v_next, NULL, q, g, scale, m, v, t, lr, outer, n, inner, rule);
}
