/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = sin(x)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_sin_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = sinf(x[i]);
}

/* formula    dx[i] = dy * cos(x)
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_sin_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * cosf(x[i]);
}
