/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_lm.h"

/* formula    y[i] = a * Phi(a) * b, Phi the normal distribution
 * shapes     y[n], a[n], b[n]
 * aliasing   y = a or y = b
 * rounding   float, with the error of whet_normal
 * workspace  none */
void whet_geglu_f32(float *y, const float *a, const float *b, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = a[i] * whet_normal(a[i]).below * b[i];
}

/* formula    da[i] = dy * b * (Phi(a) + a * exp(-a^2 / 2) / sqrt(2 pi));  db[i] = dy * a * Phi(a)
 * shapes     da[n], db[n], dy[n], a[n], b[n]
 * aliasing   da = dy or da = a;  db = b
 * rounding   float, with the error of whet_normal
 * workspace  none */
void whet_geglu_dx_f32(float *da, float *db, const float *dy, const float *a, const float *b,
                       int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float u = a[i], v = b[i], g = dy[i];
        const whet_normal_t normal = whet_normal(u);
        da[i] = g * v * (normal.below + u * normal.density);
        db[i] = g * (u * normal.below);
    }
}
