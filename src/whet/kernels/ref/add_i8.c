/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

/* formula    y = round((a - a_zero) * a_scale + (b - b_zero) * b_scale) + zero, clamped to [low,
 *            high];  bit = it was in range
 * shapes     y[n], bits[(n + 7) / 8] or NULL, a[n], b[n]
 * aliasing   y = a or y = b
 * rounding   two products and their sum, then to nearest, ties to even
 * workspace  none */
void whet_add_i8(int8_t *y, uint8_t *bits, const int8_t *a, const int8_t *b, int32_t n,
                 int32_t a_zero, int32_t b_zero, float a_scale, float b_scale,
                 const whet_narrow_t *to) {
    const whet_range8_t range = whet_range8(to);
    whet_bit_row_t row = {bits, 0, 0};
    for (int32_t i = 0; i < n; i++) {
        const float left = (float)(a[i] - a_zero) * a_scale;
        const float right = (float)(b[i] - b_zero) * b_scale;
        whet_put_i8(&y[i], &row, left + right, range);
    }
    whet_end_bits(&row);
}
