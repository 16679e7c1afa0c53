/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_MOMENTS_H
#define WHET_MOMENTS_H

#include "whet_inline.h"

#include "whet_kernels_moments.h"

static inline float whet_from_bf16(uint16_t bits) { return whet_from_bits((uint32_t)bits << 16); }

/* Rounded down or up, in turn, so that the mean over steps and elements is right: `at` is the sum
 * of both. Multiples of the golden ratio, which are spread evenly, decide. */
static inline uint16_t whet_to_bf16(float x, uint32_t at) {
    return (uint16_t)((whet_bits_of(x) + (at * 0x9E3779B1u >> 16)) >> 16);
}

#endif
