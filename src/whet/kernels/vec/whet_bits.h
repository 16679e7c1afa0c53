/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_BITS_H
#define WHET_BITS_H

/* Vectors of 8 numbers, on any processor. */
typedef float whet_eight_t __attribute__((vector_size(32)));
typedef float whet_eight_u __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t whet_sides_t __attribute__((vector_size(32)));
typedef int8_t whet_narrow8_t __attribute__((vector_size(8)));

/* Bit i of the result = the lowest bit of lane i: a multiplication gathers 8 bytes. Passed by
 * address, because the calling convention for vectors depends on the processor. */
static inline __attribute__((always_inline)) uint8_t whet_gather_bits(const whet_sides_t *side) {
    const whet_narrow8_t narrow = __builtin_convertvector(*side, whet_narrow8_t);
    uint64_t word;
    memcpy(&word, &narrow, sizeof word);
    word &= UINT64_C(0x0101010101010101);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return (uint8_t)(word * UINT64_C(0x0102040810204080) >> 56);
}

#if defined(__AVX512F__)
/* A bit for every lane, whether low < x < high, and x * slope in lanes whose bit is set. */
static inline uint16_t whet_between(whet_vec_t x, float low, float high) {
    const __mmask16 above = _mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(low), _CMP_GT_OQ);
    return _mm512_mask_cmp_ps_mask(above, (__m512)x, _mm512_set1_ps(high), _CMP_LT_OQ);
}

static inline whet_vec_t whet_where(uint16_t bits, whet_vec_t x, float slope) {
    return (whet_vec_t)_mm512_maskz_mul_ps(bits, (__m512)x, _mm512_set1_ps(slope));
}

#endif

/* Bit i % 8 of bits[i / 8] = low < x[i] < high; bits after the last of n are 0. */
static inline void whet_take_bits(uint8_t *bits, const float *x, int32_t n, float low, float high) {
    int32_t i = 0;
#if defined(__AVX512F__)
    for (; i + WHET_LANES <= n; i += WHET_LANES) {
        const uint16_t some = whet_between(whet_load(x + i), low, high);
        memcpy(bits + i / 8, &some, sizeof some);
    }
#endif
    for (; i + 8 <= n; i += 8) {
        const whet_eight_t v = *(const whet_eight_u *)(x + i);
        const whet_sides_t side = (v > low) & (v < high);
        bits[i / 8] = whet_gather_bits(&side);
    }
    for (uint32_t byte = 0; i < n; i++) {
        byte |= (uint32_t)(x[i] > low && x[i] < high) << i % 8;
        bits[i / 8] = (uint8_t)byte;
    }
}

#endif
