/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that read a frozen weight w[o,i] as it is stored, and compute what others do with the same
 * weight in floats; the rules of whet_kernels.h apply. */
#ifndef WHET_KERNELS_STORED_H
#define WHET_KERNELS_STORED_H

#include "whet_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The form of a weight. 1 to 8: indices of so many bits each into the table, packed, the low end
 * first. WHET_Q8_ROWS: int8, and a scale for each row in the table. The others are those of GGUF
 * files: blocks of WHET_BLOCK elements of a row (i is a multiple of that) that begin with a 16-bit
 * float d. WHET_Q8_0: then int8 q; an element is d * q. WHET_Q4_0: then 4 bits for each q, those of
 * elements 0 to 15 in the low half of 16 bytes, those of 16 to 31 in the high one; d * (q - 8).
 * WHET_Q4_1: another 16-bit float m before them; d * q + m. WHET_Q4_K: blocks of WHET_LONG_BLOCK,
 * in parts of WHET_BLOCK: 16-bit floats d and e, a scale and a minimum of 6 bits for each part in
 * 12 bytes (see whet_scale_of), and 32 bytes for every two parts, q of the first in the low halves;
 * d * scale * q - e * minimum. */
enum { WHET_BLOCK = 32, WHET_LONG_BLOCK = 256 };
enum { WHET_Q8_ROWS = 9, WHET_Q8_0, WHET_Q4_0, WHET_Q4_1, WHET_Q4_K };

/* y[rows,o] = min(max(x[rows,i] w' + b + add, low), high); b, add may be NULL; in place on add */
void whet_linear_stored_f32(float *y, const float *x, const void *w, const float *table,
                            const float *b, const float *add, float low, float high, int32_t rows,
                            int32_t i, int32_t o, int32_t form);
/* dx[rows,i] = dy[rows,o] w[o,i] */
void whet_linear_stored_dx_f32(float *dx, const float *dy, const void *w, const float *table,
                               int32_t rows, int32_t i, int32_t o, int32_t form);
/* y[count,columns] = w[any,columns] at index[count] */
void whet_take_stored_f32(float *y, const void *w, const float *table, const int32_t *index,
                          int32_t count, int32_t columns, int32_t form);
/* y[count,columns] = rows first, first + 1, ... of w[any,columns] */
void whet_rows_stored_f32(float *y, const void *w, const float *table, int32_t first, int32_t count,
                          int32_t columns, int32_t form);
/* The loss of linear(x[n,i], w[o,i], b[o]) and its gradients, made of `classes` scores of `rows`
 * rows at a time; b, dx and db may be NULL. In place: dx on x. */
void whet_linear_cross_entropy_stored_f32(float *loss, float *dx, float *db, const float *x,
                                          const void *w, const float *table, const float *b,
                                          const int32_t *labels, int32_t n, int32_t i, int32_t o,
                                          int32_t ignore, int32_t mean, int32_t rows,
                                          int32_t classes, int32_t form, float *workspace);

#ifdef __cplusplus
}
#endif

#endif
