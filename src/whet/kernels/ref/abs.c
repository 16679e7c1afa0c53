/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = |x|
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   none
 * workspace  none */
void whet_abs_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = fabsf(x[i]);
}

/* formula    dx[i] = dy * sign(x)
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   none
 * workspace  none */
void whet_abs_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = x[i] > 0.0f ? dy[i] : x[i] < 0.0f ? -dy[i] : 0.0f;
}
