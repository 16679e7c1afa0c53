/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = x ^ exponent
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_pow_f32(float *y, const float *x, int32_t n, float exponent) {
    if (exponent == 2.0f) { /* by far the most common case, and powf is slow */
        for (int32_t i = 0; i < n; i++) y[i] = x[i] * x[i];
        return;
    }
    if (exponent == 3.0f) {
        for (int32_t i = 0; i < n; i++) y[i] = x[i] * x[i] * x[i];
        return;
    }
    for (int32_t i = 0; i < n; i++) y[i] = powf(x[i], exponent);
}

/* formula    dx[i] = dy * exponent * x ^ (exponent - 1), 0 if the exponent is 0
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_pow_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float exponent) {
    if (exponent == 0.0f) {
        whet_fill(dx, n, 0.0f);
        return;
    }
    if (exponent == 2.0f) {
        for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * 2.0f * x[i];
        return;
    }
    if (exponent == 3.0f) {
        for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * 3.0f * x[i] * x[i];
        return;
    }
    for (int32_t i = 0; i < n; i++) dx[i] = dy[i] * exponent * powf(x[i], exponent - 1.0f);
}
