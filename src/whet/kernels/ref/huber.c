/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = |x| < delta ? x^2 / 2 : delta * (|x| - delta / 2)
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_huber_f32(float *y, const float *x, int32_t n, float delta) {
    for (int32_t i = 0; i < n; i++) {
        const float size = fabsf(x[i]);
        y[i] = size < delta ? 0.5f * size * size : delta * (size - 0.5f * delta);
    }
}

/* formula    dx[i] = dy * min(max(x, -delta), delta)
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, element by element
 * workspace  none */
void whet_huber_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float delta) {
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * whet_clip(x[i], -delta, delta);
}
