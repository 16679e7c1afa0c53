/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = x * s, s = 1 / (1 + exp(-x))
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_silu_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = x[i] * whet_sigmoid(x[i]);
}

/* formula    dx[i] = dy * s * (1 + x * (1 - s))
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_silu_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float s = whet_sigmoid(x[i]);
        dx[i] = dy[i] * s * (1.0f + x[i] * (1.0f - s));
    }
}
