/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_head.h"
#include "whet_inline.h"

/* formula    top' = max(top, max x[r]), c = exp(top - top'); x' = exp(x - top'), y' = c * y,
 *            sum' = c * sum + the sum of x'
 * shapes     x[rows,n], y[rows,width] or NULL, top[rows], sum[rows,2]: each a sum and what it lost;
 *            a first part has top = -infinity and sum = 0
 * aliasing   x', y', top' and sum' replace x, y, top and sum
 * rounding   compensated sum
 * workspace  none */
void whet_softmax_some_f32(float *x, float *y, float *top, float *sum, int32_t rows, int32_t n,
                           int32_t width) {
    for (int32_t r = 0; r < rows; r++, x += n) {
        const float here = whet_top(x, n, 1), now = here > top[r] ? here : top[r];
        const float base = now > -INFINITY ? now : 0.0f, change = whet_exp(top[r] - base);
        whet_sum_t part = {0.0f, 0.0f}, total = {sum[2 * r] * change, sum[2 * r + 1] * change};
        for (int32_t i = 0; i < n; i++) x[i] = whet_exp(x[i] - base);
        WHET_SUM(&part, n, x[i]);
        whet_add(&total, part.sum);
        for (int32_t j = 0; j < width && y != NULL; j++) y[r * width + j] *= change;
        top[r] = now;
        sum[2 * r] = total.sum;
        sum[2 * r + 1] = total.lost;
    }
}

/* formula    dx[r,i] += sum_o dy[r,o] * w[o,i]
 * shapes     dx[rows,i], dy[rows,o], w[o,i]
 * aliasing   none
 * rounding   as linear_dx, starting from dx
 * workspace  none */
void whet_linear_dx_add_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                            int32_t o) {
    whet_matmul(dx, i, dy, o, 1, w, i, rows, i, o);
}
