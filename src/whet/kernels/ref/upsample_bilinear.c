/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

/* Target i is between two source pixels, at fraction `weight` from low to high. */
typedef struct {
    int32_t low, high;
    float weight;
} blend_t;

static blend_t blend(int32_t i, float step, int32_t size, int32_t align_corners) {
    const float at = align_corners ? (float)i * step : ((float)i + 0.5f) * step - 0.5f;
    const float source = at > 0.0f ? at : 0.0f;
    blend_t b;
    b.low = whet_min((int32_t)source, size - 1);
    b.high = whet_min(b.low + 1, size - 1);
    b.weight = source - (float)b.low;
    return b;
}

/* formula    y = the four pixels around (p * sh, q * sw), weighted by nearness; centres are at 1/2
 *            unless align_corners
 * shapes     y[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   float, element by element
 * workspace  none */
void whet_upsample_bilinear_f32(float *y, const float *x, int32_t n, int32_t h, int32_t w,
                                int32_t c, int32_t p, int32_t q, float sh, float sw,
                                int32_t align_corners) {
    for (int32_t i = 0; i < n * p * q; i++) {
        const blend_t u = blend(i / q % p, sh, h, align_corners);
        const blend_t v = blend(i % q, sw, w, align_corners);
        const int32_t image = i / (p * q) * h;
        const float *low = x + (image + u.low) * w * c, *high = x + (image + u.high) * w * c;
        for (int32_t k = 0; k < c; k++) {
            const int32_t left = v.low * c + k, right = v.high * c + k;
            const float top = low[left] * (1.0f - v.weight) + low[right] * v.weight;
            const float bottom = high[left] * (1.0f - v.weight) + high[right] * v.weight;
            y[i * c + k] = top * (1.0f - u.weight) + bottom * u.weight;
        }
    }
}

/* formula    y = round(upsample_bilinear(x)), of the numbers as they are
 * shapes     y[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   float, first along rows and then between them, every product and sum; then to nearest,
 *            ties to even
 * workspace  none */
void whet_upsample_bilinear_i8(int8_t *y, const int8_t *x, int32_t n, int32_t h, int32_t w,
                               int32_t c, int32_t p, int32_t q, float sh, float sw,
                               int32_t align_corners) {
    for (int32_t i = 0; i < n * p * q; i++) {
        const blend_t u = blend(i / q % p, sh, h, align_corners);
        const blend_t v = blend(i % q, sw, w, align_corners);
        const float upper = 1.0f - u.weight, left = 1.0f - v.weight;
        const int32_t image = i / (p * q) * h;
        const int8_t *low = x + (image + u.low) * w * c, *high = x + (image + u.high) * w * c;
        for (int32_t k = 0; k < c; k++) {
            const int32_t a = v.low * c + k, b = v.high * c + k;
            const float top = (float)low[a] * left + (float)low[b] * v.weight;
            const float bottom = (float)high[a] * left + (float)high[b] * v.weight;
            y[i * c + k] = (int8_t)whet_round(top * upper + bottom * u.weight);
        }
    }
}

/* formula    dx = 0, then each of the four pixels += its weight * dy
 * shapes     dx[n,h,w,c], dy[n,p,q,c]
 * aliasing   none
 * rounding   added pixel by pixel
 * workspace  none */
void whet_upsample_bilinear_dx_f32(float *dx, const float *dy, int32_t n, int32_t h, int32_t w,
                                   int32_t c, int32_t p, int32_t q, float sh, float sw,
                                   int32_t align_corners) {
    whet_fill(dx, n * h * w * c, 0.0f);
    for (int32_t i = 0; i < n * p * q; i++) {
        const blend_t u = blend(i / q % p, sh, h, align_corners);
        const blend_t v = blend(i % q, sw, w, align_corners);
        const int32_t image = i / (p * q) * h;
        float *low = dx + (image + u.low) * w * c, *high = dx + (image + u.high) * w * c;
        for (int32_t k = 0; k < c; k++) {
            const int32_t left = v.low * c + k, right = v.high * c + k;
            const float top = dy[i * c + k] * (1.0f - u.weight), bottom = dy[i * c + k] * u.weight;
            low[left] += top * (1.0f - v.weight);
            low[right] += top * v.weight;
            high[left] += bottom * (1.0f - v.weight);
            high[right] += bottom * v.weight;
        }
    }
}
