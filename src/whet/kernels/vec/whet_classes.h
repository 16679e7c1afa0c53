/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_CLASSES_H
#define WHET_CLASSES_H

/* Contiguous lines of classes, in vectors. */

/* The larger of two, lane by lane. */
static inline whet_vec_t whet_larger(whet_vec_t a, whet_vec_t b) {
    const whet_bits_t first = a > b;
    return (whet_vec_t)(((whet_bits_t)a & first) | ((whet_bits_t)b & ~first));
}

/* The largest of n numbers. */
static inline float whet_line_top(const float *x, int32_t n) {
    if (n < 2 * WHET_LANES) return whet_top(x, n, 1);
    whet_vec_t a = whet_load(x), b = whet_load(x + WHET_LANES);
    int32_t i = 2 * WHET_LANES;
    for (; i + 2 * WHET_LANES <= n; i += 2 * WHET_LANES) {
        a = whet_larger(whet_load(x + i), a);
        b = whet_larger(whet_load(x + i + WHET_LANES), b);
    }
    float lanes[WHET_LANES];
    whet_store(lanes, whet_larger(a, b));
    const float top = whet_top(lanes, WHET_LANES, 1);
    if (i == n) return top;
    const float rest = whet_top(x + i, n - i, 1);
    return rest > top ? rest : top;
}

/* exp(x) = y 2^k with an integer k, lane by lane: returns y. */
static inline whet_vec_t whet_exp_near_0(whet_vec_t x, whet_bits_t *k) {
    const float shifter = 12582912.0f;
    const whet_vec_t shifted = x * 1.44269504f + shifter, n = shifted - shifter;
    const whet_vec_t r = (x - n * WHET_LN2_HIGH) - n * WHET_LN2_LOW;
    whet_vec_t p = r * 0.001381454f + 0.008368745f;
    p = p * r + 0.04166839f;
    p = p * r + 0.16666521f;
    p = p * r + 0.49999994f;
    *k = (whet_bits_t)shifted - (whet_bits_t)whet_all(shifter);
    return r + r * r * p + 1.0f;
}

/* whet_exp, lane by lane, of x <= 104. */
static inline whet_vec_t whet_exp_vec(whet_vec_t x) {
    const whet_bits_t low = x < -104.0f;
    whet_bits_t k;
    x = (whet_vec_t)(((whet_bits_t)whet_all(-104.0f) & low) | ((whet_bits_t)x & ~low));
    const whet_vec_t y = whet_exp_near_0(x, &k);
    const whet_bits_t half = k >> 1;
    const whet_vec_t first = (whet_vec_t)((half + 127) << 23);
    return y * first * (whet_vec_t)((k - half + 127) << 23);
}

/* The same of x <= 0, without subnormal results: below -87 they are 0. NaN stays NaN. */
static inline whet_vec_t whet_exp_share(whet_vec_t x) {
    const whet_bits_t low = x < -87.0f;
    whet_bits_t k;
    const whet_vec_t y = whet_exp_near_0(x, &k);
    return (whet_vec_t)((whet_bits_t)(y * (whet_vec_t)((k + 127) << 23)) & ~low);
}

/* The sum of exp(x - top), and those numbers in y unless it is NULL; y may be x. */
static inline float whet_line_exps(float *y, const float *x, int32_t n, float top) {
    whet_sum_t sum = {0.0f, 0.0f};
    int32_t i = 0;
    while (i + WHET_LANES <= n) {
        const int32_t end = whet_min(i + WHET_CHUNK * WHET_LANES, n);
        whet_vec_t part = whet_all(0.0f);
        for (; i + WHET_LANES <= end; i += WHET_LANES) {
            const whet_vec_t e = whet_exp_vec(whet_load(x + i) - top);
            part += e;
            if (y) whet_store(y + i, e);
        }
        whet_add(&sum, whet_sum_lanes(part));
    }
    for (; i < n; i++) {
        const float e = whet_exp(x[i] - top);
        whet_add(&sum, e);
        if (y) y[i] = e;
    }
    return sum.sum;
}

#endif
