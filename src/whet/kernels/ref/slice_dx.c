/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    dx = 0, except dx[o, start + step * i, :] = dy[o, i, :]
 * shapes     dx[outer,size,inner], dy[outer,n,inner]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_slice_dx_f32(float *dx, const float *dy, int32_t outer, int32_t n, int32_t inner,
                       int32_t size, int32_t start, int32_t step) {
    whet_fill(dx, outer * size * inner, 0.0f);
    for (int32_t o = 0; o < outer; o++)
        for (int32_t i = 0; i < n; i++)
            memcpy(dx + (o * size + start + step * i) * inner, dy + (o * n + i) * inner,
                   (size_t)inner * sizeof *dx);
}
