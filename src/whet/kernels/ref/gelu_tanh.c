/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#define SCALE 1.5957692f /* 2 sqrt(2 / pi) */
#define CUBE  0.044715f

/* (1 + tanh(z)) / 2 = sigmoid(2 z) */
static inline float share_of(float x) { return whet_sigmoid(SCALE * (x + CUBE * x * x * x)); }

/* formula    y[i] = x * s, s = (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_gelu_tanh_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = x[i] * share_of(x[i]);
}

/* formula    dx[i] = dy * (s + x * s * (1 - s) * 2 sqrt(2/pi) * (1 + 3 * 0.044715 x^2))
 * shapes     dx[n], dy[n], x[n]
 * aliasing   dx = dy or dx = x
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_gelu_tanh_dx_f32(float *dx, const float *dy, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float s = share_of(x[i]), inner = SCALE * (1.0f + 3.0f * CUBE * x[i] * x[i]);
        dx[i] = dy[i] * (s + x[i] * s * (1.0f - s) * inner);
    }
}
