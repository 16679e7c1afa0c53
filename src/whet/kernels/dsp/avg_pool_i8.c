/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_dsp.h"

enum { MOST = 256 }; /* bytes whose sum fits in 16 bits */

/* sum[l] += four channels of `taps` pixels, c bytes apart. */
static inline void add_line(uint32_t *sum, const int8_t *x, int32_t c, int32_t taps) {
    for (int32_t s = 0; s < taps; s += MOST) {
        uint32_t even = 0, odd = 0;
        for (int32_t k = whet_min(MOST, taps - s); k > 0; k--, x += c) {
            const uint32_t v = whet_word(x);
            even = whet_add_even(even, v);
            odd = whet_add_odd(odd, v);
        }
        sum[0] += (uint32_t)(int16_t)even;
        sum[1] += (uint32_t)(int16_t)odd;
        sum[2] += (uint32_t)((int32_t)even >> 16);
        sum[3] += (uint32_t)((int32_t)odd >> 16);
    }
}

static inline int8_t mean(uint32_t sum, float size, int32_t zero) {
    return (int8_t)whet_saturate8(
        whet_saturating_add(whet_nearest((float)(int32_t)sum / size), zero));
}

/* One window; if it is empty, the result is the lowest number. */
static void window(int8_t *y, const int8_t *x, int32_t zero, const whet_pool2d_t *d,
                   whet_span_t rows, whet_span_t cols, int32_t size) {
    const uint32_t start = (uint32_t)-zero * (uint32_t)(rows.taps * cols.taps);
    const int8_t *first = x + (rows.first * d->w + cols.first) * d->c;
    if (size == 0) {
        memset(y, INT8_MIN, (size_t)d->c);
        return;
    }
    for (int32_t k = 0; k < d->c && d->c >= 4; k += 4) {
        const int32_t c = whet_min(k, d->c - 4);
        uint32_t sum[4] = {start, start, start, start};
        for (int32_t r = 0; r < rows.taps; r++)
            add_line(sum, first + r * d->w * d->c + c, d->c, cols.taps);
        for (int32_t l = 0; l < 4; l++) y[c + l] = mean(sum[l], (float)size, zero);
    }
    for (int32_t c = 0; c < d->c && d->c < 4; c++) {
        uint32_t sum = start;
        for (int32_t r = 0; r < rows.taps; r++)
            for (int32_t s = 0; s < cols.taps; s++)
                sum += (uint32_t)first[(r * d->w + s) * d->c + c];
        y[c] = mean(sum, (float)size, zero);
    }
}

/* formula    y = round(sum of x - zero over the window / its size) + zero, clamped to int8
 * shapes     y[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   the sum to float, one quotient, then to nearest, ties to even
 * workspace  none */
void whet_avg_pool_i8(int8_t *y, const int8_t *x, int32_t zero, const whet_pool2d_t *d) {
    for (int32_t i = 0; i < d->n * d->p * d->q; i++, y += d->c) {
        const int32_t p = i / d->q % d->p, q = i % d->q;
        const whet_span_t rows = whet_pool_rows(d, p), cols = whet_pool_cols(d, q);
        const int8_t *image = x + i / (d->p * d->q) * d->h * d->w * d->c;
        window(y, image, zero, d, rows, cols, whet_pool_size(d, p, q, rows, cols));
    }
}
