/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = sqrt(x)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_sqrt_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = sqrtf(x[i]);
}

/* formula    dx[i] = dy / (2 y)
 * shapes     dx[n], dy[n], y[n]
 * aliasing   dx = dy or dx = y
 * rounding   float, element by element
 * workspace  none */
void whet_sqrt_dx_f32(float *dx, const float *dy, const float *y, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = 0.5f * dy[i] / y[i];
}
