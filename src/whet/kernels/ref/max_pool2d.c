/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_max_pool.h"

#define IS_NAN(v) ((v) != (v))
POOL(pool_f32, window_f32, float, IS_NAN)

/* formula    y = max of x over the window;  index = the position of the first maximum in it
 * shapes     y[n,p,q,c], x[n,h,w,c], index[(n*p*q*c * bits + 7) / 8]; its last bits, if left over,
 *            are 0
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_max_pool2d_f32(float *y, uint8_t *index, const float *x, int32_t bits,
                         const whet_pool2d_t *d) {
    pool_f32(y, index, x, bits, d);
}

/* formula    dx = 0, then dx at the position in index += dy
 * shapes     dx[n,h,w,c], dy[n,p,q,c], index[(n*p*q*c * bits + 7) / 8]
 * aliasing   none
 * rounding   added window by window
 * workspace  none */
void whet_max_pool2d_dx_f32(float *dx, const float *dy, const uint8_t *index, int32_t bits,
                            const whet_pool2d_t *d) {
    max_pool_dx(dx, dy, index, bits, d);
}
