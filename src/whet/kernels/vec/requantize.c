/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

#include "whet_dot.h"
#include "whet_threads.h"

/* Numbers are converted row by row, a row being all channels, or all numbers if there is one scale.
 * Each thread handles enough rows to write whole bytes of bits. */

typedef WHET_OF_DOTS(whet_reals) reals_t;
typedef WHET_OF_DOTS(whet_reals_u) reals_u;

typedef struct {
    int8_t *y;
    uint8_t *bits;
    const float *real; /* one of these three is x */
    const int32_t *sums;
    const int8_t *narrow;
    const float *scale;
    int32_t n, width, each; /* numbers per row, and 1 if each has its own scale */
    int32_t unit, x_zero;
    whet_range8_t range;
} layer_t;

/* The vector of x at i. */
static inline __attribute__((always_inline)) reals_t load(const layer_t *l, int32_t i) {
    if (l->real != NULL) return *(const reals_u *)(l->real + i);
    if (l->sums != NULL)
        return __builtin_convertvector(*(const whet_dots_u *)(l->sums + i), reals_t);
    return __builtin_convertvector(whet_load_lanes(l->narrow + i) - l->x_zero, reals_t);
}

static float number(const layer_t *l, int32_t i) {
    if (l->real != NULL) return l->real[i];
    return l->sums != NULL ? (float)l->sums[i] : (float)(l->narrow[i] - l->x_zero);
}

static inline void store(const layer_t *l, const whet_range8_t *range, int32_t i, reals_t v) {
    if (l->bits != NULL) {
        whet_dots_t beyond;
        whet_store_lanes(l->y + i, WHET_OF_DOTS(whet_judge)(v, range, &beyond), WHET_DOTS);
        whet_set_bits(l->bits, i, whet_lane_zeros(beyond), WHET_DOTS);
    } else {
        whet_store_lanes(l->y + i, WHET_OF_DOTS(whet_round)(v, range), WHET_DOTS);
    }
}

/* Units [first, end): of rows, or of numbers if there is one scale. */
static void run(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_range8_t range = l->range;
    const int32_t stop = whet_min(end * l->unit, l->n);
    for (int32_t row = first * l->unit; row < stop; row += l->width) {
        const int32_t to = l->each ? row + l->width : stop;
        const reals_t none = {0.0f}, all = none + l->scale[0];
        int32_t i = row;
        for (; i + WHET_DOTS <= to; i += WHET_DOTS) {
            const reals_t x = load(l, i);
            store(l, &range, i, l->each ? x * *(const reals_u *)(l->scale + i - row) : x * all);
        }
        for (; i < to; i++) {
            const float v = whet_round8(number(l, i) * l->scale[l->each ? i - row : 0], range);
            l->y[i] = whet_to_i8(v, range);
            if (l->bits != NULL) whet_set_bits(l->bits, i, (uint64_t)whet_inside8(v, range), 1);
        }
        if (!l->each) break;
    }
}

static void narrow(layer_t *l, int32_t n, int32_t scales, const whet_narrow_t *to) {
    const void *x = l->real ? (const void *)l->real : (const void *)l->sums;
    l->n = n;
    l->width = scales;
    l->each = scales > 1;
    l->unit = scales > 1 ? 8 * scales : 1024;
    l->x_zero = to->x_zero;
    l->range = whet_range8(to);
    if (l->bits != NULL) memset(l->bits, 0, (size_t)(n + 7) / 8);
    const int32_t units = (n + l->unit - 1) / l->unit;
    if (x == (const void *)l->y && n > 0)
        run(l, 0, units); /* in place over wider numbers, the order matters */
    else
        whet_share_work(run, l, units, (int64_t)n * 8);
}

/* formula    y = round(x * scale[c]) + zero, clamped to [low, high];  bit = it was in range
 * shapes     y[n], bits[(n + 7) / 8] or NULL, x[n], scale[scales]; c = i % scales, which divides n
 * aliasing   y may start where x does
 * rounding   one product, then to nearest, ties to even; NaN is too low
 * workspace  none */
void whet_requantize_f32(int8_t *y, uint8_t *bits, const float *x, const float *scale, int32_t n,
                         int32_t scales, const whet_narrow_t *to) {
    layer_t l = {.y = y, .bits = bits, .real = x, .scale = scale};
    narrow(&l, n, scales, to);
}

/* formula    y = round(x * scale[c]) + zero, clamped to [low, high];  bit = it was in range
 * shapes     as requantize_f32
 * aliasing   y may start where x does
 * rounding   x to float, one product, then to nearest, ties to even
 * workspace  none */
void whet_requantize_i32(int8_t *y, uint8_t *bits, const int32_t *x, const float *scale, int32_t n,
                         int32_t scales, const whet_narrow_t *to) {
    layer_t l = {.y = y, .bits = bits, .sums = x, .scale = scale};
    narrow(&l, n, scales, to);
}

/* formula    y = round((x - x_zero) * scale[c]) + zero, clamped to [low, high];  bit = it was
 *            in range
 * shapes     as requantize_f32
 * aliasing   y = x
 * rounding   one product, then to nearest, ties to even
 * workspace  none */
void whet_requantize_i8(int8_t *y, uint8_t *bits, const int8_t *x, const float *scale, int32_t n,
                        int32_t scales, const whet_narrow_t *to) {
    layer_t l = {.y = y, .bits = bits, .narrow = x, .scale = scale};
    narrow(&l, n, scales, to);
}

/* ---- The gradient. */

typedef struct {
    float *dx;
    const float *dy;
    const uint8_t *bits;
    const float *scale;
    int32_t n, scales, unit;
} slopes_t;

/* dx of one vector from i on; scales start at c, or there is one for all. */
#define SLOPES(name, bytes, word, ...)                                                         \
    static inline void name(const slopes_t *l, int32_t i, int32_t c, int32_t each) {           \
        typedef float reals __attribute__((vector_size(bytes)));                               \
        typedef float reals_in __attribute__((vector_size(bytes), aligned(4), may_alias));     \
        typedef int32_t sides __attribute__((vector_size(bytes)));                             \
        const sides place = {__VA_ARGS__};                                                     \
        reals dx = *(const reals_in *)(l->dy + i);                                             \
        dx *= each ? (reals) * (const reals_in *)(l->scale + c) : (reals){0.0f} + l->scale[0]; \
        word inside;                                                                           \
        memcpy(&inside, l->bits + i / 8, sizeof inside);                                       \
        *(reals_in *)(l->dx + i) = (reals)((sides)dx & ((place & (int32_t)inside) != 0));      \
    }
SLOPES(eight, 32, uint8_t, 1, 2, 4, 8, 16, 32, 64, 128)
#if WHET_WIDE == 64 /* so the lowest bits come first in a word */
SLOPES(sixteen, 64, uint16_t, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384,
       32768)
#endif

/* Units are of whole bytes, and of all scales. */
static void run_back(const void *args, int32_t first, int32_t end) {
    const slopes_t *l = args;
    const int32_t stop = whet_min(end * l->unit, l->n), each = l->scales > 1;
    for (int32_t row = first * l->unit, to; row < stop; row = to) {
        int32_t i = row;
        to = each ? row + l->scales : stop;
        if (row % 8 == 0) {
#if WHET_WIDE == 64
            for (; i + 16 <= to; i += 16) sixteen(l, i, i - row, each);
#endif
            for (; i + 8 <= to; i += 8) eight(l, i, i - row, each);
        }
        for (; i < to; i++)
            l->dx[i] = l->bits[i / 8] >> i % 8 & 1 ? l->dy[i] * l->scale[each ? i - row : 0] : 0.0f;
    }
}

/* formula    dx = dy * scale[c] where the bit is set, else 0
 * shapes     dx[n], dy[n], bits[(n + 7) / 8], scale[scales]; c = i % scales, which divides n
 * aliasing   dx = dy
 * rounding   one product
 * workspace  none */
void whet_requantize_dx_f32(float *dx, const float *dy, const uint8_t *bits, const float *scale,
                            int32_t n, int32_t scales) {
    const int32_t unit = scales > 1 ? 8 * scales : 1024;
    const slopes_t l = {dx, dy, bits, scale, n, scales, unit};
    whet_share_work(run_back, &l, (n + unit - 1) / unit, (int64_t)n * 8);
}
