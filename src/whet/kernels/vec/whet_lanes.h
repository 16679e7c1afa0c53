/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_LANES_H
#define WHET_LANES_H

/* Floats per vector register. GNU vectors cover AVX-512, AVX, NEON, simd128 and others. */
#if defined(__AVX512F__)
#define WHET_LANES 16
#elif defined(__AVX__)
#define WHET_LANES 8
#else
#define WHET_LANES 4
#endif

/* Measured rows per block of a matrix product: 6, 8, 10 or 12, for vectors of so many lanes. */
#ifndef WHET_TUNED_ROWS
#define WHET_TUNED_ROWS 0
#endif
#ifndef WHET_TUNED_LANES
#define WHET_TUNED_LANES WHET_LANES
#endif

/* The default leaves registers, in a block two vectors wide, for a row of b, an element of a, and
 * pointers to the rows: x86 has only 16 of those. */
#if WHET_TUNED_ROWS > 0 && WHET_TUNED_LANES == WHET_LANES
#define WHET_ROWS WHET_TUNED_ROWS
#elif defined(__AVX512F__)
#define WHET_ROWS 8
#elif defined(__aarch64__)
#define WHET_ROWS 12
#else
#define WHET_ROWS 6
#endif

#endif
