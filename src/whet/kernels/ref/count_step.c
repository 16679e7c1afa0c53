/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    t' = t + 1
 * shapes     next[n], t[n]
 * aliasing   next = t
 * rounding   exact up to 2^24
 * workspace  none */
void whet_count_step_f32(float *next, const float *t, int32_t n) {
    for (int32_t i = 0; i < n; i++) next[i] = t[i] + 1.0f;
}
