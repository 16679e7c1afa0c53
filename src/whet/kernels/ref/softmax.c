/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = exp(x - max) / sum of exp(x - max) along the middle axis
 * shapes     y[outer,n,inner], x[outer,n,inner]
 * aliasing   y = x
 * rounding   compensated sum
 * workspace  none */
void whet_softmax_f32(float *y, const float *x, int32_t outer, int32_t n, int32_t inner) {
    for (int32_t line = 0; line < outer * inner; line++) {
        const int32_t start = line / inner * n * inner + line % inner;
        const float *u = x + start;
        const float top = whet_top(u, n, inner);
        float *v = y + start;
        whet_sum_t sum = {0.0f, 0.0f};
        for (int32_t i = 0; i < n; i++) v[i * inner] = whet_exp(u[i * inner] - top);
        WHET_SUM(&sum, n, v[i * inner]);
        const float scale = 1.0f / sum.sum;
        for (int32_t i = 0; i < n; i++) v[i * inner] *= scale;
    }
}

/* formula    dx = y * (dy - sum of dy * y along the middle axis)
 * shapes     dx[outer,n,inner], dy[outer,n,inner], y[outer,n,inner]
 * aliasing   dx = dy
 * rounding   compensated sum
 * workspace  none */
void whet_softmax_dx_f32(float *dx, const float *dy, const float *y, int32_t outer, int32_t n,
                         int32_t inner) {
    for (int32_t line = 0; line < outer * inner; line++) {
        const int32_t start = line / inner * n * inner + line % inner;
        const float *u = dy + start, *v = y + start;
        float *out = dx + start;
        whet_sum_t dot = {0.0f, 0.0f};
        WHET_SUM(&dot, n, u[i * inner] * v[i * inner]);
        for (int32_t i = 0; i < n; i++) out[i * inner] = v[i * inner] * (u[i * inner] - dot.sum);
    }
}
