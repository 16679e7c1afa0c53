/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bits.h"

/* formula    bit i % 8 of bits[i / 8] = low < x[i] < high, or low <= x[i] <= high if closed
 * shapes     bits[(n + 7) / 8], x[n]; bits after the last element are 0
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_within_bits_f32(uint8_t *bits, const float *x, int32_t n, float low, float high,
                          int32_t closed) {
    if (!closed) {
        whet_take_bits(bits, x, n, low, high);
        return;
    }
    for (int32_t i = 0; i < n; i += 8) {
        uint32_t byte = 0;
        for (int32_t j = 0; j < whet_min(n - i, 8); j++)
            byte |= (uint32_t)(x[i + j] >= low && x[i + j] <= high) << j;
        bits[i / 8] = (uint8_t)byte;
    }
}

/* formula    dx[i] = dy[i] * (bit i ? inside : outside), and 0 where that slope is 0
 * shapes     dx[n], dy[n], bits[(n + 7) / 8]
 * aliasing   dx = dy
 * rounding   one product
 * workspace  none */
void whet_bits_dx_f32(float *dx, const float *dy, const uint8_t *bits, int32_t n, float inside,
                      float outside) {
    for (int32_t i = 0; i < n; i++) {
        const float slope = bits[i / 8] >> (i % 8) & 1 ? inside : outside;
        dx[i] = slope == 0.0f ? 0.0f : dy[i] * slope;
    }
}
