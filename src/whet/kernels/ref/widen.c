/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels.h"

/* formula    y[o][c][i] = x[o][c][i] * scale[c]
 * shapes     y[outer][channels][inner], x[outer][channels][inner], scale[channels]
 * aliasing   none
 * rounding   one product
 * workspace  none */
void whet_widen_i8(float *y, const int8_t *x, const float *scale, int32_t outer, int32_t channels,
                   int32_t inner) {
    for (int32_t o = 0; o < outer; o++)
        for (int32_t c = 0; c < channels; c++)
            for (int32_t i = 0; i < inner; i++) *y++ = (float)*x++ * scale[c];
}
