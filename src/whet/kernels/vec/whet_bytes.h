/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_BYTES_H
#define WHET_BYTES_H

/* Bytes as floats: a vector of them (v), half of one (h) or a single one (s). Compilers split
 * __builtin_convertvector lane by lane here. */

#if defined(__AVX512F__)
#include <immintrin.h>
static inline whet_vec_t whet_floats_v(const int8_t *x, int32_t zero) {
    const __m512i wide = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
    return (whet_vec_t)_mm512_cvtepi32_ps(_mm512_sub_epi32(wide, _mm512_set1_epi32(zero)));
}
static inline whet_half_t whet_floats_h(const int8_t *x, int32_t zero) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
    return (whet_half_t)_mm256_cvtepi32_ps(_mm256_sub_epi32(wide, _mm256_set1_epi32(zero)));
}
#else
#if defined(__AVX2__)
#include <immintrin.h>
static inline whet_vec_t whet_floats_v(const int8_t *x, int32_t zero) {
    const __m256i wide = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
    return (whet_vec_t)_mm256_cvtepi32_ps(_mm256_sub_epi32(wide, _mm256_set1_epi32(zero)));
}
#else
static inline whet_vec_t whet_floats_v(const int8_t *x, int32_t zero) {
    whet_vec_t v;
    for (int32_t l = 0; l < WHET_LANES; l++) v[l] = (float)(x[l] - zero);
    return v;
}
#endif
static inline whet_half_t whet_floats_h(const int8_t *x, int32_t zero) {
    whet_half_t v;
    for (int32_t l = 0; l < WHET_LANES / 2; l++) v[l] = (float)(x[l] - zero);
    return v;
}
#endif

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__F16C__))
#define WHET_HAS_HALF 1
/* All lanes of the value of the 16-bit float at x. */
static inline whet_vec_t whet_all_half(const uint8_t *x) {
    int16_t bits;
    memcpy(&bits, x, sizeof bits);
#if defined(__AVX512F__)
    return (whet_vec_t)_mm512_cvtph_ps(_mm256_set1_epi16(bits));
#else
    return (whet_vec_t)_mm256_cvtph_ps(_mm_set1_epi16(bits));
#endif
}
#endif

/* As many bytes as a vector has lanes, without their signs, as integers. */
static inline whet_bits_t whet_wide_v(const uint8_t *x) {
#if defined(__AVX512F__)
    return (whet_bits_t)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
#elif defined(__AVX2__)
    return (whet_bits_t)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
#else
    whet_bits_t v = {0};
    for (int32_t l = 0; l < WHET_LANES; l++) v[l] = x[l];
    return v;
#endif
}

static inline float whet_floats_s(const int8_t *x, int32_t zero) { return (float)(*x - zero); }

static inline whet_vec_t whet_none_v(void) { return whet_all(0.0f); }
static inline whet_half_t whet_none_h(void) { return (whet_half_t){0.0f}; }
static inline float whet_none_s(void) { return 0.0f; }

/* Rows and vectors of a block whose products are rounded separately from the sums. With AVX-512 a
 * product can take a memory operand, but only if no other product shares it: so a block has one
 * vector. */
#if WHET_LANES == 16
enum { WHET_APART_ROWS = 16, WHET_APART_VECTORS = 1 };
#elif defined(__aarch64__)
enum { WHET_APART_ROWS = 8, WHET_APART_VECTORS = 2 };
#else
enum { WHET_APART_ROWS = 4, WHET_APART_VECTORS = 2 };
#endif

#endif
