/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

#include "whet_dot.h"
#include "whet_threads.h"

enum { UNIT = 1024 }; /* minimum elements per thread */

typedef WHET_OF_DOTS(whet_reals) reals_t;

typedef struct {
    int8_t *y;
    uint8_t *bits;
    const int8_t *a, *b;
    int32_t n, a_zero, b_zero;
    float a_scale, b_scale;
    whet_range8_t range;
} sum_t;

static inline reals_t load(const int8_t *x, int32_t zero, float scale) {
    return __builtin_convertvector(whet_load_lanes(x) - zero, reals_t) * scale;
}

static void run(const void *args, int32_t first, int32_t end) {
    const sum_t l = *(const sum_t *)args;
    const int32_t stop = whet_min(end * UNIT, l.n);
    int32_t i = first * UNIT;
    for (; i + WHET_DOTS <= stop; i += WHET_DOTS) {
        const reals_t sum = load(l.a + i, l.a_zero, l.a_scale) + load(l.b + i, l.b_zero, l.b_scale);
        if (l.bits != NULL) {
            whet_dots_t beyond;
            whet_store_lanes(l.y + i, WHET_OF_DOTS(whet_judge)(sum, &l.range, &beyond), WHET_DOTS);
            whet_set_bits(l.bits, i, whet_lane_zeros(beyond), WHET_DOTS);
        } else {
            whet_store_lanes(l.y + i, WHET_OF_DOTS(whet_round)(sum, &l.range), WHET_DOTS);
        }
    }
    for (; i < stop; i++) {
        const float left = (float)(l.a[i] - l.a_zero) * l.a_scale;
        const float right = (float)(l.b[i] - l.b_zero) * l.b_scale;
        const float v = whet_round8(left + right, l.range);
        l.y[i] = whet_to_i8(v, l.range);
        if (l.bits != NULL) whet_set_bits(l.bits, i, (uint64_t)whet_inside8(v, l.range), 1);
    }
}

/* formula    y = round((a - a_zero) * a_scale + (b - b_zero) * b_scale) + zero, clamped to [low,
 *            high];  bit = it was in range
 * shapes     y[n], bits[(n + 7) / 8] or NULL, a[n], b[n]
 * aliasing   y = a or y = b
 * rounding   two products and their sum, then to nearest, ties to even
 * workspace  none */
void whet_add_i8(int8_t *y, uint8_t *bits, const int8_t *a, const int8_t *b, int32_t n,
                 int32_t a_zero, int32_t b_zero, float a_scale, float b_scale,
                 const whet_narrow_t *to) {
    const sum_t l = {y, bits, a, b, n, a_zero, b_zero, a_scale, b_scale, whet_range8(to)};
    if (bits != NULL) memset(bits, 0, (size_t)(n + 7) / 8);
    whet_share_work(run, &l, (n + UNIT - 1) / UNIT, (int64_t)n * 8);
}
