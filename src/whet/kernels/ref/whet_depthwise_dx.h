/* SPDX-License-Identifier: Apache-2.0 */
/* dx of depthwise_i8 from an integer dy of type GRADIENT, which a kernel file defines before it
 * includes this. Floats are summed in dx itself; integers need sums of another type. */
#ifndef WHET_DEPTHWISE_DX_H
#define WHET_DEPTHWISE_DX_H

#include "whet_inline.h"
#include "whet_kernels_i8.h"

/* dx[l] = pixel (row, col) of an image, n <= WHET_TILE channels; dy and w point at the first of
 * them, dy in that image. */
static inline void pixel(float *dx, const GRADIENT *dy, const int8_t *w, float scale,
                         const whet_conv2d_t *d, int32_t row, int32_t col, const int32_t n) {
    int32_t t[WHET_TILE] = {0};
    for (int32_t r = 0; r < d->kh; r++) {
        const int32_t below = row + d->ph - r * d->dh;
        if (below < 0 || below % d->sh != 0 || below / d->sh >= d->p) continue;
        for (int32_t s = 0; s < d->kw; s++) {
            const int32_t right = col + d->pw - s * d->dw;
            if (right < 0 || right % d->sw != 0 || right / d->sw >= d->q) continue;
            const GRADIENT *u = dy + (below / d->sh * d->q + right / d->sw) * d->c;
            const int8_t *v = w + (r * d->kw + s) * d->c;
            for (int32_t l = 0; l < n; l++) t[l] += u[l] * v[l];
        }
    }
    for (int32_t l = 0; l < n; l++) dx[l] = (float)t[l] * scale;
}

/* All of dx, times the scale. */
static inline void all_pixels(float *dx, const GRADIENT *dy, const int8_t *w, float scale,
                              const whet_conv2d_t *d) {
    for (int32_t i = 0; i < d->n * d->h * d->w; i++) {
        const int32_t row = i / d->w % d->h, col = i % d->w;
        const GRADIENT *image = dy + i / (d->h * d->w) * d->p * d->q * d->c;
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t n = whet_min(d->c - c, WHET_TILE);
            if (n == WHET_TILE)
                pixel(dx + i * d->c + c, image + c, w + c, scale, d, row, col, WHET_TILE);
            else
                pixel(dx + i * d->c + c, image + c, w + c, scale, d, row, col, n);
        }
    }
}

#endif
