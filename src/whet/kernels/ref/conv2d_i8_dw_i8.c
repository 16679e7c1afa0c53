/* SPDX-License-Identifier: Apache-2.0 */
#define GRADIENT int8_t
#define TOTAL    int32_t
#include "whet_conv_dw.h"

/* formula    dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero)
 *            * scale, padding adds nothing
 * shapes     dw[o,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c], scale[1]
 * aliasing   none
 * rounding   the sum, which fits int32, to float; then one product
 * workspace  none */
void whet_conv2d_i8_dw_i8(float *dw, const int8_t *dy, const int8_t *x, const float *scale,
                          int32_t zero, const whet_conv2d_t *d) {
    rows_of(dw, dy, x, *scale, zero, 0, d->o, d);
}

/* formula    rows [first, first + count) of conv2d_i8_dw_i8, without groups
 * shapes     dw[count,kh,kw,c], the others as conv2d_i8_dw_i8
 * aliasing   none
 * rounding   as conv2d_i8_dw_i8
 * workspace  none */
void whet_conv2d_i8_dw_rows_i8(float *dw, const int8_t *dy, const int8_t *x, const float *scale,
                               int32_t zero, int32_t first, int32_t count, const whet_conv2d_t *d) {
    rows_of(dw, dy, x, *scale, zero, first, first + count, d);
}
