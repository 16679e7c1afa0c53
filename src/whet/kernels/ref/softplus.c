/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = z > threshold ? x : log(1 + exp(z)) / beta, z = beta * x
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_softplus_f32(float *y, const float *x, int32_t n, float beta, float threshold) {
    for (int32_t i = 0; i < n; i++) {
        const float z = beta * x[i], top = z > 0.0f ? z : 0.0f;
        y[i] = z > threshold ? x[i] : (top + log1pf(expf(-fabsf(z)))) / beta;
    }
}

/* formula    dx[i] = z > threshold ? dy : dy / (1 + exp(-z)), z = beta * x
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_softplus_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float beta,
                          float threshold) {
    for (int32_t i = 0; i < n; i++) {
        const float z = beta * x[i];
        dx[i] = z > threshold ? dy[i] : dy[i] * whet_sigmoid(z);
    }
}
