/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = min(max(x, low), high)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   none
 * workspace  none */
void whet_hardtanh_f32(float *y, const float *x, int32_t n, float low, float high) {
    for (int32_t i = 0; i < n; i++) y[i] = whet_clip(x[i], low, high);
}

/* formula    dx[i] = low < y < high ? dy : 0
 * shapes     dx[n], dy[n], y[n]
 * aliasing   dx = dy or dx = y
 * rounding   none
 * workspace  none */
void whet_hardtanh_dx_f32(float *dx, const float *dy, const float *y, int32_t n, float low,
                          float high) {
    for (int32_t i = 0; i < n; i++) dx[i] = y[i] > low && y[i] < high ? dy[i] : 0.0f;
}
