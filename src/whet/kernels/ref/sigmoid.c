/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = 1 / (1 + exp(-x))
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_sigmoid_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = whet_sigmoid(x[i]);
}

/* formula    dx[i] = dy * y * (1 - y)
 * shapes     dx[n], dy[n], y[n]
 * aliasing   dx = dy or dx = y
 * rounding   float, element by element
 * workspace  none */
void whet_sigmoid_dx_f32(float *dx, const float *dy, const float *y, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * y[i] * (1.0f - y[i]);
}
