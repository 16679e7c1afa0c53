/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_lm.h"

/* formula    scale = 1 / sqrt(mean(x^2) + eps) of each row;  y = x * scale * w
 * shapes     y[rows,c], scale[rows], x[rows,c], w[c]
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms per lane, added with compensation
 * workspace  none */
void whet_rms_norm_f32(float *y, float *scale, const float *x, const float *w, int32_t rows,
                       int32_t c, float eps) {
    for (int32_t r = 0; r < rows; r++, x += c, y += c) {
        whet_sum_t squares = {0.0f, 0.0f};
        WHET_SUM(&squares, c, x[i] * x[i]);
        scale[r] = whet_rsqrt(squares.sum / (float)c + eps);
        for (int32_t i = 0; i < c; i++) y[i] = x[i] * scale[r] * w[i];
    }
}

/* formula    dx = (g - x * scale^2 * mean(g * x)) * scale, g = dy * w
 * shapes     dx[rows,c], dy[rows,c], x[rows,c], w[c], scale[rows]
 * aliasing   dx = dy or dx = x
 * rounding   sums of WHET_CHUNK terms per lane, added with compensation
 * workspace  none */
void whet_rms_norm_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                          const float *scale, int32_t rows, int32_t c) {
    for (int32_t r = 0; r < rows; r++, dx += c, dy += c, x += c) {
        whet_sum_t dot = {0.0f, 0.0f};
        WHET_SUM(&dot, c, dy[i] * w[i] * x[i]);
        const float slope = dot.sum / (float)c * scale[r] * scale[r];
        for (int32_t i = 0; i < c; i++) dx[i] = (dy[i] * w[i] - x[i] * slope) * scale[r];
    }
}

/* formula    dw[c] = sum over rows of dy * x * scale
 * shapes     dw[c], dy[rows,c], x[rows,c], scale[rows]
 * aliasing   none
 * rounding   sums of WHET_CHUNK rows, added with compensation
 * workspace  none */
void whet_rms_norm_dw_f32(float *dw, const float *dy, const float *x, const float *scale,
                          int32_t rows, int32_t c) {
    for (int32_t j = 0; j < c; j += WHET_TILE) {
        const int32_t width = whet_min(c - j, WHET_TILE);
        WHET_SUM_ROWS(dw + j, rows, j, width, dy[r * c + i] * x[r * c + i] * scale[r]);
    }
}
