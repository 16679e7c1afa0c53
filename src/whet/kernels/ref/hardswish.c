/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = x * min(max(x / 6 + 1/2, 0), 1)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_hardswish_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = x[i] * whet_clip(x[i] / 6.0f + 0.5f, 0.0f, 1.0f);
}

/* formula    dx[i] = dy * (x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 1/2)
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, element by element
 * workspace  none */
void whet_hardswish_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float s = x[i] / 3.0f + 0.5f;
        dx[i] = dy[i] * (x[i] <= -3.0f ? 0.0f : x[i] >= 3.0f ? 1.0f : s);
    }
}
