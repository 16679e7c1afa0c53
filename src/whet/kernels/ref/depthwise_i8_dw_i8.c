/* SPDX-License-Identifier: Apache-2.0 */
#define GRADIENT int8_t
#define TOTAL    int32_t
#include "whet_depthwise_dw.h"

/* formula    dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] - zero)
 *            * scale, padding adds nothing
 * shapes     dw[kh,kw,c], dy[n,p,q,c], x[n,h,w,c], scale[1]
 * aliasing   none
 * rounding   the sum, which fits int32, to float; then one product
 * workspace  none */
void whet_depthwise_i8_dw_i8(float *dw, const int8_t *dy, const int8_t *x, const float *scale,
                             int32_t zero, const whet_conv2d_t *d) {
    all_taps(dw, dy, x, *scale, zero, d);
}
