/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_lm.h"

/* formula    y[i] = a * s * b, s = 1 / (1 + exp(-a))
 * shapes     y[n], a[n], b[n]
 * aliasing   y = a or y = b
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_swiglu_f32(float *y, const float *a, const float *b, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = a[i] * whet_sigmoid(a[i]) * b[i];
}

/* formula    da[i] = dy * b * s * (1 + a * (1 - s));  db[i] = dy * a * s
 * shapes     da[n], db[n], dy[n], a[n], b[n]
 * aliasing   da = dy or da = a;  db = b
 * rounding   float, with the error of whet_exp
 * workspace  none */
void whet_swiglu_dx_f32(float *da, float *db, const float *dy, const float *a, const float *b,
                        int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float u = a[i], v = b[i], g = dy[i], s = whet_sigmoid(u);
        da[i] = g * v * s * (1.0f + u * (1.0f - s));
        db[i] = g * (u * s);
    }
}
