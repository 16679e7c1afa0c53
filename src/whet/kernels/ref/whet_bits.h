/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_BITS_H
#define WHET_BITS_H

/* Bit i % 8 of bits[i / 8] = low < x[i] < high; bits after the last of n are 0. */
static inline void whet_take_bits(uint8_t *bits, const float *x, int32_t n, float low, float high) {
    for (int32_t i = 0; i < n; i += 8) {
        uint32_t byte = 0;
        for (int32_t j = 0; j < whet_min(n - i, 8); j++)
            byte |= (uint32_t)(x[i + j] > low && x[i + j] < high) << j;
        bits[i / 8] = (uint8_t)byte;
    }
}

#endif
