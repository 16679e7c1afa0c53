/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = -(t * log(x) + (1 - t) * log(1 - x)), the logarithms no less than -100
 * shapes     y[n], x[n], t[n]
 * aliasing   y = x or y = t
 * rounding   float, with the errors of libm
 * workspace  none */
void whet_bce_f32(float *y, const float *x, const float *t, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float low = whet_clip(log1pf(-x[i]), -100.0f, 0.0f);
        const float high = whet_clip(logf(x[i]), -100.0f, 0.0f);
        y[i] = (t[i] - 1.0f) * low - t[i] * high;
    }
}

/* formula    dx[i] = dy * (x - t) / max(x * (1 - x), 1e-12)
 * shapes     dx[n], dy[n], x[n], t[n]
 * aliasing   dx = dy, dx = x or dx = t
 * rounding   float
 * workspace  none */
void whet_bce_dx_f32(float *dx, const float *dy, const float *x, const float *t, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        dx[i] = dy[i] * (x[i] - t[i]) / whet_clip(x[i] * (1.0f - x[i]), 1e-12f, 1.0f);
}
