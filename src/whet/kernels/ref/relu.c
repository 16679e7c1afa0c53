/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = max(x, 0)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   none
 * workspace  none */
void whet_relu_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

/* formula    dx[i] = dy if y > 0, else 0
 * shapes     dx[n], dy[n], y[n]
 * aliasing   dx = dy or dx = y
 * rounding   none
 * workspace  none */
void whet_relu_dx_f32(float *dx, const float *dy, const float *y, int32_t n) {
    for (int32_t i = 0; i < n; i++) dx[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}
