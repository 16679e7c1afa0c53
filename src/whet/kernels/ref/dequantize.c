/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

/* formula    y = (x - zero) * scale
 * shapes     y[n], x[n]
 * aliasing   none
 * rounding   one product
 * workspace  none */
void whet_dequantize_i8(float *y, const int8_t *x, int32_t n, float scale, int32_t zero) {
    for (int32_t i = 0; i < n; i++) y[i] = (float)(x[i] - zero) * scale;
}

/* formula    y = (x - zero) * scale
 * shapes     y[n], x[n]
 * aliasing   none
 * rounding   the difference wraps around and is rounded to float; one product
 * workspace  none */
void whet_dequantize_i32(float *y, const int32_t *x, int32_t n, float scale, int32_t zero) {
    for (int32_t i = 0; i < n; i++)
        y[i] = (float)(int32_t)((uint32_t)x[i] - (uint32_t)zero) * scale;
}
