/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = the largest integer that is not above x
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   exact
 * workspace  none */
void whet_floor_f32(float *y, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = floorf(x[i]);
}
