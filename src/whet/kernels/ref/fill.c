/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = value
 * shapes     y[n]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_fill_f32(float *y, int32_t n, float value) { whet_fill(y, n, value); }
