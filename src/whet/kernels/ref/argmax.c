/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels.h"

/* formula    y[o,i] = the first j at which x[o,j,i] is largest; a NaN counts as larger than all
 * shapes     y[outer,inner], x[outer,n,inner]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_argmax_f32(int32_t *y, const float *x, int32_t outer, int32_t n, int32_t inner) {
    for (int32_t o = 0; o < outer; o++)
        for (int32_t i = 0; i < inner; i++) {
            const float *row = x + o * n * inner + i;
            int32_t best = 0;
            for (int32_t j = 1; j < n; j++) {
                const float most = row[best * inner], here = row[j * inner];
                if (most == most && !(here <= most)) best = j;
            }
            y[o * inner + i] = best;
        }
}
