/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y[i] = min(1, limit / (sqrt(x[i]) + 1e-6))
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_clip_scale_f32(float *y, const float *x, int32_t n, float limit) {
    for (int32_t i = 0; i < n; i++) {
        const float scale = limit / (sqrtf(x[i]) + 1e-6f);
        y[i] = scale > 1.0f ? 1.0f : scale; /* NaN stays NaN */
    }
}
