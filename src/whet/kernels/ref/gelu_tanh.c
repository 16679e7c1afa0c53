/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_gelu_tanh.h"

/* formula    y[i] = x * s, s = (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_gelu_tanh_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = x[i] * whet_gelu_share(x[i]);
}

/* formula    dx[i] = dy * (s + x * s * (1 - s) * 2 sqrt(2/pi) * (1 + 3 * 0.044715 x^2))
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_gelu_tanh_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * whet_gelu_slope(x[i], whet_gelu_share(x[i]));
}
