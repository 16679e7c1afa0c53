/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = max(a, b); NaN if either is
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   any operand of the same shape as y
 * rounding   none
 * workspace  none */
void whet_maximum_f32(float *y, const float *a, const float *b, const whet_broadcast_t *d) {
    WHET_BINARY(y, a, b, d, u > v || u != u ? u : v);
}

/* formula    da = a > b ? dy : a == b ? dy / 2 : 0
 * shapes     da[dims], dy[dims]; a and b broadcast to it
 * aliasing   any operand of the same shape as da
 * rounding   none
 * workspace  none */
void whet_maximum_da_f32(float *da, const float *dy, const float *a, const float *b,
                         const whet_broadcast_t *d) {
    WHET_TERNARY(da, float, dy, a, b, d, u > v ? s : u == v ? 0.5f * s : 0.0f);
}
