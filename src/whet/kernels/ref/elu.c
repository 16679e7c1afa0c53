/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = scale * (x > 0 ? x : alpha * (exp(input_scale * x) - 1))
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_elu_f32(float *y, const float *x, int32_t n, float alpha, float scale,
                  float input_scale) {
    for (int32_t i = 0; i < n; i++)
        y[i] = scale * (x[i] > 0.0f ? x[i] : alpha * expm1f(input_scale * x[i]));
}

/* formula    dx[i] = dy * scale * (x > 0 ? 1 : alpha * input_scale * exp(input_scale * x))
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_elu_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float alpha,
                     float scale, float input_scale) {
    for (int32_t i = 0; i < n; i++)
        dx[i] =
            dy[i] * scale * (x[i] > 0.0f ? 1.0f : alpha * input_scale * expf(input_scale * x[i]));
}
