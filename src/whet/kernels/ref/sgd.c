/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    w' = w - lr * lr_scale * (g + weight_decay * w)
 * shapes     next[n], w[n], g[n], lr[1]
 * aliasing   next = w
 * rounding   float, element by element
 * workspace  none */
void whet_sgd_f32(float *next, const float *w, const float *g, const float *lr, int32_t n,
                  float lr_scale, float weight_decay) {
    const float rate = *lr * lr_scale;
    for (int32_t i = 0; i < n; i++) next[i] = w[i] - rate * (g[i] + weight_decay * w[i]);
}
