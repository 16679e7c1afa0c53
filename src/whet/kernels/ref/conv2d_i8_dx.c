/* SPDX-License-Identifier: Apache-2.0 */
#define GRADIENT float
#define TOTAL    float
#include "whet_conv_dx.h"

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] += dy[n,p,q,o] * w[o,r,s,i], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,o], w[o,kh,kw,c/groups]
 * aliasing   none
 * rounding   one sum, over the pixels of dy row by row and of each over its channels; every product
 *            and every sum is rounded
 * workspace  none */
void whet_conv2d_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    all_pixels(dx, dy, w, 1.0f, d);
}
