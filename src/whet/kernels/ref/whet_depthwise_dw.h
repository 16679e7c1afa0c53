/* SPDX-License-Identifier: Apache-2.0 */
/* dw of depthwise_i8 from a dy of type GRADIENT, with sums of type TOTAL; a kernel file defines
 * both before it includes this. */
#ifndef WHET_DEPTHWISE_DW_H
#define WHET_DEPTHWISE_DW_H

#include "whet_inline.h"
#include "whet_kernels_i8.h"

/* dw of one tap and n <= WHET_TILE channels; x and dy point at the first of them. */
static inline void slopes(float *dw, const GRADIENT *dy, const int8_t *x, float scale, int32_t zero,
                          const whet_conv2d_t *d, const whet_tap_t *tap, const int32_t n) {
    TOTAL t[WHET_TILE] = {0};
    for (int32_t i = 0; i < d->n; i++)
        for (int32_t p = tap->rows.first; p < tap->rows.end; p++) {
            const GRADIENT *g = dy + whet_tap_y(d, tap, i, p);
            const int8_t *u = x + whet_tap_x(d, tap, i, p);
            for (int32_t q = 0; q < tap->width; q++, g += d->c, u += d->sw * d->c)
                for (int32_t l = 0; l < n; l++) t[l] += (TOTAL)g[l] * (TOTAL)(u[l] - zero);
        }
    for (int32_t l = 0; l < n; l++) dw[l] = (float)t[l] * scale;
}

/* All of dw, times the scale. */
static inline void all_taps(float *dw, const GRADIENT *dy, const int8_t *x, float scale,
                            int32_t zero, const whet_conv2d_t *d) {
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t c = 0; c < d->c; c += WHET_TILE) {
            const int32_t n = whet_min(d->c - c, WHET_TILE);
            if (n == WHET_TILE)
                slopes(dw + k * d->c + c, dy + c, x + c, scale, zero, d, &tap, WHET_TILE);
            else
                slopes(dw + k * d->c + c, dy + c, x + c, scale, zero, d, &tap, n);
        }
    }
}

#endif
