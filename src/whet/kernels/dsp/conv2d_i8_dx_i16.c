/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_dsp.h"

#define GRADIENT int16_t

enum { PARTNER = 1 };

static inline void pairs_of(uint32_t *pairs, const int16_t *v) {
    pairs[0] = whet_word((const int8_t *)v);
    pairs[1] = whet_word((const int8_t *)(v + 2));
}

#include "whet_pairs_dx.h"

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] += dy[n,p,q,o] * w[o,r,s,i] * scale, from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,o], w[o,kh,kw,c/groups], scale[1]
 * aliasing   none
 * rounding   the sum, which fits int32, to float; then one product
 * workspace  none */
void whet_conv2d_i8_dx_i16(float *dx, const int16_t *dy, const int8_t *w, const float *scale,
                           const whet_conv2d_t *d) {
    all_pixels(dx, dy, w, *scale, d);
}
