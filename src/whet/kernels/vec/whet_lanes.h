/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_LANES_H
#define WHET_LANES_H

/* Floats in a vector register, and rows of a block of a matrix product: a block two vectors wide
 * leaves registers for a row of b and an element of a. GNU vectors stand for AVX-512, AVX, NEON,
 * simd128 and the like. */
#if defined(__AVX512F__)
#define WHET_LANES 16
#define WHET_ROWS  12
#elif defined(__AVX__)
#define WHET_LANES 8
#define WHET_ROWS  6
#elif defined(__aarch64__)
#define WHET_LANES 4
#define WHET_ROWS  12
#else
#define WHET_LANES 4
#define WHET_ROWS  6
#endif

#endif
