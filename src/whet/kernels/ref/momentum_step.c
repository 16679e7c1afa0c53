/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

typedef struct {
    float unit, lr_scale, weight_decay, momentum;
    int32_t nesterov;
} rule_t;

/* The integers are in q8, or in q32 if q8 is NULL, which is known at compile time. */
static inline void step(float *move, float *m_next, const int8_t *q8, const int32_t *q32,
                        const float *g, const float *scale, const float *m, const float *lr,
                        int32_t outer, int32_t n, int32_t inner, rule_t rule) {
    const float rate = *lr * rule.lr_scale;
    for (int32_t k = 0; k < outer * n; k++) {
        const float s = scale[k % n] * rule.unit, r = 1.0f / s;
        for (int32_t i = k * inner; i < (k + 1) * inner; i++) {
            const float q = (float)(q8 ? q8[i] : q32[i]);
            const float h = g[i] * r + q * s * rule.weight_decay;
            const float next = m[i] * rule.momentum + h;
            const float real = rule.nesterov ? h + next * rule.momentum : next;
            move[i] = real * r * rate;
            m_next[i] = next;
        }
    }
}

/* formula    h = g * r + q * s * weight_decay;  m' = m * momentum + h;
 *            move = (nesterov ? h + m' * momentum : m') * r * (lr * lr_scale),
 *            s = scale[c] * unit, r = 1 / s
 * shapes     move[outer,n,inner], m_next, q, g, m likewise, scale[n], lr[1]; c is the index of n
 * aliasing   move = g, m_next = m
 * rounding   float, from left to right
 * workspace  none */
void whet_momentum_step_i8(float *move, float *m_next, const int8_t *q, const float *g,
                           const float *scale, const float *m, const float *lr, int32_t outer,
                           int32_t n, int32_t inner, float unit, float lr_scale, float weight_decay,
                           float momentum, int32_t nesterov) {
    const rule_t rule = {unit, lr_scale, weight_decay, momentum, nesterov};
    step(move, m_next, q, NULL, g, scale, m, lr, outer, n, inner, rule);
}

/* The same for int32, which is converted to float first. */
void whet_momentum_step_i32(float *move, float *m_next, const int32_t *q, const float *g,
                            const float *scale, const float *m, const float *lr, int32_t outer,
                            int32_t n, int32_t inner, float unit, float lr_scale,
                            float weight_decay, float momentum, int32_t nesterov) {
    const rule_t rule = {unit, lr_scale, weight_decay, momentum, nesterov};
    step(move, m_next, NULL, q, g, scale, m, lr, outer, n, inner, rule);
}
