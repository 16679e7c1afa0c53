/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_lm.h"

/* formula    y[i] = x[i] * c[i] - x[i + half] * s[i];
 *            y[i + half] = x[i + half] * c[i] + x[i] * s[i] for i < half;
 *            y[i] = x[i] for i >= 2 half;  c = cos, s = sign * sin
 * shapes     y[outer,length,inner,width], x as y, cos[length,half], sin[length,half]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_rotary_f32(float *y, const float *x, const float *cos, const float *sin, int32_t outer,
                     int32_t length, int32_t inner, int32_t width, int32_t half, float sign) {
    if (y != x) memcpy(y, x, (size_t)outer * (size_t)(length * inner * width) * sizeof *y);
    for (int32_t o = 0; o < outer; o++)
        for (int32_t l = 0; l < length; l++) {
            const float *c = cos + l * half, *s = sin + l * half;
            for (int32_t j = 0; j < inner; j++, y += width) {
                float *z = y + half;
                for (int32_t i = 0; i < half; i++) {
                    const float u = y[i], v = z[i], turn = sign * s[i];
                    y[i] = u * c[i] - v * turn;
                    z[i] = v * c[i] + u * turn;
                }
            }
        }
}
