/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = erf(x)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the error of whet_erf
 * workspace  none */
void whet_erf_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = whet_erf(x[i]);
}

/* formula    dx[i] = dy * 2 / sqrt(pi) * exp(-x^2)
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_erf_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * 1.12837917f * whet_exp(-x[i] * x[i]);
}
