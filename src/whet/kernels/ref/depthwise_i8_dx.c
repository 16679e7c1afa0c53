/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_i8.h"

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c]
 * aliasing   none
 * rounding   added pixel of dy by pixel, row by row; every product and every sum is rounded
 * workspace  none */
void whet_depthwise_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        float *image = dx + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t r = 0; r < rows.taps; r++)
            for (int32_t s = 0; s < cols.taps; s++) {
                const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
                const float *u = dy + i * d->c;
                const int8_t *v = w + ((rows.cut + r) * d->kw + cols.cut + s) * d->c;
                float *to = image + at * d->c;
                for (int32_t c = 0; c < d->c; c++) to[c] += u[c] * (float)v[c];
            }
    }
}
