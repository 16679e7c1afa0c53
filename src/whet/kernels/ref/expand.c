/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = scale * x, broadcast along the axes where d->step is 0
 * shapes     y[dims]; x walked by d->step
 * aliasing   none
 * rounding   float, element by element
 * workspace  none */
void whet_expand_f32(float *y, const float *x, float scale, const whet_reduce_t *d) {
    const int32_t axes = d->rank - 1, n = d->dims[axes];
    int32_t index[WHET_MAX_RANK] = {0};
    do {
        const float *from = x + whet_offset(index, d->step, axes);
        if (d->step[axes] == 0)
            whet_fill(y, n, scale * *from);
        else
            for (int32_t i = 0; i < n; i++) y[i] = scale * from[i];
        y += n;
    } while (whet_next(index, d->dims, axes));
}
