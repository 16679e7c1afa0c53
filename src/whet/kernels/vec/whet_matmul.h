/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_MATMUL_H
#define WHET_MATMUL_H

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

/* ---- Vectors of WHET_LANES floats, half as many, or 4; those ending in _u are unaligned. */

typedef float whet_vec_t __attribute__((vector_size(4 * WHET_LANES)));
typedef float whet_vec_u __attribute__((vector_size(4 * WHET_LANES), aligned(4), may_alias));
typedef float whet_half_t __attribute__((vector_size(2 * WHET_LANES)));
typedef float whet_half_u __attribute__((vector_size(2 * WHET_LANES), aligned(4), may_alias));
typedef float whet_quad_t __attribute__((vector_size(16)));
typedef float whet_quad_u __attribute__((vector_size(16), aligned(4), may_alias));

static inline whet_vec_t whet_load(const float *x) { return *(const whet_vec_u *)x; }
static inline void whet_store(float *y, whet_vec_t v) { *(whet_vec_u *)y = v; }
static inline whet_vec_t whet_all(float x) { return (whet_vec_t){0.0f} + x; }
static inline whet_half_t whet_load_half(const float *x) { return *(const whet_half_u *)x; }
static inline void whet_store_half(float *y, whet_half_t v) { *(whet_half_u *)y = v; }

typedef int32_t whet_bits_t __attribute__((vector_size(4 * WHET_LANES)));
typedef int32_t whet_half_bits_t __attribute__((vector_size(2 * WHET_LANES)));

/* min(max(x, low), high), and NaN where x is NaN. Compilers do not reduce this to two instructions,
 * so intrinsics are used where it matters most: they return the second operand if any is NaN. */
#if defined(__AVX512F__)
static inline whet_vec_t whet_clip_vec(whet_vec_t x, float low, float high) {
    const __m512 raised = _mm512_max_ps(_mm512_set1_ps(low), (__m512)x);
    return (whet_vec_t)_mm512_min_ps(_mm512_set1_ps(high), raised);
}

static inline whet_half_t whet_clip_half(whet_half_t x, float low, float high) {
    const __m256 raised = _mm256_max_ps(_mm256_set1_ps(low), (__m256)x);
    return (whet_half_t)_mm256_min_ps(_mm256_set1_ps(high), raised);
}
#else
#define WHET_CLIP(x, low, high, vec, bits)                                            \
    do {                                                                              \
        const bits below_ = (x)<(low), above_ = (x)>(high);                           \
        (x) = (vec)(((bits)((vec){0.0f} + (low)) & below_) | ((bits)(x) & ~below_));  \
        (x) = (vec)(((bits)((vec){0.0f} + (high)) & above_) | ((bits)(x) & ~above_)); \
    } while (0)

static inline whet_vec_t whet_clip_vec(whet_vec_t x, float low, float high) {
    WHET_CLIP(x, low, high, whet_vec_t, whet_bits_t);
    return x;
}

static inline whet_half_t whet_clip_half(whet_half_t x, float low, float high) {
    WHET_CLIP(x, low, high, whet_half_t, whet_half_bits_t);
    return x;
}
#endif

/* The sum of all lanes, halves first. */
static inline float whet_sum_lanes(whet_vec_t v) {
    whet_half_t part[2];
    memcpy(part, &v, sizeof part);
    part[0] += part[1];
#if WHET_LANES == 16
    whet_quad_t quarter[2];
    memcpy(quarter, part, sizeof quarter);
    quarter[0] += quarter[1];
    return (quarter[0][0] + quarter[0][2]) + (quarter[0][1] + quarter[0][3]);
#elif WHET_LANES == 8
    return (part[0][0] + part[0][2]) + (part[0][1] + part[0][3]);
#else
    return part[0][0] + part[0][1];
#endif
}

/* ---- Matrix products, in matmul.c and outer.c. The summation order of each element depends only
 * on the sizes, so that any number of threads gives the same bits. */

/* y[i,j] = sum over taps t and l < depth of a(i,t)[l] * b(t)[l,j], plus bias and add, clipped.
 * `find` locates the rows of y and a: it fills in y[count] and a[taps][count] for rows first, first
 * + 1, ...; a NULL in a represents zeros. b(t)[l,j] is at b[at[t] + l*bl + j*bj], where bl or bj is
 * 1; `at` may be NULL if there is one tap. With `read`, there is one tap, and a matrix w in place
 * of b: w[l,j] if bj is 1, else w[j,l]. */
typedef struct {
    int32_t rows, columns, taps, depth;
    void (*find)(const void *who, const float **a, float **y, int32_t first, int32_t count);
    const void *who;
    const float *b;
    const int32_t *at;
    /* to[r*ldto + c] = w[row + r, first + c] for r < rows and c < n; first is a multiple of
     * WHET_TILE, and so is n unless the row of w ends there. NULL if b is in memory. */
    void (*read)(const void *w, float *to, int32_t ldto, int32_t row, int32_t rows, int32_t first,
                 int32_t n);
    const void *w;
    int32_t bl, bj;
    int32_t ldy;                   /* distance between rows of y if it is known, else 0 */
    const float *bias;             /* [columns], or NULL */
    const float *add, *add_origin; /* add, or NULL, is laid out like y is from add_origin on */
    float low, high;
    uint8_t *bits; /* whether low < y < high, or NULL; then y is dense, from add_origin on */
} whet_product_t;
void whet_product(const whet_product_t *p);

/* The same for rows at a fixed distance: a[i*lda + l], y[i*ldy + j]. */
void whet_dense_product(float *y, int32_t ldy, const float *a, int32_t lda, whet_product_t *p);

/* y[i, t, j] = sum over l < depth of a[l*lda + i] * b(l,t)[j]: weight gradients. `find` locates the
 * rows of b: it fills in b[taps][count] for l = first, first + 1, ...; NULL represents zeros. With
 * one tap they may be at b[l*ldb] instead, with ldb numbers each. y[i,t,j] is at y[i*ldy +
 * t*columns + j]. */
typedef struct {
    int32_t rows, columns, taps, depth;
    const float *a;
    int32_t lda;
    void (*find)(const void *who, const float **b, int32_t first, int32_t count);
    const void *who;
    const float *b; /* or NULL */
    int32_t ldb;
    float *y;
    int32_t ldy;
    int32_t onto; /* adds to y */
} whet_outer_t;
void whet_outer(const whet_outer_t *p);

/* y[m,n] = a[k,m]' b[k,n], or y += that if `onto` */
void whet_dense_outer(float *y, const float *a, const float *b, int32_t m, int32_t n, int32_t k,
                      int32_t onto);

#endif
