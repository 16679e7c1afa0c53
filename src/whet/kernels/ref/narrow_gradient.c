/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

/* The smallest power of two, at least 2^-100, with |g| <= limit * scale everywhere; NaN if some g
 * is not finite. */
static float scale_of(const float *g, int32_t n, int32_t limit) {
    const uint32_t infinity = 0x7f800000;
    uint32_t top = 0; /* the largest |g|: the bits of non-negative floats are ordered like the
                       * floats */
    for (int32_t i = 0; i < n; i++) {
        const uint32_t size = whet_bits_of(g[i]) & 0x7fffffff;
        top = size > top ? size : top;
    }
    if (top >= infinity) return NAN;
    float scale = 0x1p-100f;
    while ((float)limit * scale < whet_from_bits(top)) scale *= 2.0f;
    return scale;
}

/* round(g / scale), or 0 if that is NaN; g is read as bytes, because q may start where it does. */
static inline int32_t rounded(const float *g, float scale) {
    float v;
    memcpy(&v, g, sizeof v);
    return scale > 0.0f ? (int32_t)whet_round(v * (1.0f / scale)) : 0;
}

/* formula    scale = the least power of two with |g| <= limit * scale everywhere, 2^-100 at least;
 *            q = round(g / scale). If some of g is not finite, scale = NaN and q = 0
 * shapes     q[n], scale[1], g[n]; 127 <= limit <= 32767
 * aliasing   q may start where g does
 * rounding   to nearest, ties to even; all else is exact
 * workspace  none */
void whet_narrow_gradient_i16(int16_t *q, float *scale, const float *g, int32_t n, int32_t limit) {
    const float by = *scale = scale_of(g, n, limit);
    for (int32_t i = 0; i < n; i++) q[i] = (int16_t)rounded(g + i, by);
}

/* formula    as narrow_gradient_i16
 * shapes     as that; limit = 127
 * aliasing   q may start where g does
 * rounding   as that
 * workspace  none */
void whet_narrow_gradient_i8(int8_t *q, float *scale, const float *g, int32_t n, int32_t limit) {
    const float by = *scale = scale_of(g, n, limit);
    for (int32_t i = 0; i < n; i++) q[i] = (int8_t)rounded(g + i, by);
}
