/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

/* The integers are in q8, or in q32 if q8 is NULL, which is known at compile time. */
static inline void step(float *move, const int8_t *q8, const int32_t *q32, const float *g,
                        const float *scale, const float *lr, int32_t outer, int32_t n,
                        int32_t inner, float unit, float lr_scale, float weight_decay) {
    const float rate = *lr * lr_scale;
    for (int32_t k = 0; k < outer * n; k++) {
        const float s = scale[k % n] * unit, r = 1.0f / s;
        for (int32_t i = k * inner; i < (k + 1) * inner; i++) {
            const float q = (float)(q8 ? q8[i] : q32[i]);
            const float h = g[i] * r + q * s * weight_decay;
            move[i] = h * r * rate;
        }
    }
}

/* formula    move = (g * r + q * s * weight_decay) * r * (lr * lr_scale), s = scale[c] * unit,
 *            r = 1 / s
 * shapes     move[outer,n,inner], q, g likewise, scale[n], lr[1]; c is the index of n
 * aliasing   move = g
 * rounding   float, from left to right
 * workspace  none */
void whet_sgd_step_i8(float *move, const int8_t *q, const float *g, const float *scale,
                      const float *lr, int32_t outer, int32_t n, int32_t inner, float unit,
                      float lr_scale, float weight_decay) {
    step(move, q, NULL, g, scale, lr, outer, n, inner, unit, lr_scale, weight_decay);
}

/* The same for int32, which is converted to float first. */
void whet_sgd_step_i32(float *move, const int32_t *q, const float *g, const float *scale,
                       const float *lr, int32_t outer, int32_t n, int32_t inner, float unit,
                       float lr_scale, float weight_decay) {
    step(move, NULL, q, g, scale, lr, outer, n, inner, unit, lr_scale, weight_decay);
}
