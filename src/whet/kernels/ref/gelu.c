/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#define SQRT_HALF 0.70710678f /* sqrt(1/2) */
#define DENSITY_0 0.39894228f /* 1 / sqrt(2 pi) */

/* formula    y[i] = x * Phi(x), Phi(x) = erfc(-x / sqrt(2)) / 2
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_gelu_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = 0.5f * x[i] * erfcf(-x[i] * SQRT_HALF);
}

/* formula    dx[i] = dy * (Phi(x) + x * exp(-x^2 / 2) / sqrt(2 pi))
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_gelu_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float density = DENSITY_0 * expf(-0.5f * x[i] * x[i]);
        dx[i] = dy[i] * (0.5f * erfcf(-x[i] * SQRT_HALF) + x[i] * density);
    }
}
