/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = x > 0 ? x : slope * x
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_leaky_relu_f32(float *y, const float *x, int32_t n, float slope) {
    for (int32_t i = 0; i < n; i++) y[i] = x[i] > 0.0f ? x[i] : slope * x[i];
}

/* formula    dx[i] = x > 0 ? dy : slope * dy
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, element by element
 * workspace  none */
void whet_leaky_relu_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float slope) {
    for (int32_t i = 0; i < n; i++) dx[i] = x[i] > 0.0f ? dy[i] : slope * dy[i];
}
