/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_gelu_tanh.h"

#include "whet_kernels_lm.h"

/* formula    y[i] = a * s * b, s = (1 + tanh(sqrt(2/pi) * (a + 0.044715 a^3))) / 2
 * shapes     y[n], a[n], b[n]
 * aliasing   y = a or y = b
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_geglu_tanh_f32(float *y, const float *a, const float *b, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = a[i] * whet_gelu_share(a[i]) * b[i];
}

/* formula    da[i] = dy * b * (s + a * s * (1 - s) * 2 sqrt(2/pi) * (1 + 3 * 0.044715 a^2));
 *            db[i] = dy * a * s
 * shapes     da[n], db[n], dy[n], a[n], b[n]
 * aliasing   da = dy or da = a;  db = b
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_geglu_tanh_dx_f32(float *da, float *db, const float *dy, const float *a, const float *b,
                            int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float u = a[i], v = b[i], g = dy[i], s = whet_gelu_share(u);
        da[i] = g * v * whet_gelu_slope(u, s);
        db[i] = g * (u * s);
    }
}
