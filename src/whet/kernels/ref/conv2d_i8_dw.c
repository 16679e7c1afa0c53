/* SPDX-License-Identifier: Apache-2.0 */
#define GRADIENT float
#define TOTAL    float
#include "whet_conv_dw.h"

/* formula    dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero),
 *            padding adds nothing
 * shapes     dw[o,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  none */
void whet_conv2d_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                       const whet_conv2d_t *d) {
    rows_of(dw, dy, x, 1.0f, zero, 0, d->o, d);
}

/* formula    rows [first, first + count) of conv2d_i8_dw, without groups
 * shapes     dw[count,kh,kw,c], the others as conv2d_i8_dw
 * aliasing   none
 * rounding   as conv2d_i8_dw
 * workspace  none */
void whet_conv2d_i8_dw_rows(float *dw, const float *dy, const int8_t *x, int32_t zero,
                            int32_t first, int32_t count, const whet_conv2d_t *d) {
    rows_of(dw, dy, x, 1.0f, zero, first, first + count, d);
}
