/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by several kernels. Everything here is inline, so that a program needs only the kernel
 * files it calls. */
#ifndef WHET_INLINE_H
#define WHET_INLINE_H

#include "whet_kernels.h"

#include <math.h>
#include <string.h>

#include "whet_lanes.h"

#define WHET_TILE  (2 * WHET_LANES)
#define WHET_DEPTH 64  /* products summed before they are added to a longer sum */
#define WHET_CHUNK 128 /* rows summed before they are added to a compensated sum */

static inline int32_t whet_min(int32_t a, int32_t b) { return a < b ? a : b; }
static inline float whet_clip(float x, float low, float high) {
    const float raised = x < low ? low : x; /* NaN stays NaN */
    return raised > high ? high : raised;
}
static inline float whet_rsqrt(float x) { return 1.0f / sqrtf(x); }

/* ---- Functions whose bits must not depend on the C library. ops/_exact.py does the same. */

static inline uint32_t whet_bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float whet_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^n for -126 <= n <= 127. */
static inline float whet_power2(int32_t n) { return whet_from_bits((uint32_t)(n + 127) << 23); }

#define WHET_LN2_HIGH 0.693359375f /* few bits: products with small integers are exact */
#define WHET_LN2_LOW  (-2.12194440e-4f)

/* x clamped to [-104, 104]; NaN stays NaN. It compares integers, because float comparisons keep gcc
 * from vectorising the surrounding loops. */
static inline float whet_clip104(float x) {
    const uint32_t bits = whet_bits_of(x), sign = bits & 0x80000000u, size = bits ^ sign;
    const uint32_t limit = 0x42d00000, infinity = 0x7f800000;
    return whet_from_bits(size > limit && size <= infinity ? sign | limit : bits);
}

/* exp(x) = (1 + rest) * half * other: x = n ln 2 + r with |r| < 0.35, rest is a polynomial in r,
 * and 2^n is in two factors, because it alone can overflow or underflow. */
typedef struct {
    float rest, half, other;
} whet_exp_t;

static inline whet_exp_t whet_exp_parts(float x) {
    const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    const float clipped = whet_clip104(x);
    const float shifted = clipped * 1.44269504f + shifter, n = shifted - shifter;
    const float r = (clipped - n * WHET_LN2_HIGH) - n * WHET_LN2_LOW;
    float p = 0.001381454f;
    p = p * r + 0.008368745f;
    p = p * r + 0.04166839f;
    p = p * r + 0.16666521f;
    p = p * r + 0.49999994f;
    const int32_t k = (int32_t)(whet_bits_of(shifted) - whet_bits_of(shifter)), half = k / 2;
    const whet_exp_t e = {r + r * r * p, whet_power2(half), whet_power2(k - half)};
    return e;
}

/* exp(x), with an error below 1 ulp. Beyond +-104 the result is 0 or infinity. */
static inline float whet_exp(float x) {
    const whet_exp_t e = whet_exp_parts(x);
    return (1.0f + e.rest) * e.half * e.other;
}

/* log(x), with an error below 1 ulp: x = 2^e (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), and
 * log(1 + f) = f - f^2 / 2 + f^3 p(f). */
static inline float whet_log(float x) {
    const uint32_t one = 0x3f800000, root = 0x3f3504f3; /* the bits of 1 and of sqrt(1/2) */
    const int32_t subnormal = x < 1.17549435e-38f;
    const uint32_t bits = whet_bits_of(subnormal ? x * 8388608.0f : x) + (one - root);
    const float e = (float)((int32_t)(bits >> 23) - (subnormal ? 150 : 127));
    const float f = whet_from_bits((bits & 0x007fffff) + root) - 1.0f;
    float p = 0.0674664f;
    p = p * f - 0.116764545f;
    p = p * f + 0.11888593f;
    p = p * f - 0.124054976f;
    p = p * f + 0.14219487f;
    p = p * f - 0.16667998f;
    p = p * f + 0.20002122f;
    p = p * f - 0.2500001f;
    p = p * f + 0.33333313f;
    const float square = f * f;
    const float y = (f * square * p + e * WHET_LN2_LOW - 0.5f * square) + f + e * WHET_LN2_HIGH;
    if (x == 0.0f) return -INFINITY;
    if (x < 0.0f) return NAN;
    return x < INFINITY ? y : x; /* infinity and NaN */
}

static inline float whet_sigmoid(float x) {
    const float e = whet_exp(-fabsf(x)); /* never overflows */
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}

/* tanh(x) = -m / (2 + m), m = exp(-2 |x|) - 1, with an error below 3 ulp. */
static inline float whet_tanh(float x) {
    const whet_exp_t e = whet_exp_parts(-2.0f * fabsf(x));
    const float m = e.rest * e.half * e.other + (e.half * e.other - 1.0f);
    return copysignf(-m / (2.0f + m), x);
}

/* erfc(t) for t >= 0, given 0.55 t and exp(-t^2). With u = 1 / (1 + 0.55 t) and v = 1 - u,
 * erfc(t) / exp(-t^2) is u times a polynomial in v, fitted to t < 10. */
static inline float whet_erfc(float scaled, float e) {
    const float u = 1.0f / (1.0f + scaled), v = 1.0f - u;
    float p = -0.057599813f;
    p = p * v + 0.18398356f;
    p = p * v - 0.17469162f;
    p = p * v + 0.06210793f;
    p = p * v - 0.10920866f;
    p = p * v + 0.014455597f;
    p = p * v + 0.24020223f;
    p = p * v + 0.20264299f;
    p = p * v - 1.0515996f;
    return e * u * (1.0f + v * p);
}

/* erf(x), with an error below 4 ulp: a polynomial near 0, else from erfc. The choice between them
 * is one of bits, because a branch keeps gcc from vectorising the surrounding loops. */
static inline float whet_erf(float x) {
    const float size = fabsf(x), square = x * x;
    float p = 0.00428832183f;
    p = p * square - 0.026480902f;
    p = p * square + 0.112771973f;
    p = p * square - 0.376122415f;
    p = p * square + 0.128379121f;
    const float near = size + size * p;
    const float far = 1.0f - whet_erfc(0.55f * size, whet_exp(-square));
    const uint32_t is_near = size < 0.6f ? 0xffffffffu : 0;
    const uint32_t bits = (whet_bits_of(near) & is_near) | (whet_bits_of(far) & ~is_near);
    return copysignf(whet_from_bits(bits), x);
}

/* The normal distribution below x, with an error below 4 ulp for x > -1. Further down it is that of
 * exp(-x^2 / 2), x^2 / 2 ulp. `density`, its derivative, has that error on both sides. */
typedef struct {
    float below, density;
} whet_normal_t;

static inline whet_normal_t whet_normal(float x) {
    const float e = whet_exp(-0.5f * x * x);
    const float tail = 0.5f * whet_erfc(0.38890873f * fabsf(x), e); /* 0.55 / sqrt(2) */
    const float start = x < 0.0f ? 0.0f : 1.0f, change = x < 0.0f ? tail : -tail;
    const whet_normal_t found = {start + change, 0.39894228f * e};
    return found;
}

/* 1 - (1 - fresh)^t for an integer t, by squaring in double precision. */
static inline double whet_correction(float fresh, float t) {
    double power = 1.0, base = 1.0 - (double)fresh;
    for (int32_t n = (int32_t)t; n > 0; n /= 2) {
        if (n % 2 == 1) power *= base;
        base *= base;
    }
    return 1.0 - power;
}

static inline void whet_fill(float *y, int32_t n, float value) {
    for (int32_t i = 0; i < n; i++) y[i] = value;
}

/* Every row of y[rows,n] = b, or 0 if b is NULL. */
static inline void whet_fill_rows(float *y, const float *b, int32_t rows, int32_t n) {
    if (b == NULL)
        whet_fill(y, rows * n, 0.0f);
    else
        for (int32_t r = 0; r < rows; r++) memcpy(y + r * n, b, (size_t)n * sizeof *b);
}

/* Every row of y[rows,n] = its row of add, or 0, plus b, or 0. y may be add. */
static inline void whet_start_rows(float *y, const float *b, const float *add, int32_t rows,
                                   int32_t n) {
    if (add == NULL) {
        whet_fill_rows(y, b, rows, n);
        return;
    }
    if (y != add) memcpy(y, add, (size_t)(rows * n) * sizeof *y);
    for (int32_t r = 0; r < rows && b != NULL; r++)
        for (int32_t i = 0; i < n; i++) y[r * n + i] += b[i];
}

static inline void whet_clip_all(float *y, int32_t n, float low, float high) {
    if (low == -INFINITY && high == INFINITY) return;
    for (int32_t i = 0; i < n; i++) y[i] = whet_clip(y[i], low, high);
}

/* ---- Sums. */

/* Compensated (Kahan) summation: `lost` is the accumulated rounding error. */
typedef struct {
    float sum, lost;
} whet_sum_t;

static inline void whet_add(whet_sum_t *s, float x) {
    const float term = x - s->lost, sum = s->sum + term;
    s->lost = (sum - s->sum) - term;
    s->sum = sum;
}

/* The sum of n = 2^k lanes, pairwise; destroys them. */
static inline float whet_fold(float *lane, int32_t n) {
    while (n > 1) {
        n /= 2;
        for (int32_t l = 0; l < n; l++) lane[l] += lane[l + n];
    }
    return lane[0];
}

/* Adds `term`, an expression in i, to the whet_sum_t *total for every i < n. */
#define WHET_SUM(total, n, term)                                                               \
    do {                                                                                       \
        int32_t first_ = 0;                                                                    \
        while (first_ + WHET_TILE <= (n)) {                                                    \
            const int32_t end_ = whet_min(first_ + WHET_CHUNK * WHET_TILE, n) - WHET_TILE + 1; \
            float part_[WHET_TILE] = {0.0f};                                                   \
            for (; first_ < end_; first_ += WHET_TILE)                                         \
                for (int32_t l_ = 0; l_ < WHET_TILE; l_++) {                                   \
                    const int32_t i = first_ + l_;                                             \
                    part_[l_] += (term);                                                       \
                }                                                                              \
            whet_add(total, whet_fold(part_, WHET_TILE));                                      \
        }                                                                                      \
        for (int32_t i = first_; i < (n); i++) whet_add(total, term);                          \
    } while (0)

/* total[l] = sum of `term`, an expression in r and i, over r < rows, where i = column + l and
 * l < width <= WHET_TILE. */
#define WHET_SUM_ROWS(total, rows, column, width, term)                               \
    do {                                                                              \
        whet_sum_t sums_[WHET_TILE] = {{0.0f, 0.0f}};                                 \
        for (int32_t first_ = 0; first_ < (rows); first_ += WHET_CHUNK) {             \
            const int32_t end_ = whet_min(first_ + WHET_CHUNK, rows);                 \
            float part_[WHET_TILE] = {0.0f};                                          \
            if ((width) == WHET_TILE) {                                               \
                for (int32_t r = first_; r < end_; r++)                               \
                    for (int32_t l_ = 0; l_ < WHET_TILE; l_++) {                      \
                        const int32_t i = (column) + l_;                              \
                        part_[l_] += (term);                                          \
                    }                                                                 \
            } else {                                                                  \
                for (int32_t r = first_; r < end_; r++)                               \
                    for (int32_t l_ = 0; l_ < (width); l_++) {                        \
                        const int32_t i = (column) + l_;                              \
                        part_[l_] += (term);                                          \
                    }                                                                 \
            }                                                                         \
            for (int32_t l_ = 0; l_ < (width); l_++) whet_add(&sums_[l_], part_[l_]); \
        }                                                                             \
        for (int32_t l_ = 0; l_ < (width); l_++) (total)[l_] = sums_[l_].sum;         \
    } while (0)

/* Adds `term`, an expression in r and i, to the whet_sum_t *total for all r < rows, i < width. */
#define WHET_SUM_BLOCK(total, rows, width, term)                                 \
    do {                                                                         \
        if ((rows) == 1) {                                                       \
            const int32_t r = 0;                                                 \
            WHET_SUM(total, width, term);                                        \
        } else {                                                                 \
            for (int32_t column_ = 0; column_ < (width); column_ += WHET_TILE) { \
                const int32_t n_ = whet_min((width) - column_, WHET_TILE);       \
                float sum_[WHET_TILE];                                           \
                WHET_SUM_ROWS(sum_, rows, column_, n_, term);                    \
                for (int32_t l_ = 0; l_ < n_; l_++) whet_add(total, sum_[l_]);   \
            }                                                                    \
        }                                                                        \
    } while (0)

#include "whet_matmul.h"

/* ---- Windows. */

/* The range of outputs whose tap, at output * stride + offset, is inside an axis of `size`. */
typedef struct {
    int32_t first, end;
} whet_range_t;

static inline whet_range_t whet_outputs(int32_t offset, int32_t size, int32_t stride,
                                        int32_t outputs) {
    whet_range_t v = {0, 0};
    if (offset < 0) v.first = (stride - 1 - offset) / stride;
    if (offset < size) v.end = whet_min((size - 1 - offset) / stride + 1, outputs);
    return v;
}

/* A tap of a convolution's window: the output pixels for which it is inside the image. */
typedef struct {
    int32_t top, left; /* the position that output (0,0) reads */
    whet_range_t rows, cols;
    int32_t width; /* of cols */
} whet_tap_t;

static inline whet_tap_t whet_tap(const whet_conv2d_t *d, int32_t tap) {
    whet_tap_t t;
    t.top = tap / d->kw * d->dh - d->ph;
    t.left = tap % d->kw * d->dw - d->pw;
    t.rows = whet_outputs(t.top, d->h, d->sh, d->p);
    t.cols = whet_outputs(t.left, d->w, d->sw, d->q);
    t.width = t.cols.end - t.cols.first;
    return t;
}

/* Offset of the first of the tap's pixels in row p of image n: in y, and in x. */
static inline int32_t whet_tap_y(const whet_conv2d_t *d, const whet_tap_t *t, int32_t n,
                                 int32_t p) {
    return ((n * d->p + p) * d->q + t->cols.first) * d->o;
}

static inline int32_t whet_tap_x(const whet_conv2d_t *d, const whet_tap_t *t, int32_t n,
                                 int32_t p) {
    const int32_t row = n * d->h + p * d->sh + t->top;
    return (row * d->w + t->cols.first * d->sw + t->left) * d->c;
}

/* The part of a window inside an axis: its first position, the number of taps, `step` apart, and
 * the number of taps cut off before. */
typedef struct {
    int32_t first, taps, step, cut;
} whet_span_t;

static inline whet_span_t whet_span(int32_t i, int32_t size, int32_t kernel, int32_t stride,
                                    int32_t pad, int32_t dilation) {
    const int32_t start = i * stride - pad;
    const int32_t cut = start < 0 ? (dilation - 1 - start) / dilation : 0;
    const int32_t end = start < size ? whet_min((size - 1 - start) / dilation + 1, kernel) : 0;
    const whet_span_t v = {start + cut * dilation, end > cut ? end - cut : 0, dilation, cut};
    return v;
}

/* Window i of `out` windows that divide the axis evenly. */
static inline whet_span_t whet_share(int32_t i, int32_t size, int32_t out) {
    const int32_t first = (int32_t)((int64_t)i * size / out);
    const int32_t end = (int32_t)(((int64_t)(i + 1) * size + out - 1) / out);
    const whet_span_t v = {first, end - first, 1, 0};
    return v;
}

static inline whet_span_t whet_pool_rows(const whet_pool2d_t *d, int32_t p) {
    return d->adaptive ? whet_share(p, d->h, d->p) : whet_span(p, d->h, d->kh, d->sh, d->ph, d->dh);
}

static inline whet_span_t whet_pool_cols(const whet_pool2d_t *d, int32_t q) {
    return d->adaptive ? whet_share(q, d->w, d->q) : whet_span(q, d->w, d->kw, d->sw, d->pw, d->dw);
}

/* The divisor of the sum over window (p,q). */
static inline int32_t whet_pool_size(const whet_pool2d_t *d, int32_t p, int32_t q, whet_span_t rows,
                                     whet_span_t cols) {
    if (d->divisor) return d->divisor;
    if (d->adaptive || !d->count_pad) return rows.taps * cols.taps;
    /* Padding counts, but nothing beyond its far edge. */
    const int32_t height = whet_min(d->kh, d->h + 2 * d->ph - p * d->sh);
    const int32_t width = whet_min(d->kw, d->w + 2 * d->pw - q * d->sw);
    return height * width;
}

/* ---- Traversals. An index runs over the first `axes` axes; the rest is a row. */

static inline int32_t whet_offset(const int32_t *index, const int32_t *step, int32_t axes) {
    int32_t offset = 0;
    for (int32_t i = 0; i < axes; i++) offset += index[i] * step[i];
    return offset;
}

/* Advances the index; 0 after the last one. */
static inline int32_t whet_next(int32_t *index, const int32_t *dims, int32_t axes) {
    for (int32_t i = axes - 1; i >= 0; i--) {
        if (++index[i] < dims[i]) return 1;
        index[i] = 0;
    }
    return 0;
}

/* y = `expr`, an expression in u (of the first operand) and v (of the second). Along the last axis
 * an operand has stride 1 or 0. */
#define WHET_BINARY(y, first, second, d, expr)                               \
    do {                                                                     \
        const int32_t axes_ = (d)->rank - 1, n_ = (d)->dims[axes_];          \
        int32_t index_[WHET_MAX_RANK] = {0};                                 \
        do {                                                                 \
            const float *a_ = (first) + whet_offset(index_, (d)->a, axes_);  \
            const float *b_ = (second) + whet_offset(index_, (d)->b, axes_); \
            if ((d)->a[axes_] == 0) {                                        \
                const float u = *a_;                                         \
                for (int32_t i = 0; i < n_; i++) {                           \
                    const float v = b_[i];                                   \
                    (y)[i] = (expr);                                         \
                }                                                            \
            } else if ((d)->b[axes_] == 0) {                                 \
                const float v = *b_;                                         \
                for (int32_t i = 0; i < n_; i++) {                           \
                    const float u = a_[i];                                   \
                    (y)[i] = (expr);                                         \
                }                                                            \
            } else {                                                         \
                for (int32_t i = 0; i < n_; i++) {                           \
                    const float u = a_[i], v = b_[i];                        \
                    (y)[i] = (expr);                                         \
                }                                                            \
            }                                                                \
            (y) += n_;                                                       \
        } while (whet_next(index_, (d)->dims, axes_));                       \
    } while (0)

/* y = `expr`, an expression in s (of the first operand, of type T), u (second) and v (third). */
#define WHET_TERNARY(y, T, first, second, third, d, expr)                            \
    do {                                                                             \
        const int32_t axes_ = (d)->rank - 1, n_ = (d)->dims[axes_];                  \
        const int32_t sa_ = (d)->a[axes_], sb_ = (d)->b[axes_], sc_ = (d)->c[axes_]; \
        int32_t index_[WHET_MAX_RANK] = {0};                                         \
        do {                                                                         \
            const T *a_ = (first) + whet_offset(index_, (d)->a, axes_);              \
            const float *b_ = (second) + whet_offset(index_, (d)->b, axes_);         \
            const float *c_ = (third) + whet_offset(index_, (d)->c, axes_);          \
            for (int32_t i = 0; i < n_; i++) {                                       \
                const T s = a_[i * sa_];                                             \
                const float u = b_[i * sb_], v = c_[i * sc_];                        \
                (y)[i] = (expr);                                                     \
            }                                                                        \
            (y) += n_;                                                               \
        } while (whet_next(index_, (d)->dims, axes_));                               \
    } while (0)

/* y = sums of x, or of its squares, over the axes where d->step is 0. */
static inline void whet_reduce(float *y, const float *x, int32_t outputs, const whet_reduce_t *d,
                               const int32_t square) {
    const int32_t last = d->rank - 1, columns = d->step[last] != 0;
    const int32_t n = d->dims[last], rows = columns && last > 0 ? d->dims[last - 1] : 1;
    const int32_t axes = columns && last > 0 ? last - 1 : last;
    int32_t index[WHET_MAX_RANK] = {0};
    whet_fill(y, outputs, 0.0f);
    do {
        float *out = y + whet_offset(index, d->step, axes);
        if (columns) {
            for (int32_t j = 0; j < n; j += WHET_TILE) {
                const int32_t width = whet_min(n - j, WHET_TILE);
                float total[WHET_TILE];
                WHET_SUM_ROWS(total, rows, j, width,
                              square ? x[r * n + i] * x[r * n + i] : x[r * n + i]);
                for (int32_t l = 0; l < width; l++) out[j + l] += total[l];
            }
        } else {
            whet_sum_t total = {0.0f, 0.0f};
            WHET_SUM(&total, n, square ? x[i] * x[i] : x[i]);
            *out += total.sum;
        }
        x += rows * n;
    } while (whet_next(index, d->dims, axes));
}

/* ---- Lines of classes. */

/* The largest of n numbers `step` apart. */
static inline float whet_top(const float *x, int32_t n, int32_t step) {
    float top = x[0];
    for (int32_t i = 1; i < n; i++) top = x[i * step] > top ? x[i * step] : top;
    return top;
}

/* The sum of exp(x - top). */
static inline float whet_exp_sum(const float *x, int32_t n, int32_t step, float top) {
    whet_sum_t sum = {0.0f, 0.0f};
    WHET_SUM(&sum, n, whet_exp(x[i * step] - top));
    return sum.sum;
}

/* The weight of a row with this label; 0 if it is ignored. */
static inline float whet_label_weight(int32_t label, const float *weight, int32_t ignore) {
    if (label == ignore) return 0.0f;
    return weight == NULL ? 1.0f : weight[label];
}

/* The divisor of the loss: 1, or the total weight of the rows if `mean`. */
static inline float whet_loss_divisor(const int32_t *labels, const float *weight, int32_t rows,
                                      int32_t ignore, int32_t mean) {
    if (!mean) return 1.0f;
    whet_sum_t total = {0.0f, 0.0f};
    for (int32_t r = 0; r < rows; r++)
        whet_add(&total, whet_label_weight(labels[r], weight, ignore));
    return total.sum;
}

#endif
