/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "whet_inline.h"

/* The magnitude of a number as an integer, in the same order; NaN is above infinity. */
static uint32_t distance(float x) {
    uint32_t word;
    memcpy(&word, &x, sizeof word);
    word &= 0x7fffffff;
    return word > 0x7f800000 ? 0x7f800000 : word;
}

/* The magnitude of the keep-th largest element, and how many of that magnitude are kept: a radix
 * select, from the highest digit, among those that have all digits found so far. */
static uint32_t threshold(const float *x, int32_t n, int32_t keep, int32_t *equals) {
    uint32_t found = 0, known = 0;
    for (int32_t shift = 24; shift >= 0; shift -= 8) {
        int32_t count[256] = {0};
        for (int32_t i = 0; i < n; i++) {
            const uint32_t far = distance(x[i]);
            if ((far & known) == found) count[far >> shift & 255]++;
        }
        uint32_t digit = 255;
        while (count[digit] < keep) keep -= count[digit--];
        found |= digit << shift;
        known |= (uint32_t)255 << shift;
    }
    *equals = keep;
    return found;
}

/* formula    values, bits = the keep elements of each sample furthest from 0, in their order
 * shapes     values[samples][keep], bits[(samples * n + 7) / 8], x[samples][n]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_pick_largest_f32(float *values, uint8_t *bits, const float *x, int32_t samples, int32_t n,
                           int32_t keep) {
    memset(bits, 0, ((size_t)samples * (size_t)n + 7) / 8);
    for (int32_t s = 0; s < samples; s++, x += n) {
        int32_t equals;
        const uint32_t least = threshold(x, n, keep, &equals);
        for (int32_t i = 0; i < n; i++) {
            const uint32_t far = distance(x[i]);
            if (far < least || (far == least && equals-- <= 0)) continue;
            const int32_t place = s * n + i;
            bits[place / 8] |= (uint8_t)(1u << place % 8);
            *values++ = x[i];
        }
    }
}

/* formula    values = the elements whose bit is set, in their order
 * shapes     values[number of bits], x[n], bits[(n + 7) / 8]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_pick_f32(float *values, const float *x, const uint8_t *bits, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        if (bits[i / 8] >> i % 8 & 1) *values++ = x[i];
}

/* formula    y[i] = the next of the values where bit i is set, else 0
 * shapes     y[n], values[number of bits], bits[(n + 7) / 8]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_spread_f32(float *y, const float *values, const uint8_t *bits, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = bits[i / 8] >> i % 8 & 1 ? *values++ : 0.0f;
}
