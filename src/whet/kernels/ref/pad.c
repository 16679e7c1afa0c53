/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = value, except y[start + sum of index * step] = x in order
 * shapes     y[n], x[dims]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_pad_f32(float *y, const float *x, int32_t n, int32_t start, float value,
                  const whet_walk_t *walk) {
    const int32_t axes = walk->rank - 1, row = walk->dims[axes], step = walk->step[axes];
    int32_t index[WHET_MAX_RANK] = {0};
    whet_fill(y, n, value);
    do {
        float *to = y + start + whet_offset(index, walk->step, axes);
        for (int32_t i = 0; i < row; i++) to[i * step] = x[i];
        x += row;
    } while (whet_next(index, walk->dims, axes));
}
