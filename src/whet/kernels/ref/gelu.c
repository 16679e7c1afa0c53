/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = x * Phi(x), Phi the normal distribution
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the error of whet_normal
 * workspace  none */
void whet_gelu_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = x[i] * whet_normal(x[i]).below;
}

/* formula    dx[i] = dy * (Phi(x) + x * exp(-x^2 / 2) / sqrt(2 pi))
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the error of whet_normal
 * workspace  none */
void whet_gelu_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const whet_normal_t normal = whet_normal(x[i]);
        dx[i] = dy[i] * (normal.below + x[i] * normal.density);
    }
}
