/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_BF16_H
#define WHET_BF16_H

#if defined(__AVX512BF16__) && defined(__AVX512F__)
#include <immintrin.h>
#endif

/* Pairs of bfloat16 numbers in words: the first is the lower half. */

typedef uint32_t whet_words_t __attribute__((vector_size(4 * WHET_LANES)));
typedef uint32_t whet_words_u __attribute__((vector_size(4 * WHET_LANES), aligned(4), may_alias));

/* The bits of x rounded to bfloat16, to the nearest, ties to even, in the upper half. NaN stays
 * NaN. */
static inline whet_words_t whet_upper_bf16(whet_vec_t x) {
    const whet_words_t bits = (whet_words_t)x;
    const whet_words_t even = bits + 0x7fff + (bits >> 16 & 1);
    const whet_words_t nan = (whet_words_t)(x != x);
    return ((even & ~nan) | ((bits | 0x400000) & nan)) & 0xffff0000u;
}

/* Words of low[i] and high[i]. */
static inline whet_words_t whet_zip_bf16(whet_vec_t low, whet_vec_t high) {
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
    static const uint16_t order[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                       21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                       11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    return (whet_words_t)_mm512_permutexvar_epi16(_mm512_loadu_si512(order), both);
#else
    return whet_upper_bf16(low) >> 16 | whet_upper_bf16(high);
#endif
}

/* Words of 2 * WHET_LANES neighbouring floats. */
static inline void whet_pairs_bf16(uint32_t *to, const float *x) {
#if defined(__AVX512BF16__) && defined(__AVX512F__)
    const __m512 low = _mm512_loadu_ps(x), high = _mm512_loadu_ps(x + 16);
    _mm512_storeu_si512(to, (__m512i)_mm512_cvtne2ps_pbh(high, low));
#else
    uint32_t bits[2 * WHET_LANES];
    *(whet_words_u *)bits = whet_upper_bf16(whet_load(x));
    *(whet_words_u *)(bits + WHET_LANES) = whet_upper_bf16(whet_load(x + WHET_LANES));
    for (int32_t i = 0; i < WHET_LANES; i++) to[i] = bits[2 * i] >> 16 | bits[2 * i + 1];
#endif
}

/* sum + a.low * b.low + a.high * b.high in every lane. */
static inline whet_vec_t whet_dot_bf16(whet_vec_t sum, whet_words_t a, whet_words_t b) {
#if defined(__AVX512BF16__) && defined(__AVX512F__)
    return (whet_vec_t)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum += (whet_vec_t)(a << 16) * (whet_vec_t)(b << 16);
    return sum + (whet_vec_t)(a & 0xffff0000u) * (whet_vec_t)(b & 0xffff0000u);
#endif
}

#endif
