/* SPDX-License-Identifier: Apache-2.0 */
/* dw of conv2d_i8 from a dy of type GRADIENT, with sums of type TOTAL; a kernel file defines both
 * before it includes this. */
#ifndef WHET_CONV_DW_H
#define WHET_CONV_DW_H

#include "whet_inline.h"
#include "whet_kernels_i8.h"

enum { ROWS = 4 }; /* outputs summed at a time */

/* dw of `rows` outputs, one tap and n <= WHET_TILE channels; x and dy point at the first of
 * them. */
static inline void slopes(float *dw, int32_t ldw, const GRADIENT *dy, const int8_t *x, float scale,
                          int32_t zero, const whet_conv2d_t *d, const whet_tap_t *tap,
                          const int32_t rows, const int32_t n) {
    TOTAL t[ROWS][WHET_TILE] = {{0}};
    for (int32_t i = 0; i < d->n; i++)
        for (int32_t p = tap->rows.first; p < tap->rows.end; p++) {
            const GRADIENT *g = dy + whet_tap_y(d, tap, i, p);
            const int8_t *u = x + whet_tap_x(d, tap, i, p);
            for (int32_t q = 0; q < tap->width; q++, g += d->o, u += d->sw * d->c)
                for (int32_t l = 0; l < n; l++) {
                    const TOTAL v = (TOTAL)(u[l] - zero);
                    for (int32_t k = 0; k < rows; k++) t[k][l] += (TOTAL)g[k] * v;
                }
        }
    for (int32_t k = 0; k < rows; k++)
        for (int32_t l = 0; l < n; l++) dw[k * ldw + l] = (float)t[k][l] * scale;
}

/* Rows [first, end) of dw, times the scale; dw points at the first of them. */
static void rows_of(float *dw, const GRADIENT *dy, const int8_t *x, float scale, int32_t zero,
                    int32_t first, int32_t end, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t o = first, rows; o < end; o += rows) {
            const int32_t g = o / co;
            rows = whet_min(ROWS, whet_min((g + 1) * co, end) - o);
            for (int32_t c = 0; c < ci; c += WHET_TILE) {
                const int32_t n = whet_min(ci - c, WHET_TILE);
                float *to = dw + (o - first) * ldw + k * ci + c;
                const int8_t *u = x + g * ci + c;
                if (n == WHET_TILE && rows == ROWS)
                    slopes(to, ldw, dy + o, u, scale, zero, d, &tap, ROWS, WHET_TILE);
                else
                    slopes(to, ldw, dy + o, u, scale, zero, d, &tap, rows, n);
            }
        }
    }
}

#endif
