/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = log(x)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   that of whet_log
 * workspace  none */
void whet_log_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = whet_log(x[i]);
}

/* formula    dx[i] = dy / x
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, element by element
 * workspace  none */
void whet_log_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] / x[i];
}
