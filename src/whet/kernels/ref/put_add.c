/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = base, then y[o,index[j],:] += u[o,j,:]; an index may occur several times
 * shapes     y[outer,n,inner], base[outer,n,inner], u[outer,count,inner], index[count]
 * aliasing   y = base
 * rounding   added in the order of j
 * workspace  none */
void whet_put_add_f32(float *y, const float *base, const float *u, const int32_t *index,
                      int32_t outer, int32_t n, int32_t inner, int32_t count) {
    if (y != base) memcpy(y, base, (size_t)(outer * n * inner) * sizeof *y);
    for (int32_t o = 0; o < outer; o++)
        for (int32_t j = 0; j < count; j++) {
            float *to = y + (o * n + index[j]) * inner;
            const float *from = u + (o * count + j) * inner;
            for (int32_t i = 0; i < inner; i++) to[i] += from[i];
        }
}
