/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = mean of x over the axes where d->step is 0
 * shapes     y[outputs], x[dims]; outputs * count elements
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms, added with compensation
 * workspace  none */
void whet_mean_f32(float *y, const float *x, int32_t outputs, int32_t count,
                   const whet_reduce_t *d) {
    whet_reduce(y, x, outputs, d, 0);
    for (int32_t i = 0; i < outputs; i++) y[i] /= (float)count;
}
