/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_dw_i8.h"
#include "whet_kernels_i8.h"

static void keep(const whet_dw_t *l, float *tile, int32_t o, int32_t rows, int32_t at, int32_t n) {
    const int32_t size = l->d->kh * l->d->kw * (l->d->c / l->d->groups);
    float *dw = *(float *const *)l->more + (o - l->first) * size + at;
    for (int32_t r = 0; r < rows; r++, tile += WIDTH, dw += size)
        for (int32_t j = 0; j < n; j++) dw[j] = tile[j];
}

/* formula    dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero),
 *            padding adds nothing
 * shapes     dw[o,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  20 KB of stack */
void whet_conv2d_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                       const whet_conv2d_t *d) {
    whet_dw_t l = {dy, x, zero, 0, d->o / d->groups, 0, d, keep, (const void *)&dw};
    whet_share_dw(&l);
}

/* formula    rows [first, first + count) of conv2d_i8_dw, without groups
 * shapes     dw[count,kh,kw,c], the others as conv2d_i8_dw
 * aliasing   none
 * rounding   as conv2d_i8_dw
 * workspace  20 KB of stack */
void whet_conv2d_i8_dw_rows(float *dw, const float *dy, const int8_t *x, int32_t zero,
                            int32_t first, int32_t count, const whet_conv2d_t *d) {
    whet_dw_t l = {dy, x, zero, first, count, 0, d, keep, (const void *)&dw};
    whet_share_dw(&l);
}
