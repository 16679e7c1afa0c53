/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_DOT_H
#define WHET_DOT_H

/* ---- Sums of four products of bytes. whet_dot_N(sum, x, w), for vectors of N bytes, adds to every
 * 32-bit lane the products of the four bytes of x and of w in that lane, and wraps around. Bytes of
 * w are signed; those of x represent x - WHET_FLIP, because some processors require them
 * unsigned. */

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

#elif defined(__ARM_FEATURE_DOTPROD) && defined(__aarch64__)
#include <arm_neon.h>
#define WHET_FLIP 0
#define WHET_WIDE 16
static inline whet_ints_16 whet_dot_16(whet_ints_16 sum, whet_ints_16 x, whet_ints_16 w) {
    return (whet_ints_16)vdotq_s32((int32x4_t)sum, (int8x16_t)x, (int8x16_t)w);
}

#else
#if defined(__aarch64__)
#include <arm_neon.h>
#endif
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

/* ---- Transposing bytes: whet_mix_N makes of columns a, b, c, d of N bytes four vectors whose
 * lanes are a[i], b[i], c[i], d[i]; lane l of vector v is of byte 16 * (l / 4) + 4 * v + l % 4.
 * whet_join_N undoes that for lanes that fit into a byte. */

#if defined(__SSE2__)
#define WHET_MIX(N, vec, pre, lower8, upper8, lower16, upper16, pack32, pack16)            \
    static inline void whet_mix_##N(whet_ints_##N to[4], whet_ints_##N a, whet_ints_##N b, \
                                    whet_ints_##N c, whet_ints_##N d) {                    \
        const vec low = lower8((vec)a, (vec)b), high = upper8((vec)a, (vec)b);             \
        const vec low2 = lower8((vec)c, (vec)d), high2 = upper8((vec)c, (vec)d);           \
        to[0] = (whet_ints_##N)lower16(low, low2);                                         \
        to[1] = (whet_ints_##N)upper16(low, low2);                                         \
        to[2] = (whet_ints_##N)lower16(high, high2);                                       \
        to[3] = (whet_ints_##N)upper16(high, high2);                                       \
    }                                                                                      \
    static inline whet_ints_##N whet_join_##N(const whet_ints_##N from[4]) {               \
        return (whet_ints_##N)pack16(pack32((vec)from[0], (vec)from[1]),                   \
                                     pack32((vec)from[2], (vec)from[3]));                  \
    }
WHET_MIX(16, __m128i, _mm, _mm_unpacklo_epi8, _mm_unpackhi_epi8, _mm_unpacklo_epi16,
         _mm_unpackhi_epi16, _mm_packs_epi32, _mm_packs_epi16)
#if WHET_WIDE >= 32
WHET_MIX(32, __m256i, _mm256, _mm256_unpacklo_epi8, _mm256_unpackhi_epi8, _mm256_unpacklo_epi16,
         _mm256_unpackhi_epi16, _mm256_packs_epi32, _mm256_packs_epi16)
#endif
#if WHET_WIDE >= 64
WHET_MIX(64, __m512i, _mm512, _mm512_unpacklo_epi8, _mm512_unpackhi_epi8, _mm512_unpacklo_epi16,
         _mm512_unpackhi_epi16, _mm512_packs_epi32, _mm512_packs_epi16)
#endif
#elif defined(__aarch64__)
static inline void whet_mix_16(whet_ints_16 to[4], whet_ints_16 a, whet_ints_16 b, whet_ints_16 c,
                               whet_ints_16 d) {
    const int8x16_t p = (int8x16_t)a, q = (int8x16_t)b, r = (int8x16_t)c, s = (int8x16_t)d;
    const int16x8_t low = (int16x8_t)vzip1q_s8(p, q), high = (int16x8_t)vzip2q_s8(p, q);
    const int16x8_t low2 = (int16x8_t)vzip1q_s8(r, s), high2 = (int16x8_t)vzip2q_s8(r, s);
    to[0] = (whet_ints_16)vzip1q_s16(low, low2);
    to[1] = (whet_ints_16)vzip2q_s16(low, low2);
    to[2] = (whet_ints_16)vzip1q_s16(high, high2);
    to[3] = (whet_ints_16)vzip2q_s16(high, high2);
}
static inline whet_ints_16 whet_join_16(const whet_ints_16 from[4]) {
    const int16x8_t low =
        vcombine_s16(vmovn_s32((int32x4_t)from[0]), vmovn_s32((int32x4_t)from[1]));
    const int16x8_t high =
        vcombine_s16(vmovn_s32((int32x4_t)from[2]), vmovn_s32((int32x4_t)from[3]));
    return (whet_ints_16)vcombine_s8(vmovn_s16(low), vmovn_s16(high));
}
#else
static inline void whet_mix_16(whet_ints_16 to[4], whet_ints_16 a, whet_ints_16 b, whet_ints_16 c,
                               whet_ints_16 d) {
    int8_t from[4][16], mixed[16][4];
    memcpy(from[0], &a, 16);
    memcpy(from[1], &b, 16);
    memcpy(from[2], &c, 16);
    memcpy(from[3], &d, 16);
    for (int32_t i = 0; i < 16; i++)
        for (int32_t k = 0; k < 4; k++) mixed[i][k] = from[k][i];
    memcpy(to, mixed, sizeof mixed);
}
static inline whet_ints_16 whet_join_16(const whet_ints_16 from[4]) {
    int8_t joined[16];
    for (int32_t i = 0; i < 16; i++) joined[i] = (int8_t)from[i / 4][i % 4];
    whet_ints_16 to;
    memcpy(&to, joined, sizeof to);
    return to;
}
#endif

/* The transpose of four rows of four words. */
static inline void whet_turn(whet_ints_16 to[4], whet_ints_16 a, whet_ints_16 b, whet_ints_16 c,
                             whet_ints_16 d) {
#if defined(__SSE2__)
    const __m128i low = _mm_unpacklo_epi32((__m128i)a, (__m128i)b);
    const __m128i high = _mm_unpackhi_epi32((__m128i)a, (__m128i)b);
    const __m128i low2 = _mm_unpacklo_epi32((__m128i)c, (__m128i)d);
    const __m128i high2 = _mm_unpackhi_epi32((__m128i)c, (__m128i)d);
    to[0] = (whet_ints_16)_mm_unpacklo_epi64(low, low2);
    to[1] = (whet_ints_16)_mm_unpackhi_epi64(low, low2);
    to[2] = (whet_ints_16)_mm_unpacklo_epi64(high, high2);
    to[3] = (whet_ints_16)_mm_unpackhi_epi64(high, high2);
#elif defined(__aarch64__)
    const int32x4_t p = (int32x4_t)a, q = (int32x4_t)b, r = (int32x4_t)c, s = (int32x4_t)d;
    const int64x2_t low = (int64x2_t)vtrn1q_s32(p, q), high = (int64x2_t)vtrn2q_s32(p, q);
    const int64x2_t low2 = (int64x2_t)vtrn1q_s32(r, s), high2 = (int64x2_t)vtrn2q_s32(r, s);
    to[0] = (whet_ints_16)vtrn1q_s64(low, low2);
    to[1] = (whet_ints_16)vtrn1q_s64(high, high2);
    to[2] = (whet_ints_16)vtrn2q_s64(low, low2);
    to[3] = (whet_ints_16)vtrn2q_s64(high, high2);
#else
    for (int32_t k = 0; k < 4; k++) to[k] = (whet_ints_16){a[k], b[k], c[k], d[k]};
#endif
}

/* ---- A row of n <= N bytes, padded with 0. */

#if defined(__AVX512BW__) && defined(__AVX512VL__)
static inline whet_ints_64 whet_load_64(const int8_t *x, int32_t n) {
    return (whet_ints_64)_mm512_maskz_loadu_epi8(~UINT64_C(0) >> (64 - n), x);
}
static inline whet_ints_32 whet_load_32(const int8_t *x, int32_t n) {
    return (whet_ints_32)_mm256_maskz_loadu_epi8(~UINT32_C(0) >> (32 - n), x);
}
static inline whet_ints_16 whet_load_16(const int8_t *x, int32_t n) {
    return (whet_ints_16)_mm_maskz_loadu_epi8((__mmask16)((1u << n) - 1), x);
}
static inline void whet_store_64(int8_t *y, whet_ints_64 v, int32_t n) {
    _mm512_mask_storeu_epi8(y, ~UINT64_C(0) >> (64 - n), (__m512i)v);
}
static inline void whet_store_32(int8_t *y, whet_ints_32 v, int32_t n) {
    _mm256_mask_storeu_epi8(y, ~UINT32_C(0) >> (32 - n), (__m256i)v);
}
static inline void whet_store_16(int8_t *y, whet_ints_16 v, int32_t n) {
    _mm_mask_storeu_epi8(y, (__mmask16)((1u << n) - 1), (__m128i)v);
}
#else
#define WHET_SOME(N)                                                           \
    static inline whet_ints_##N whet_load_##N(const int8_t *x, int32_t n) {    \
        whet_ints_##N v = {0};                                                 \
        if (n == N)                                                            \
            memcpy(&v, x, N);                                                  \
        else                                                                   \
            memcpy(&v, x, (size_t)n);                                          \
        return v;                                                              \
    }                                                                          \
    static inline void whet_store_##N(int8_t *y, whet_ints_##N v, int32_t n) { \
        if (n == N)                                                            \
            memcpy(y, &v, N);                                                  \
        else                                                                   \
            memcpy(y, &v, (size_t)n);                                          \
    }
WHET_SOME(16)
#if WHET_WIDE >= 32
WHET_SOME(32)
#endif
#endif

/* Bit i = byte i is 0. */
#if defined(__SSE2__)
static inline uint64_t whet_zeros_16(whet_ints_16 v) {
    return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8((__m128i)v, _mm_setzero_si128()));
}
#if WHET_WIDE >= 32
static inline uint64_t whet_zeros_32(whet_ints_32 v) {
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8((__m256i)v, _mm256_setzero_si256()));
}
#endif
#if WHET_WIDE >= 64
static inline uint64_t whet_zeros_64(whet_ints_64 v) {
    return _mm512_testn_epi8_mask((__m512i)v, (__m512i)v);
}
#endif
#else
static inline uint64_t whet_zeros_16(whet_ints_16 v) {
    int8_t byte[16];
    uint64_t bits = 0;
    memcpy(byte, &v, sizeof byte);
    for (int32_t i = 0; i < 16; i++) bits |= (uint64_t)(byte[i] == 0) << i;
    return bits;
}
#endif

/* ---- The widest of them, with a lane for each of WHET_DOTS outputs. */

#define WHET_DOTS (WHET_WIDE / 4)
#if WHET_WIDE == 64
typedef whet_ints_64 whet_dots_t;
#define WHET_OF_DOTS(name) name##_64
#elif WHET_WIDE == 32
typedef whet_ints_32 whet_dots_t;
#define WHET_OF_DOTS(name) name##_32
#else
typedef whet_ints_16 whet_dots_t;
#define WHET_OF_DOTS(name) name##_16
#endif
typedef int32_t whet_dots_u __attribute__((vector_size(WHET_WIDE), aligned(4), may_alias));
/* The flip mask, opaque to the compiler, which would otherwise flip the few bytes that fill a
 * vector beforehand, in two more instructions. */
static inline whet_dots_t whet_flips(void) {
    whet_dots_t v = {0};
#if WHET_WIDE == 64
    v += (int32_t)0x80808080u;
    __asm__("" : "+v"(v));
#elif WHET_FLIP
    v += (int32_t)0x80808080u;
#endif
    return v;
}
typedef float whet_dot_reals_t __attribute__((vector_size(WHET_WIDE)));
/* a * b + c, rounded once. */
static inline whet_dot_reals_t whet_fma_dots(whet_dot_reals_t a, whet_dot_reals_t b,
                                             whet_dot_reals_t c) {
#if WHET_WIDE == 64
    return (whet_dot_reals_t)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif WHET_WIDE == 32 && defined(__FMA__)
    return (whet_dot_reals_t)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (whet_dot_reals_t)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    for (int32_t l = 0; l < WHET_DOTS; l++) c[l] = fmaf(a[l], b[l], c[l]);
    return c;
#endif
}
/* Sums that wrap around. */
typedef uint32_t whet_sums_t __attribute__((vector_size(WHET_WIDE)));
typedef uint32_t whet_sums_u __attribute__((vector_size(WHET_WIDE), aligned(4), may_alias));

/* ---- Conversion to int8, a vector at a time; see whet_narrow.h. */

/* whet_hold_N: v clamped to [low, high]; NaN becomes low. */
#if defined(__SSE2__)
#define WHET_HOLD(N, vec, max, min) (whet_reals_##N) min(max((vec)v, (vec)low), (vec)high)
#define WHET_HOLD_16                WHET_HOLD(16, __m128, _mm_max_ps, _mm_min_ps)
#define WHET_HOLD_32                WHET_HOLD(32, __m256, _mm256_max_ps, _mm256_min_ps)
#define WHET_HOLD_64                WHET_HOLD(64, __m512, _mm512_max_ps, _mm512_min_ps)
#else
#define WHET_HOLD_16 whet_choose_16(v, low, high)
typedef float whet_four_t __attribute__((vector_size(16)));
static inline whet_four_t whet_choose_16(whet_four_t v, whet_four_t low, whet_four_t high) {
    const whet_ints_16 over = v > low;
    v = (whet_four_t)(((whet_ints_16)v & over) | ((whet_ints_16)low & ~over));
    const whet_ints_16 under = v < high;
    return (whet_four_t)(((whet_ints_16)v & under) | ((whet_ints_16)high & ~under));
}
#endif

/* whet_limit_N: integers clamped to [low, high]. */
#if WHET_WIDE == 64
static inline whet_ints_64 whet_limit_64(whet_ints_64 x, int32_t low, int32_t high) {
    const __m512i raised = _mm512_max_epi32((__m512i)x, _mm512_set1_epi32(low));
    return (whet_ints_64)_mm512_min_epi32(raised, _mm512_set1_epi32(high));
}
#endif
#if WHET_WIDE >= 32
static inline whet_ints_32 whet_limit_32(whet_ints_32 x, int32_t low, int32_t high) {
    const __m256i raised = _mm256_max_epi32((__m256i)x, _mm256_set1_epi32(low));
    return (whet_ints_32)_mm256_min_epi32(raised, _mm256_set1_epi32(high));
}
#endif
static inline whet_ints_16 whet_limit_16(whet_ints_16 x, int32_t low, int32_t high) {
#if defined(__SSE4_1__)
    const __m128i raised = _mm_max_epi32((__m128i)x, _mm_set1_epi32(low));
    return (whet_ints_16)_mm_min_epi32(raised, _mm_set1_epi32(high));
#else
    const whet_ints_16 too_low = x<low, too_high = x> high;
    return (x & ~(too_low | too_high)) | (too_low & low) | (too_high & high);
#endif
}

/* Whether two vectors differ, lane by lane: 0, or a value that whet_join_N keeps nonzero. */
#if defined(__SSE2__)
#define WHET_DIFFER(N, a, b) ((whet_ints_##N)(a) ^ (whet_ints_##N)(b)) /* joining saturates */
#else
#define WHET_DIFFER(N, a, b) ((whet_ints_##N)((a) != (b)))
#endif

/* whet_round_N: v, rounded and clamped. whet_judge_N: the same, and *beyond = 0 in lanes where it
 * was in range. 12582912.0f + v has no fraction, and for an integer v its bits are those of
 * 12582912.0f plus v. The addition distorts a large v, but it stays out of range. */
#define WHET_NARROW(N)                                                                      \
    typedef float whet_reals_##N __attribute__((vector_size(N)));                           \
    typedef float whet_reals_u_##N __attribute__((vector_size(N), aligned(4), may_alias));  \
    static inline whet_reals_##N whet_hold_##N(whet_reals_##N v, whet_reals_##N low,        \
                                               whet_reals_##N high) {                       \
        return WHET_HOLD_##N;                                                               \
    }                                                                                       \
    static inline whet_ints_##N whet_judge_##N(whet_reals_##N v, const whet_range8_t *to,   \
                                               whet_ints_##N *beyond) {                     \
        const whet_reals_##N none = {0.0f}, whole = v + 12582912.0f;                        \
        const whet_reals_##N held = whet_hold_##N(whole, none + (12582913.0f + to->below),  \
                                                  none + (12582911.0f + to->above));        \
        *beyond = WHET_DIFFER(N, whole, held);                                              \
        return (whet_ints_##N)held - (0x4B400000 - to->zero);                               \
    }                                                                                       \
    static inline whet_ints_##N whet_round_##N(whet_reals_##N v, const whet_range8_t *to) { \
        whet_ints_##N beyond;                                                               \
        return whet_judge_##N(v, to, &beyond);                                              \
    }
WHET_NARROW(16)
#if WHET_WIDE >= 32
WHET_NARROW(32)
#endif
#if WHET_WIDE >= 64
WHET_NARROW(64)
#endif

/* ---- For the widest vectors: bytes as lanes and back, and bit i = lane i is 0. Compilers split
 * __builtin_convertvector lane by lane here. */

static inline whet_dots_t whet_load_lanes(const int8_t *x) {
#if WHET_WIDE == 64
    return (whet_dots_t)_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
#elif WHET_WIDE == 32
    return (whet_dots_t)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
#elif defined(__SSE2__)
    int32_t four;
    memcpy(&four, x, sizeof four);
    const __m128i bytes = _mm_cvtsi32_si128(four), pairs = _mm_unpacklo_epi8(bytes, bytes);
    return (whet_dots_t)_mm_srai_epi32(_mm_unpacklo_epi16(pairs, pairs), 24);
#else
    return (whet_dots_t){x[0], x[1], x[2], x[3]};
#endif
}

static inline uint32_t whet_lane_zeros(whet_dots_t v) {
#if WHET_WIDE == 64
    return _mm512_testn_epi32_mask((__m512i)v, (__m512i)v);
#elif WHET_WIDE == 32
    return (uint32_t)_mm256_movemask_ps((__m256)(v == 0));
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)(v == 0));
#else
    const whet_dots_t none = v == 0;
    return (uint32_t)((none[0] & 1) | (none[1] & 2) | (none[2] & 4) | (none[3] & 8));
#endif
}

/* y[n] = the first n lanes, which fit into bytes. */
static inline void whet_store_lanes(int8_t *y, whet_dots_t v, int32_t n) {
#if WHET_WIDE == 64
    const __m128i narrow = _mm512_cvtepi32_epi8((__m512i)v);
    if (n == WHET_DOTS)
        memcpy(y, &narrow, WHET_DOTS);
    else
        whet_store_16(y, (whet_ints_16)narrow, n);
#else
#if WHET_WIDE == 32
    const __m128i low = _mm256_castsi256_si128((__m256i)v);
    const __m128i pairs = _mm_packs_epi32(low, _mm256_extracti128_si256((__m256i)v, 1));
    const __m128i narrow = _mm_packs_epi16(pairs, pairs);
#elif defined(__SSE2__)
    const __m128i pairs = _mm_packs_epi32((__m128i)v, (__m128i)v);
    const __m128i narrow = _mm_packs_epi16(pairs, pairs);
#elif defined(__aarch64__)
    const int16x4_t pairs = vmovn_s32((int32x4_t)v);
    const int8x8_t narrow = vmovn_s16(vcombine_s16(pairs, pairs));
#else
    const int8_t narrow[4] = {(int8_t)v[0], (int8_t)v[1], (int8_t)v[2], (int8_t)v[3]};
#endif
    if (n == WHET_DOTS)
        memcpy(y, &narrow, WHET_DOTS);
    else
        memcpy(y, &narrow, (size_t)n);
#endif
}

/* bytes[n] = the lowest n of a word, n <= 8. */
static inline void whet_put_bytes(uint8_t *bytes, uint64_t word, int32_t n) {
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (n == 8) {
        memcpy(bytes, &word, 8);
        return;
    }
    if (n & 4) {
        memcpy(bytes, &word, 4);
        bytes += 4;
        word >>= 32;
    }
    if (n & 2) {
        memcpy(bytes, &word, 2);
        bytes += 2;
        word >>= 16;
    }
    if (n & 1) *bytes = (uint8_t)word;
#else
    for (int32_t i = 0; i < n; i++) bytes[i] = (uint8_t)(word >> 8 * i);
#endif
}

/* Sets bits [at, at + n) of a row of them, n <= 64, that were 0. */
static inline void whet_set_bits(uint8_t *bits, int32_t at, uint64_t value, int32_t n) {
    bits += at / 8;
    if (((at | n) & 7) == 0) {
        whet_put_bytes(bits, value, n / 8);
        return;
    }
    value &= ~UINT64_C(0) >> (64 - n);
    *bits = (uint8_t)(*bits | value << at % 8);
    for (value >>= 8 - at % 8; value != 0; value >>= 8) *++bits |= (uint8_t)value;
}

#endif
