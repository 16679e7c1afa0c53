/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#define SCALE 0.79788456f /* sqrt(2/pi) */
#define CUBE  0.044715f

static float tanh_of(float x) { return tanhf(SCALE * (x + CUBE * x * x * x)); }

/* formula    y[i] = x/2 * (1 + t), t = tanh(sqrt(2/pi) * (x + 0.044715 x^3))
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_gelu_tanh_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1.0f + tanh_of(x[i]));
}

/* formula    dx[i] = dy * ((1 + t) / 2 + x/2 * (1 - t^2) * sqrt(2/pi) * (1 + 3 * 0.044715 x^2))
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_gelu_tanh_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float t = tanh_of(x[i]), inner = SCALE * (1.0f + 3.0f * CUBE * x[i] * x[i]);
        dx[i] = dy[i] * 0.5f * (1.0f + t + x[i] * (1.0f - t * t) * inner);
    }
}
