/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = min(max(x / 6 + 1/2, 0), 1)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_hardsigmoid_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = whet_clip(x[i] / 6.0f + 0.5f, 0.0f, 1.0f);
}

/* formula    dx[i] = 0 < y < 1 ? dy / 6 : 0
 * shapes     dx[n], dy[n], y[n]
 * aliasing   dx = dy or dx = y
 * rounding   float, element by element
 * workspace  none */
void whet_hardsigmoid_dx_f32(float *dx, const float *dy, const float *y, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = y[i] > 0.0f && y[i] < 1.0f ? dy[i] / 6.0f : 0.0f;
}
