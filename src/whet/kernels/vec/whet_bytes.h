/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_BYTES_H
#define WHET_BYTES_H

/* Bytes as floats: a vector of them (v), half of one (h) or a single one (s). */

typedef int8_t whet_vec_bytes_t __attribute__((vector_size(WHET_LANES)));
typedef int8_t whet_half_bytes_t __attribute__((vector_size(WHET_LANES / 2)));

static inline whet_vec_t whet_floats_v(const int8_t *x, int32_t zero) {
    whet_vec_bytes_t bytes;
    memcpy(&bytes, x, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, whet_bits_t) - zero, whet_vec_t);
}
static inline whet_half_t whet_floats_h(const int8_t *x, int32_t zero) {
    whet_half_bytes_t bytes;
    memcpy(&bytes, x, sizeof bytes);
    return __builtin_convertvector(__builtin_convertvector(bytes, whet_half_bits_t) - zero,
                                   whet_half_t);
}
static inline float whet_floats_s(const int8_t *x, int32_t zero) { return (float)(*x - zero); }

static inline whet_vec_t whet_none_v(void) { return whet_all(0.0f); }
static inline whet_half_t whet_none_h(void) { return (whet_half_t){0.0f}; }
static inline float whet_none_s(void) { return 0.0f; }

#endif
