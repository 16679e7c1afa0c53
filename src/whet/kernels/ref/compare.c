/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = 1 if a > b, else 0
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_gt_f32(uint8_t *y, const float *a, const float *b, const whet_broadcast_t *d) {
    WHET_BINARY(y, a, b, d, u > v);
}

/* formula    y = 1 if a >= b, else 0
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_ge_f32(uint8_t *y, const float *a, const float *b, const whet_broadcast_t *d) {
    WHET_BINARY(y, a, b, d, u >= v);
}

/* formula    y = 1 if a == b, else 0
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_eq_f32(uint8_t *y, const float *a, const float *b, const whet_broadcast_t *d) {
    WHET_BINARY(y, a, b, d, u == v);
}

/* formula    y = 1 if a != b, else 0
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_ne_f32(uint8_t *y, const float *a, const float *b, const whet_broadcast_t *d) {
    WHET_BINARY(y, a, b, d, u != v);
}
