/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_DOT_H
#define WHET_DOT_H

/* ---- Sums of four products of bytes. whet_dot_N(sum, x, w), for vectors of N bytes, adds to every
 * 32-bit lane the products of the four bytes of x and of w in that lane, and wraps around. Bytes of
 * w are signed; those of x stand for x - WHET_FLIP, because some processors take them unsigned. */

typedef int32_t whet_ints_16 __attribute__((vector_size(16)));
typedef int32_t whet_ints_32 __attribute__((vector_size(32)));
typedef int32_t whet_ints_64 __attribute__((vector_size(64)));

#if defined(__AVX512VNNI__) && defined(__AVX512VL__) && defined(__AVX512BW__)
#include <immintrin.h>
#define WHET_FLIP 128
#define WHET_WIDE 64 /* bytes of the widest vectors that have the instruction */
static inline whet_ints_64 whet_dot_64(whet_ints_64 sum, whet_ints_64 x, whet_ints_64 w) {
    return (whet_ints_64)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)x, (__m512i)w);
}
static inline whet_ints_32 whet_dot_32(whet_ints_32 sum, whet_ints_32 x, whet_ints_32 w) {
    return (whet_ints_32)_mm256_dpbusd_epi32((__m256i)sum, (__m256i)x, (__m256i)w);
}
static inline whet_ints_16 whet_dot_16(whet_ints_16 sum, whet_ints_16 x, whet_ints_16 w) {
    return (whet_ints_16)_mm_dpbusd_epi32((__m128i)sum, (__m128i)x, (__m128i)w);
}

#elif defined(__AVXVNNI__)
#include <immintrin.h>
#define WHET_FLIP 128
#define WHET_WIDE 32
static inline whet_ints_32 whet_dot_32(whet_ints_32 sum, whet_ints_32 x, whet_ints_32 w) {
    return (whet_ints_32)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)w);
}
static inline whet_ints_16 whet_dot_16(whet_ints_16 sum, whet_ints_16 x, whet_ints_16 w) {
    return (whet_ints_16)_mm_dpbusd_avx_epi32((__m128i)sum, (__m128i)x, (__m128i)w);
}

#elif defined(__SSE2__)
#include <immintrin.h>
#define WHET_FLIP 0
/* Products of 16-bit numbers are added in pairs: first those of the even bytes, then of the odd. */
static inline whet_ints_16 whet_dot_16(whet_ints_16 sum, whet_ints_16 x, whet_ints_16 w) {
    const __m128i u = (__m128i)x, v = (__m128i)w;
    const __m128i even = _mm_madd_epi16(_mm_srai_epi16(_mm_slli_epi16(u, 8), 8),
                                        _mm_srai_epi16(_mm_slli_epi16(v, 8), 8));
    const __m128i odd = _mm_madd_epi16(_mm_srai_epi16(u, 8), _mm_srai_epi16(v, 8));
    return (whet_ints_16)_mm_add_epi32(_mm_add_epi32((__m128i)sum, even), odd);
}
#if defined(__AVX2__)
#define WHET_WIDE 32
static inline whet_ints_32 whet_dot_32(whet_ints_32 sum, whet_ints_32 x, whet_ints_32 w) {
    const __m256i u = (__m256i)x, v = (__m256i)w;
    const __m256i even = _mm256_madd_epi16(_mm256_srai_epi16(_mm256_slli_epi16(u, 8), 8),
                                           _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srai_epi16(u, 8), _mm256_srai_epi16(v, 8));
    return (whet_ints_32)_mm256_add_epi32(_mm256_add_epi32((__m256i)sum, even), odd);
}
#else
#define WHET_WIDE 16
#endif

#elif defined(__ARM_FEATURE_DOTPROD) && defined(__ARM_NEON)
#include <arm_neon.h>
#define WHET_FLIP 0
#define WHET_WIDE 16
static inline whet_ints_16 whet_dot_16(whet_ints_16 sum, whet_ints_16 x, whet_ints_16 w) {
    return (whet_ints_16)vdotq_s32((int32x4_t)sum, (int8x16_t)x, (int8x16_t)w);
}

#else
#define WHET_FLIP 0
#define WHET_WIDE 16
typedef uint32_t whet_words_16 __attribute__((vector_size(16)));
/* The byte of every lane that ends at bit `end`, with its sign. */
static inline whet_words_16 whet_byte_16(whet_ints_16 x, const int32_t end) {
    return (whet_words_16)((whet_ints_16)((whet_words_16)x << (32 - end)) >> 24);
}
static inline whet_ints_16 whet_dot_16(whet_ints_16 sum, whet_ints_16 x, whet_ints_16 w) {
    whet_words_16 total = (whet_words_16)sum;
    for (int32_t end = 8; end <= 32; end += 8) total += whet_byte_16(x, end) * whet_byte_16(w, end);
    return (whet_ints_16)total;
}
#endif

/* ---- The widest of them, with a lane for each of WHET_DOTS outputs. */

#define WHET_DOTS (WHET_WIDE / 4)
#if WHET_WIDE == 64
typedef whet_ints_64 whet_dots_t;
#define whet_dot4 whet_dot_64
#elif WHET_WIDE == 32
typedef whet_ints_32 whet_dots_t;
#define whet_dot4 whet_dot_32
#else
typedef whet_ints_16 whet_dots_t;
#define whet_dot4 whet_dot_16
#endif
typedef int32_t whet_dots_u __attribute__((vector_size(WHET_WIDE), aligned(4), may_alias));
/* Sums that wrap around. */
typedef uint32_t whet_sums_t __attribute__((vector_size(WHET_WIDE)));
typedef uint32_t whet_sums_u __attribute__((vector_size(WHET_WIDE), aligned(4), may_alias));
typedef float whet_reals_t __attribute__((vector_size(WHET_WIDE)));
typedef float whet_reals_u __attribute__((vector_size(WHET_WIDE), aligned(4), may_alias));
typedef int8_t whet_eights_t __attribute__((vector_size(WHET_DOTS)));
typedef int8_t whet_eights_u __attribute__((vector_size(WHET_DOTS), aligned(1), may_alias));

/* ---- Narrowing WHET_DOTS numbers at a time; see whet_narrow.h. */

/* Bit i = the lowest bit of lane i of a comparison's result. */
static inline uint32_t whet_lane_bits(whet_dots_t side) {
#if WHET_WIDE == 64
    return _mm512_movepi32_mask((__m512i)side);
#elif WHET_WIDE == 32
    return (uint32_t)_mm256_movemask_ps((__m256)side);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)side);
#else
    return (uint32_t)((side[0] & 1) | (side[1] & 2) | (side[2] & 4) | (side[3] & 8));
#endif
}

typedef struct {
    whet_eights_t y;
    uint32_t inside; /* a bit for every lane */
} whet_narrowed_t;

/* The bits of 12582912.0f + v, for a whole v, are those of 12582912.0f plus v. */
static inline __attribute__((always_inline)) whet_narrowed_t
whet_narrow_lanes(whet_reals_t v, const whet_range8_t *to, const int32_t with_bits) {
    const whet_reals_t none = {0.0f};
    const whet_reals_t below = none + to->below, above = none + to->above;
    const whet_dots_t high_enough = v > below;
    v = (whet_reals_t)(((whet_dots_t)v & high_enough) | ((whet_dots_t)below & ~high_enough));
    const whet_dots_t low_enough = v < above;
    v = (whet_reals_t)(((whet_dots_t)v & low_enough) | ((whet_dots_t)above & ~low_enough));
    whet_dots_t whole = (whet_dots_t)(v + 12582912.0f) - 0x4B400000;
    const int32_t low = (int32_t)to->below + 1, high = (int32_t)to->above - 1;
    const whet_dots_t too_low = whole<low, too_high = whole> high;
    whet_narrowed_t result;
    result.inside = with_bits ? whet_lane_bits(~(too_low | too_high)) : 0u;
    whole += (too_low & 1) - (too_high & 1); /* it is one off at most */
    result.y = __builtin_convertvector(whole + to->zero, whet_eights_t);
    return result;
}

/* Sets bits [at, at + n) of a row of them, n <= 16, that were 0. */
static inline void whet_set_bits(uint8_t *bits, int32_t at, uint32_t value, int32_t n) {
    value = (value & ((1u << n) - 1)) << (at & 7);
    for (uint8_t *to = bits + at / 8; value != 0; value >>= 8) *to++ |= (uint8_t)value;
}

/* y[n] = the first numbers of the result, and their bits from `at` on unless bits is NULL. */
static inline void whet_store_narrowed(int8_t *y, uint8_t *bits, int32_t at, whet_narrowed_t result,
                                       int32_t n) {
    if (n == WHET_DOTS)
        *(whet_eights_u *)y = result.y;
    else
        memcpy(y, &result.y, (size_t)n);
    if (bits != NULL) whet_set_bits(bits, at, result.inside, n);
}

#endif
