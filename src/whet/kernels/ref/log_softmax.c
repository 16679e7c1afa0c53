/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = x - max - log of the sum of exp(x - max) along the middle axis
 * shapes     y[outer,n,inner], x[outer,n,inner]
 * aliasing   y = x
 * rounding   compensated sum
 * workspace  none */
void whet_log_softmax_f32(float *y, const float *x, int32_t outer, int32_t n, int32_t inner) {
    for (int32_t line = 0; line < outer * inner; line++) {
        const int32_t start = line / inner * n * inner + line % inner;
        const float *u = x + start;
        const float top = whet_top(u, n, inner), shift = whet_log(whet_exp_sum(u, n, inner, top));
        float *v = y + start;
        for (int32_t i = 0; i < n; i++) v[i * inner] = (u[i * inner] - top) - shift;
    }
}

/* formula    dx = dy - exp(y) * sum of dy along the middle axis
 * shapes     dx[outer,n,inner], dy[outer,n,inner], y[outer,n,inner]
 * aliasing   dx = dy
 * rounding   compensated sum
 * workspace  none */
void whet_log_softmax_dx_f32(float *dx, const float *dy, const float *y, int32_t outer, int32_t n,
                             int32_t inner) {
    for (int32_t line = 0; line < outer * inner; line++) {
        const int32_t start = line / inner * n * inner + line % inner;
        const float *u = dy + start, *v = y + start;
        float *out = dx + start;
        whet_sum_t total = {0.0f, 0.0f};
        WHET_SUM(&total, n, u[i * inner]);
        for (int32_t i = 0; i < n; i++)
            out[i * inner] = u[i * inner] - whet_exp(v[i * inner]) * total.sum;
    }
}
