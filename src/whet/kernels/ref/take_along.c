/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[o,j,i] = x[o,index[o,j,i],i]
 * shapes     y[outer,count,inner], index likewise, x[outer,n,inner]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_take_along_f32(float *y, const float *x, const int32_t *index, int32_t outer, int32_t n,
                         int32_t inner, int32_t count) {
    for (int32_t o = 0; o < outer; o++)
        for (int32_t j = 0; j < count; j++)
            for (int32_t i = 0; i < inner; i++) {
                const int32_t at = (o * count + j) * inner + i;
                y[at] = x[(o * n + index[at]) * inner + i];
            }
}

/* formula    dx = 0, then dx[o,index[o,j,i],i] += dy[o,j,i] for every j
 * shapes     dx[outer,n,inner], dy[outer,count,inner], index likewise
 * aliasing   none
 * rounding   float, in order of j
 * workspace  none */
void whet_take_along_dx_f32(float *dx, const float *dy, const int32_t *index, int32_t outer,
                            int32_t n, int32_t inner, int32_t count) {
    whet_fill(dx, outer * n * inner, 0.0f);
    for (int32_t o = 0; o < outer; o++)
        for (int32_t j = 0; j < count; j++)
            for (int32_t i = 0; i < inner; i++) {
                const int32_t at = (o * count + j) * inner + i;
                dx[(o * n + index[at]) * inner + i] += dy[at];
            }
}
