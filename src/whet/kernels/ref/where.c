/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = c ? a : b
 * shapes     y[dims]; c, a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_where_f32(float *y, const uint8_t *c, const float *a, const float *b,
                    const whet_broadcast_t *d) {
    WHET_TERNARY(y, uint8_t, c, a, b, d, s ? u : v);
}
