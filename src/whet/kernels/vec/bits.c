/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bits.h"
#include "whet_threads.h"

enum { UNIT = 1024 }; /* minimum elements per thread */

typedef struct {
    uint8_t *bits;
    const uint8_t *from;
    float *dx;
    const float *x;
    int32_t n, closed;
    float low, high; /* or the slopes inside and outside */
} bits_t;

/* Like whet_take_bits, but the limits are inside. */
static void take_closed(uint8_t *bits, const float *x, int32_t n, float low, float high) {
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const whet_eight_t v = *(const whet_eight_u *)(x + i);
        const whet_sides_t side = (v >= low) & (v <= high);
        bits[i / 8] = whet_gather_bits(&side);
    }
    for (uint32_t byte = 0; i < n; i++) {
        byte |= (uint32_t)(x[i] >= low && x[i] <= high) << i % 8;
        bits[i / 8] = (uint8_t)byte;
    }
}

static void take_bits(const void *args, int32_t first, int32_t end) {
    const bits_t *a = args;
    const int32_t i = first * UNIT, n = whet_min(end * UNIT, a->n) - i;
    if (a->closed)
        take_closed(a->bits + i / 8, a->x + i, n, a->low, a->high);
    else
        whet_take_bits(a->bits + i / 8, a->x + i, n, a->low, a->high);
}

/* formula    bit i % 8 of bits[i / 8] = low < x[i] < high, or low <= x[i] <= high if closed
 * shapes     bits[(n + 7) / 8], x[n]; bits after the last element are 0
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_within_bits_f32(uint8_t *bits, const float *x, int32_t n, float low, float high,
                          int32_t closed) {
    const bits_t a = {.bits = bits, .x = x, .n = n, .low = low, .high = high, .closed = closed};
    whet_share_work(take_bits, &a, (n + UNIT - 1) / UNIT, (int64_t)n * 2);
}

static void spread_bits(const void *args, int32_t first, int32_t end) {
    const bits_t *a = args;
    const int32_t stop = whet_min(end * UNIT, a->n);
    const whet_sides_t place = {1, 2, 4, 8, 16, 32, 64, 128};
    const float in = a->low, out = a->high, *from = a->x;
    const int32_t inside = in == 0.0f ? 0 : -1, outside = out == 0.0f ? 0 : -1;
    const uint8_t *bits = a->from;
    float *dx = a->dx;
    int32_t i = first * UNIT;
#if defined(__AVX512F__)
    for (; in != 0.0f && out == 0.0f && i + WHET_LANES <= stop; i += WHET_LANES) {
        uint16_t some;
        memcpy(&some, bits + i / 8, sizeof some);
        whet_store(dx + i, whet_where(some, whet_load(from + i), in));
    }
#endif
    for (; i + 8 <= stop; i += 8) {
        const whet_eight_t dy = *(const whet_eight_u *)(from + i);
        const whet_sides_t side = (place & (int32_t)bits[i / 8]) != 0;
        const whet_sides_t one = (whet_sides_t)(dy * in) & side & inside;
        const whet_sides_t other = (whet_sides_t)(dy * out) & ~side & outside;
        *(whet_eight_u *)(dx + i) = (whet_eight_t)(one | other);
    }
    for (; i < stop; i++) {
        const float slope = a->from[i / 8] >> i % 8 & 1 ? a->low : a->high;
        a->dx[i] = slope == 0.0f ? 0.0f : a->x[i] * slope;
    }
}

/* formula    dx[i] = dy[i] * (bit i ? inside : outside), and 0 where that slope is 0
 * shapes     dx[n], dy[n], bits[(n + 7) / 8]
 * aliasing   dx = dy
 * rounding   one product
 * workspace  none */
void whet_bits_dx_f32(float *dx, const float *dy, const uint8_t *bits, int32_t n, float inside,
                      float outside) {
    const bits_t a = {.dx = dx, .x = dy, .from = bits, .n = n, .low = inside, .high = outside};
    whet_share_work(spread_bits, &a, (n + UNIT - 1) / UNIT, (int64_t)n * 2);
}
