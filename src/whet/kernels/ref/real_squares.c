/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"
#include "whet_kernels_i8.h"

static inline float real(float g, float scale, float unit) { return g * (1.0f / (scale * unit)); }

/* formula    y = sum of (g * r)^2, r = 1 / (scale[c] * unit)
 * shapes     y[1], g[outer,n,inner], scale[n]; c is the index of n
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms per lane, added with compensation
 * workspace  none */
void whet_real_squares_f32(float *y, const float *g, const float *scale, int32_t outer, int32_t n,
                           int32_t inner, float unit) {
    whet_sum_t sum = {0.0f, 0.0f};
    WHET_SUM(&sum, outer * n * inner,
             real(g[i], scale[i / inner % n], unit) * real(g[i], scale[i / inner % n], unit));
    *y = sum.sum;
}
