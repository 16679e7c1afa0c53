/* SPDX-License-Identifier: Apache-2.0 */
#define GRADIENT int8_t
#define TOTAL    int32_t
#include "whet_conv_dx.h"

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] += dy[n,p,q,o] * w[o,r,s,i] * scale, from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,o], w[o,kh,kw,c/groups], scale[1]
 * aliasing   none
 * rounding   the sum, which fits int32, to float; then one product
 * workspace  none */
void whet_conv2d_i8_dx_i8(float *dx, const int8_t *dy, const int8_t *w, const float *scale,
                          const whet_conv2d_t *d) {
    all_pixels(dx, dy, w, *scale, d);
}
