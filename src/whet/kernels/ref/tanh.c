/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = tanh(x)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the error of whet_tanh
 * workspace  none */
void whet_tanh_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = whet_tanh(x[i]);
}

/* formula    dx[i] = dy * (1 - y^2)
 * shapes     dx[n], dy[n], y[n]
 * aliasing   dx = dy or dx = y
 * rounding   float, element by element
 * workspace  none */
void whet_tanh_dx_f32(float *dx, const float *dy, const float *y, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * (1.0f - y[i] * y[i]);
}
