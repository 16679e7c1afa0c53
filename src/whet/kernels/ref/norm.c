/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = sqrt(sum of x^2 over the axes where d->step is 0)
 * shapes     y[outputs], x[dims]; outputs * count elements
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms, added with compensation
 * workspace  none */
void whet_norm_f32(float *y, const float *x, int32_t outputs, int32_t count,
                   const whet_reduce_t *d) {
    (void)count;
    whet_reduce(y, x, outputs, d, 1);
    for (int32_t i = 0; i < outputs; i++) y[i] = sqrtf(y[i]);
}

/* formula    dx = y > 0 ? dy * x / y : 0
 * shapes     dx[dims], x[dims]; dy and y walked by d->step
 * aliasing   none
 * rounding   float, element by element
 * workspace  none */
void whet_norm_dx_f32(float *dx, const float *dy, const float *x, const float *y,
                      const whet_reduce_t *d) {
    const int32_t axes = d->rank - 1, n = d->dims[axes], step = d->step[axes];
    int32_t index[WHET_MAX_RANK] = {0};
    do {
        const int32_t at = whet_offset(index, d->step, axes);
        for (int32_t i = 0; i < n; i++) {
            const float norm = y[at + i * step];
            dx[i] = norm > 0.0f ? dy[at + i * step] * x[i] / norm : 0.0f;
        }
        dx += n;
        x += n;
    } while (whet_next(index, d->dims, axes));
}
