/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_live.h"

#include "whet_inline.h"

/* formula    y[r,o] = b[o] + sum_i x[r,i] * w[o,i], w being spread(v, bits)
 * shapes     y[rows,o], x[rows,i], v[number of bits set], bits[(o * i + 7) / 8], b[o] or NULL
 * aliasing   none
 * rounding   one sum per result, over the live elements in order
 * workspace  none */
void whet_linear_live_f32(float *y, const float *x, const float *v, const uint8_t *bits,
                          const float *b, int32_t rows, int32_t i, int32_t o) {
    whet_fill_rows(y, b, rows, o);
    for (whet_live_t at = whet_first_live(bits, i, o); whet_next_live(&at); v++)
        for (int32_t r = 0; r < rows; r++) y[r * o + at.o] += x[r * i + at.i] * *v;
}

/* formula    dx[r,i] = sum_o dy[r,o] * w[o,i], w being spread(v, bits)
 * shapes     as linear_live
 * aliasing   none
 * rounding   one sum per result, over the live elements in order
 * workspace  none */
void whet_linear_live_dx_f32(float *dx, const float *dy, const float *v, const uint8_t *bits,
                             int32_t rows, int32_t i, int32_t o) {
    whet_fill(dx, rows * i, 0.0f);
    for (whet_live_t at = whet_first_live(bits, i, o); whet_next_live(&at); v++)
        for (int32_t r = 0; r < rows; r++) dx[r * i + at.i] += dy[r * o + at.o] * *v;
}

/* formula    dv = sum_r dy[r,o] * x[r,i] for every live w[o,i], in order
 * shapes     as linear_live; dv as v
 * aliasing   none
 * rounding   one sum per result
 * workspace  none */
void whet_linear_live_dw_f32(float *dv, const float *dy, const float *x, const uint8_t *bits,
                             int32_t rows, int32_t i, int32_t o) {
    whet_live_t at = whet_first_live(bits, i, o);
    whet_live_dw(dv, o * i, &at, dy, x, rows, o);
}
