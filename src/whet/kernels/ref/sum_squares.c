/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = sum of x[i]^2
 * shapes     y[1], x[n]
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms per lane, added with compensation
 * workspace  none */
void whet_sum_squares_f32(float *y, const float *x, int32_t n) {
    whet_sum_t sum = {0.0f, 0.0f};
    WHET_SUM(&sum, n, x[i] * x[i]);
    *y = sum.sum;
}
