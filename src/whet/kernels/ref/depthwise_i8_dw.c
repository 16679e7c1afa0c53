/* SPDX-License-Identifier: Apache-2.0 */
#define GRADIENT float
#define TOTAL    float
#include "whet_depthwise_dw.h"

/* formula    dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] - zero),
 *            padding adds nothing
 * shapes     dw[kh,kw,c], dy[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  none */
void whet_depthwise_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d) {
    all_taps(dw, dy, x, 1.0f, zero, d);
}
