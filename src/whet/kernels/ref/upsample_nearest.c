/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* The source of target i: computed in float and clamped to the last pixel, as in PyTorch. */
static int32_t source(int32_t i, float step, int32_t size) {
    return whet_min((int32_t)((float)i * step), size - 1);
}

/* Pixels of `pixel` bytes. */
static void copy_pixels(char *y, const char *x, int32_t n, int32_t h, int32_t w, size_t pixel,
                        int32_t p, int32_t q, float sh, float sw) {
    for (int32_t i = 0; i < n * p * q; i++, y += pixel) {
        const int32_t row = i / (p * q) * h + source(i / q % p, sh, h);
        memcpy(y, x + (size_t)(row * w + source(i % q, sw, w)) * pixel, pixel);
    }
}

/* formula    y[n,p,q,c] = x[n, floor(p * sh), floor(q * sw), c]
 * shapes     y[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_upsample_nearest_f32(float *y, const float *x, int32_t n, int32_t h, int32_t w, int32_t c,
                               int32_t p, int32_t q, float sh, float sw) {
    copy_pixels((char *)y, (const char *)x, n, h, w, (size_t)c * sizeof *y, p, q, sh, sw);
}

/* The same for 8-bit integers. */
void whet_upsample_nearest_i8(int8_t *y, const int8_t *x, int32_t n, int32_t h, int32_t w,
                              int32_t c, int32_t p, int32_t q, float sh, float sw) {
    copy_pixels((char *)y, (const char *)x, n, h, w, (size_t)c * sizeof *y, p, q, sh, sw);
}

/* formula    dx = 0, then dx[n, floor(p * sh), floor(q * sw), c] += dy[n,p,q,c]
 * shapes     dx[n,h,w,c], dy[n,p,q,c]
 * aliasing   none
 * rounding   added pixel by pixel
 * workspace  none */
void whet_upsample_nearest_dx_f32(float *dx, const float *dy, int32_t n, int32_t h, int32_t w,
                                  int32_t c, int32_t p, int32_t q, float sh, float sw) {
    whet_fill(dx, n * h * w * c, 0.0f);
    for (int32_t i = 0; i < n * p * q; i++) {
        const int32_t row = i / (p * q) * h + source(i / q % p, sh, h);
        float *to = dx + (row * w + source(i % q, sw, w)) * c;
        for (int32_t k = 0; k < c; k++) to[k] += dy[i * c + k];
    }
}
