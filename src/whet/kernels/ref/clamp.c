/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = min(max(x, low), high)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   none
 * workspace  none */
void whet_clamp_f32(float *y, const float *x, int32_t n, float low, float high) {
    for (int32_t i = 0; i < n; i++) y[i] = whet_clip(x[i], low, high);
}

/* formula    dx[i] = low <= x <= high ? dy : 0
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   none
 * workspace  none */
void whet_clamp_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float low,
                       float high) {
    for (int32_t i = 0; i < n; i++) dx[i] = x[i] >= low && x[i] <= high ? dy[i] : 0.0f;
}
