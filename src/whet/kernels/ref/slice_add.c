/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = base, then y[o,start + j,:] += u[o,j,:]
 * shapes     y[outer,n,inner], base[outer,n,inner], u[outer,count,inner]
 * aliasing   y = base
 * rounding   one sum
 * workspace  none */
void whet_slice_add_f32(float *y, const float *base, const float *u, int32_t outer, int32_t n,
                        int32_t inner, int32_t count, int32_t start) {
    if (y != base) memcpy(y, base, (size_t)(outer * n * inner) * sizeof *y);
    for (int32_t o = 0; o < outer; o++) {
        float *to = y + (o * n + start) * inner;
        const float *from = u + o * count * inner;
        for (int32_t i = 0; i < count * inner; i++) to[i] += from[i];
    }
}
