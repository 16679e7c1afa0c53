/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = a - b
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   any operand of the same shape as y
 * rounding   float, element by element
 * workspace  none */
void whet_sub_f32(float *y, const float *a, const float *b, const whet_broadcast_t *d) {
    WHET_BINARY(y, a, b, d, u - v);
}
