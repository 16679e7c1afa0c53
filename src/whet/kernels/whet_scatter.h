/* SPDX-License-Identifier: Apache-2.0 */
/* dx of a depthwise convolution, where every output adds to the pixels it reads: for weights of
 * type WHET_WEIGHT, with WHET_ADD_PRODUCT(sum, a, b) = sum + a * b. A kernel file defines both
 * before it includes this, once: there is no include guard, since another type means another
 * function. */

#include "whet_inline.h"

/* dx += the gradient; pixel of dy by pixel, row by row, tap by tap. */
static inline void whet_scatter(float *dx, const float *dy, const WHET_WEIGHT *w,
                                const whet_conv2d_t *d) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        float *image = dx + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t r = 0; r < rows.taps; r++)
            for (int32_t s = 0; s < cols.taps; s++) {
                const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
                const float *u = dy + i * d->c;
                const WHET_WEIGHT *v = w + ((rows.cut + r) * d->kw + cols.cut + s) * d->c;
                float *to = image + at * d->c;
                for (int32_t c = 0; c < d->c; c++)
                    to[c] = WHET_ADD_PRODUCT(to[c], u[c], (float)v[c]);
            }
    }
}

#undef WHET_WEIGHT
#undef WHET_ADD_PRODUCT
