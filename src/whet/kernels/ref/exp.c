/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = exp(x)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   that of whet_exp
 * workspace  none */
void whet_exp_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = whet_exp(x[i]);
}

/* formula    dx[i] = dy * y
 * shapes     dx[n], dy[n], y[n]
 * aliasing   dx = dy or dx = y
 * rounding   float, element by element
 * workspace  none */
void whet_exp_dx_f32(float *dx, const float *dy, const float *y, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * y[i];
}
