/* SPDX-License-Identifier: Apache-2.0 */
#define GRADIENT int16_t
#include "whet_depthwise_dx.h"

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c] * scale, from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c], scale[1]
 * aliasing   none
 * rounding   the sum, which fits int32, to float; then one product
 * workspace  none */
void whet_depthwise_i8_dx_i16(float *dx, const int16_t *dy, const int8_t *w, const float *scale,
                              const whet_conv2d_t *d) {
    all_pixels(dx, dy, w, *scale, d);
}
