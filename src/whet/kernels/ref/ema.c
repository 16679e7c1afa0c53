/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    s' = (1 - momentum) * s + momentum * correction * x
 * shapes     next[n], s[n], x[n]
 * aliasing   next = s
 * rounding   float, element by element
 * workspace  none */
void whet_ema_f32(float *next, const float *s, const float *x, int32_t n, float momentum,
                  float correction) {
    const float keep = 1.0f - momentum, gain = momentum * correction;
    for (int32_t i = 0; i < n; i++) next[i] = keep * s[i] + gain * x[i];
}
