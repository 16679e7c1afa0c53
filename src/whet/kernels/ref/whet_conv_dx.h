/* SPDX-License-Identifier: Apache-2.0 */
/* dx of conv2d_i8 from a dy of type GRADIENT, with sums of type TOTAL; a kernel file defines both
 * before it includes this. */
#ifndef WHET_CONV_DX_H
#define WHET_CONV_DX_H

#include "whet_inline.h"
#include "whet_kernels_i8.h"

/* dx[l] = pixel (row, col) of an image, n <= WHET_TILE channels of a group; dy is that image's,
 * w the group's first row. */
static inline void pixel(float *dx, const GRADIENT *dy, const int8_t *w, float scale,
                         const whet_conv2d_t *d, int32_t row, int32_t col, const int32_t n) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    TOTAL t[WHET_TILE] = {0};
    for (int32_t r = d->kh - 1; r >= 0; r--) {
        const int32_t below = row + d->ph - r * d->dh;
        if (below < 0 || below % d->sh != 0 || below / d->sh >= d->p) continue;
        for (int32_t s = d->kw - 1; s >= 0; s--) {
            const int32_t right = col + d->pw - s * d->dw;
            if (right < 0 || right % d->sw != 0 || right / d->sw >= d->q) continue;
            const GRADIENT *u = dy + (below / d->sh * d->q + right / d->sw) * d->o;
            const int8_t *v = w + (r * d->kw + s) * ci;
            for (int32_t o = 0; o < co; o++, v += ldw)
                for (int32_t l = 0; l < n; l++) t[l] += (TOTAL)u[o] * (TOTAL)v[l];
        }
    }
    for (int32_t l = 0; l < n; l++) dx[l] = (float)t[l] * scale;
}

/* All of dx, times the scale. */
static inline void all_pixels(float *dx, const GRADIENT *dy, const int8_t *w, float scale,
                              const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups;
    for (int32_t i = 0; i < d->n * d->h * d->w; i++) {
        const int32_t row = i / d->w % d->h, col = i % d->w;
        const GRADIENT *image = dy + i / (d->h * d->w) * d->p * d->q * d->o;
        for (int32_t g = 0; g < d->groups; g++)
            for (int32_t c = 0; c < ci; c += WHET_TILE) {
                const int32_t n = whet_min(ci - c, WHET_TILE);
                const int8_t *v = w + g * co * d->kh * d->kw * ci + c;
                float *to = dx + i * d->c + g * ci + c;
                if (n == WHET_TILE)
                    pixel(to, image + g * co, v, scale, d, row, col, WHET_TILE);
                else
                    pixel(to, image + g * co, v, scale, d, row, col, n);
            }
    }
}

#endif
