/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[o,j,i] = sum of x[o,k,i] over k <= j, or k >= j if reverse
 * shapes     y[outer,n,inner], x[outer,n,inner]
 * aliasing   y = x
 * rounding   compensated sums
 * workspace  none */
void whet_cumsum_f32(float *y, const float *x, int32_t outer, int32_t n, int32_t inner,
                     int32_t reverse) {
    for (int32_t o = 0; o < outer; o++)
        for (int32_t i = 0; i < inner; i++) {
            const int32_t start = o * n * inner + i;
            whet_sum_t sum = {0.0f, 0.0f};
            for (int32_t j = 0; j < n; j++) {
                const int32_t at = start + (reverse ? n - 1 - j : j) * inner;
                whet_add(&sum, x[at]);
                y[at] = sum.sum;
            }
        }
}
