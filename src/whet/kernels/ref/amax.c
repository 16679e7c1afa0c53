/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = max of x over the axes where d->step is 0
 * shapes     y[outputs], x[dims]; outputs * count elements
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_amax_f32(float *y, const float *x, int32_t outputs, int32_t count,
                   const whet_reduce_t *d) {
    const int32_t axes = d->rank - 1, n = d->dims[axes], step = d->step[axes];
    int32_t index[WHET_MAX_RANK] = {0};
    (void)count;
    whet_fill(y, outputs, -INFINITY);
    do {
        float *out = y + whet_offset(index, d->step, axes);
        for (int32_t i = 0; i < n; i++)
            if (x[i] > out[i * step] || x[i] != x[i]) out[i * step] = x[i];
        x += n;
    } while (whet_next(index, d->dims, axes));
}
