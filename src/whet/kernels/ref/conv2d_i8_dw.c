/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_i8.h"

enum { ROWS = 4 }; /* outputs that are summed at a time */

/* dw of `rows` outputs, one tap and n <= WHET_TILE channels; x and dy are at the first of them. */
static inline void slopes(float *dw, int32_t ldw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d, const whet_tap_t *tap, const int32_t rows,
                          const int32_t n) {
    float t[ROWS][WHET_TILE] = {{0.0f}};
    for (int32_t i = 0; i < d->n; i++)
        for (int32_t p = tap->rows.first; p < tap->rows.end; p++) {
            const float *g = dy + whet_tap_y(d, tap, i, p);
            const int8_t *u = x + whet_tap_x(d, tap, i, p);
            for (int32_t q = 0; q < tap->width; q++, g += d->o, u += d->sw * d->c)
                for (int32_t l = 0; l < n; l++) {
                    const float v = (float)(u[l] - zero);
                    for (int32_t k = 0; k < rows; k++) t[k][l] += g[k] * v;
                }
        }
    for (int32_t k = 0; k < rows; k++)
        for (int32_t l = 0; l < n; l++) dw[k * ldw + l] = t[k][l];
}

/* Rows [first, end) of dw, which is at the first of them. */
static void rows_of(float *dw, const float *dy, const int8_t *x, int32_t zero, int32_t first,
                    int32_t end, const whet_conv2d_t *d) {
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
                    slopes(to, ldw, dy + o, u, zero, d, &tap, ROWS, WHET_TILE);
                else
                    slopes(to, ldw, dy + o, u, zero, d, &tap, rows, n);
            }
        }
    }
}

/* formula    dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero),
 *            padding adds nothing
 * shapes     dw[o,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  none */
void whet_conv2d_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                       const whet_conv2d_t *d) {
    rows_of(dw, dy, x, zero, 0, d->o, d);
}

/* formula    rows [first, first + count) of conv2d_i8_dw, without groups
 * shapes     dw[count,kh,kw,c], the others as conv2d_i8_dw
 * aliasing   none
 * rounding   as conv2d_i8_dw
 * workspace  none */
void whet_conv2d_i8_dw_rows(float *dw, const float *dy, const int8_t *x, int32_t zero,
                            int32_t first, int32_t count, const whet_conv2d_t *d) {
    rows_of(dw, dy, x, zero, first, first + count, d);
}
