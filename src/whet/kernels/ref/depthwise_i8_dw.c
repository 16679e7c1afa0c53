/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_i8.h"

/* dw of one tap and n <= WHET_TILE channels; x and dy are at the first of them. */
static inline void slopes(float *dw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d, const whet_tap_t *tap, const int32_t n) {
    float t[WHET_TILE] = {0.0f};
    for (int32_t i = 0; i < d->n; i++)
        for (int32_t p = tap->rows.first; p < tap->rows.end; p++) {
            const float *g = dy + whet_tap_y(d, tap, i, p);
            const int8_t *u = x + whet_tap_x(d, tap, i, p);
            for (int32_t q = 0; q < tap->width; q++, g += d->c, u += d->sw * d->c)
                for (int32_t l = 0; l < n; l++) t[l] += g[l] * (float)(u[l] - zero);
        }
    for (int32_t l = 0; l < n; l++) dw[l] = t[l];
}

/* formula    dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] - zero),
 *            padding adds nothing
 * shapes     dw[kh,kw,c], dy[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  none */
void whet_depthwise_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d) {
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t n = whet_min(d->c - c, WHET_TILE);
            if (n == WHET_TILE)
                slopes(dw + k * d->c + c, dy + c, x + c, zero, d, &tap, WHET_TILE);
            else
                slopes(dw + k * d->c + c, dy + c, x + c, zero, d, &tap, n);
        }
    }
}
