/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

/* Converts (`wide`, an expression in i) * scale[i % scales] to int8 for every i < n. */
#define NARROW_ALL(y, bits, wide, scale, n, scales, to)                \
    do {                                                               \
        const whet_range8_t range_ = whet_range8(to);                  \
        whet_bit_row_t row_ = {bits, 0, 0};                            \
        for (int32_t first_ = 0; first_ < (n); first_ += (scales))     \
            for (int32_t c_ = 0; c_ < (scales); c_++) {                \
                const int32_t i = first_ + c_;                         \
                const float v_ = (wide);                               \
                whet_put_i8(&(y)[i], &row_, v_ * (scale)[c_], range_); \
            }                                                          \
        whet_end_bits(&row_);                                          \
    } while (0)

/* formula    y = round(x * scale[c]) + zero, clamped to [low, high];  bit = it was in range
 * shapes     y[n], bits[(n + 7) / 8] or NULL, x[n], scale[scales]; c = i % scales, which divides n
 * aliasing   y may start where x does
 * rounding   one product, then to nearest, ties to even; NaN is too low
 * workspace  none */
void whet_requantize_f32(int8_t *y, uint8_t *bits, const float *x, const float *scale, int32_t n,
                         int32_t scales, const whet_narrow_t *to) {
    NARROW_ALL(y, bits, x[i], scale, n, scales, to);
}

/* formula    y = round(x * scale[c]) + zero, clamped to [low, high];  bit = it was in range
 * shapes     as requantize_f32
 * aliasing   y may start where x does
 * rounding   x to float, one product, then to nearest, ties to even
 * workspace  none */
void whet_requantize_i32(int8_t *y, uint8_t *bits, const int32_t *x, const float *scale, int32_t n,
                         int32_t scales, const whet_narrow_t *to) {
    NARROW_ALL(y, bits, (float)x[i], scale, n, scales, to);
}

/* formula    y = round((x - x_zero) * scale[c]) + zero, clamped to [low, high];  bit = it was
 *            in range
 * shapes     as requantize_f32
 * aliasing   y = x
 * rounding   one product, then to nearest, ties to even
 * workspace  none */
void whet_requantize_i8(int8_t *y, uint8_t *bits, const int8_t *x, const float *scale, int32_t n,
                        int32_t scales, const whet_narrow_t *to) {
    NARROW_ALL(y, bits, (float)(x[i] - to->x_zero), scale, n, scales, to);
}

/* formula    dx = dy * scale[c] where the bit is set, else 0
 * shapes     dx[n], dy[n], bits[(n + 7) / 8], scale[scales]; c = i % scales, which divides n
 * aliasing   dx = dy
 * rounding   one product
 * workspace  none */
void whet_requantize_dx_f32(float *dx, const float *dy, const uint8_t *bits, const float *scale,
                            int32_t n, int32_t scales) {
    for (int32_t first = 0; first < n; first += scales)
        for (int32_t c = 0; c < scales; c++) {
            const int32_t i = first + c;
            dx[i] = bits[i / 8] >> (i % 8) & 1 ? dy[i] * scale[c] : 0.0f;
        }
}
