/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* One group of one image is `pixels` rows of c / groups channels, c apart. */

/* formula    mean, var of each image and group;  y = (x - mean) / sqrt(var + eps) * w + b
 * shapes     y[n,pixels,c], mean[n,groups], var[n,groups], x[n,pixels,c], w[c], b[c]
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms per lane, added with compensation; the variance in a second
 *            pass
 * workspace  none */
void whet_group_norm_f32(float *y, float *mean, float *var, const float *x, const float *w,
                         const float *b, int32_t n, int32_t pixels, int32_t c, int32_t groups,
                         float eps) {
    const int32_t size = c / groups;
    const float count = (float)(pixels * size);
    for (int32_t k = 0; k < n * groups; k++) {
        const int32_t first = k % groups * size, start = k / groups * pixels * c + first;
        const float *u = x + start, *gain = w + first, *shift = b + first;
        whet_sum_t sum = {0.0f, 0.0f}, squares = {0.0f, 0.0f};
        WHET_SUM_BLOCK(&sum, pixels, size, u[r * c + i]);
        const float m = sum.sum / count;
        WHET_SUM_BLOCK(&squares, pixels, size, (u[r * c + i] - m) * (u[r * c + i] - m));
        mean[k] = m;
        var[k] = squares.sum / count;
        const float scale = whet_rsqrt(var[k] + eps);
        for (int32_t r = 0; r < pixels; r++) {
            float *out = y + start + r * c;
            for (int32_t i = 0; i < size; i++)
                out[i] = (u[r * c + i] - m) * scale * gain[i] + shift[i];
        }
    }
}

/* formula    dx = (g - mean(g) - xhat * mean(g * xhat)) / sqrt(var + eps), g = dy * w
 * shapes     dx[n,pixels,c], dy[n,pixels,c], x[n,pixels,c], w[c], mean[n,groups], var[n,groups]
 * aliasing   dx = dy or dx = x
 * rounding   sums of WHET_CHUNK terms per lane, added with compensation
 * workspace  none */
void whet_group_norm_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                            const float *mean, const float *var, int32_t n, int32_t pixels,
                            int32_t c, int32_t groups, float eps) {
    const int32_t size = c / groups;
    const float count = (float)(pixels * size);
    for (int32_t k = 0; k < n * groups; k++) {
        const int32_t first = k % groups * size, start = k / groups * pixels * c + first;
        const float m = mean[k], scale = whet_rsqrt(var[k] + eps);
        const float *u = dy + start, *v = x + start, *gain = w + first;
        whet_sum_t sum = {0.0f, 0.0f}, dot = {0.0f, 0.0f};
        WHET_SUM_BLOCK(&sum, pixels, size, u[r * c + i] * gain[i]);
        WHET_SUM_BLOCK(&dot, pixels, size, u[r * c + i] * gain[i] * (v[r * c + i] - m));
        const float g1 = sum.sum / count, g2 = dot.sum * scale * scale / count;
        for (int32_t r = 0; r < pixels; r++) {
            float *out = dx + start + r * c;
            for (int32_t i = 0; i < size; i++)
                out[i] = (u[r * c + i] * gain[i] - g1 - (v[r * c + i] - m) * g2) * scale;
        }
    }
}

/* formula    dw[c] = sum over images and pixels of dy * (x - mean) / sqrt(var + eps)
 * shapes     dw[c], dy[n,pixels,c], x[n,pixels,c], mean[n,groups], var[n,groups]
 * aliasing   none
 * rounding   sums over an image, added with compensation
 * workspace  none */
void whet_group_norm_dw_f32(float *dw, const float *dy, const float *x, const float *mean,
                            const float *var, int32_t n, int32_t pixels, int32_t c, int32_t groups,
                            float eps) {
    const int32_t size = c / groups;
    for (int32_t j = 0, width; j < c; j += width) {
        const int32_t g = j / size;
        whet_sum_t total[WHET_TILE] = {{0.0f, 0.0f}};
        width = whet_min((g + 1) * size - j, WHET_TILE);
        for (int32_t k = 0; k < n; k++) {
            const float m = mean[k * groups + g], scale = whet_rsqrt(var[k * groups + g] + eps);
            const float *u = dy + k * pixels * c + j, *v = x + k * pixels * c + j;
            float part[WHET_TILE];
            WHET_SUM_ROWS(part, pixels, 0, width, u[r * c + i] * (v[r * c + i] - m));
            for (int32_t l = 0; l < width; l++) whet_add(&total[l], part[l] * scale);
        }
        for (int32_t l = 0; l < width; l++) dw[j + l] = total[l].sum;
    }
}
