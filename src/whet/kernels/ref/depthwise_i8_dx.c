/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_i8.h"

#define WHET_WEIGHT                 int8_t
#define WHET_ADD_PRODUCT(sum, a, b) ((sum) + (a) * (b))
#include "whet_scatter.h"

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c]
 * aliasing   none
 * rounding   added pixel of dy by pixel, row by row; every product and every sum is rounded
 * workspace  none */
void whet_depthwise_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    whet_scatter(dx, dy, w, d);
}
