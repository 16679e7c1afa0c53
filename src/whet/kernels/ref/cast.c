/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels.h"

/* formula    y = x
 * shapes     y[n], x[n]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_cast_u8_i32(int32_t *y, const uint8_t *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = x[i];
}

/* formula    y = x
 * shapes     y[n], x[n]
 * aliasing   none
 * rounding   to the nearest float; exact up to 2^24
 * workspace  none */
void whet_cast_i32_f32(float *y, const int32_t *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = (float)x[i];
}

/* formula    y = x
 * shapes     y[n], x[n]
 * aliasing   none
 * rounding   towards 0; what does not fit saturates, NaN becomes 0
 * workspace  none */
void whet_cast_f32_i32(int32_t *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (x[i] >= 2147483648.0f)
            y[i] = INT32_MAX;
        else if (x[i] <= -2147483648.0f)
            y[i] = INT32_MIN;
        else
            y[i] = x[i] == x[i] ? (int32_t)x[i] : 0;
    }
}
