/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_dsp.h"

/* Converts (`wide`, an expression in i) * scale[i % scales] to int8 for every i < n. */
#define NARROW_ALL(y, bits, wide, scale, n, scales, to, full)                      \
    do {                                                                           \
        whet_bit_row_t row_ = {bits, 0, 0};                                        \
        for (int32_t first_ = 0; first_ < (n); first_ += (scales))                 \
            for (int32_t c_ = 0; c_ < (scales); c_++) {                            \
                const int32_t i = first_ + c_;                                     \
                const float v_ = (wide) * (scale)[c_];                             \
                const int32_t whole_ = whet_saturating_add(whole(v_), (to)->zero); \
                const int32_t held_ = whet_hold(whole_, to, full);                 \
                (y)[i] = (int8_t)held_;                                            \
                whet_put_bit(&row_, whole_ == held_);                              \
            }                                                                      \
        whet_end_bits(&row_);                                                      \
    } while (0)

/* Handles any number, finite or not; NaN is below the range. */
static inline int32_t whole(float v) { return v == v ? whet_nearest(v) : INT32_MIN; }

/* formula    y = round(x * scale[c]) + zero, clamped to [low, high];  bit = it was in range
 * shapes     y[n], bits[(n + 7) / 8] or NULL, x[n], scale[scales]; c = i % scales, which divides n
 * aliasing   y may start where x does
 * rounding   one product, then to nearest, ties to even; NaN is too low
 * workspace  none */
void whet_requantize_f32(int8_t *y, uint8_t *bits, const float *x, const float *scale, int32_t n,
                         int32_t scales, const whet_narrow_t *to) {
    if (whet_is_full(to))
        NARROW_ALL(y, bits, x[i], scale, n, scales, to, 1);
    else
        NARROW_ALL(y, bits, x[i], scale, n, scales, to, 0);
}

/* formula    y = round(x * scale[c]) + zero, clamped to [low, high];  bit = it was in range
 * shapes     as requantize_f32
 * aliasing   y may start where x does
 * rounding   x to float, one product, then to nearest, ties to even
 * workspace  none */
void whet_requantize_i32(int8_t *y, uint8_t *bits, const int32_t *x, const float *scale, int32_t n,
                         int32_t scales, const whet_narrow_t *to) {
    if (whet_is_full(to))
        NARROW_ALL(y, bits, (float)x[i], scale, n, scales, to, 1);
    else
        NARROW_ALL(y, bits, (float)x[i], scale, n, scales, to, 0);
}

/* formula    y = round((x - x_zero) * scale[c]) + zero, clamped to [low, high];  bit = it was
 *            in range
 * shapes     as requantize_f32
 * aliasing   y = x
 * rounding   one product, then to nearest, ties to even
 * workspace  none */
void whet_requantize_i8(int8_t *y, uint8_t *bits, const int8_t *x, const float *scale, int32_t n,
                        int32_t scales, const whet_narrow_t *to) {
    if (whet_is_full(to))
        NARROW_ALL(y, bits, (float)(x[i] - to->x_zero), scale, n, scales, to, 1);
    else
        NARROW_ALL(y, bits, (float)(x[i] - to->x_zero), scale, n, scales, to, 0);
}

/* v, or 0 if bit k is not set. */
static inline float masked(float v, uint32_t bits, const int32_t k) {
    uint32_t word;
    __builtin_memcpy(&word, &v, sizeof word);
    word &= (uint32_t)((int32_t)(bits << (31 - k)) >> 31);
    __builtin_memcpy(&v, &word, sizeof word);
    return v;
}

static inline void eight(float *dx, const float *dy, uint32_t bits, const float *scale) {
    dx[0] = masked(dy[0] * scale[0], bits, 0);
    dx[1] = masked(dy[1] * scale[1], bits, 1);
    dx[2] = masked(dy[2] * scale[2], bits, 2);
    dx[3] = masked(dy[3] * scale[3], bits, 3);
    dx[4] = masked(dy[4] * scale[4], bits, 4);
    dx[5] = masked(dy[5] * scale[5], bits, 5);
    dx[6] = masked(dy[6] * scale[6], bits, 6);
    dx[7] = masked(dy[7] * scale[7], bits, 7);
}

/* formula    dx = dy * scale[c] where the bit is set, else 0
 * shapes     dx[n], dy[n], bits[(n + 7) / 8], scale[scales]; c = i % scales, which divides n
 * aliasing   dx = dy
 * rounding   one product
 * workspace  none */
void whet_requantize_dx_f32(float *dx, const float *dy, const uint8_t *bits, const float *scale,
                            int32_t n, int32_t scales) {
    if (scales % 8 == 0) {
        for (int32_t first = 0; first < n; first += scales)
            for (int32_t c = 0; c < scales; c += 8, dx += 8, dy += 8)
                eight(dx, dy, *bits++, scale + c);
        return;
    }
    for (int32_t first = 0; first < n; first += scales)
        for (int32_t c = 0; c < scales; c++) {
            const int32_t i = first + c;
            dx[i] = masked(dy[i] * scale[c], (uint32_t)bits[i / 8] >> (i % 8), 0);
        }
}
