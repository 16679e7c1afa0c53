/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers, and their gradients, that multiply numbers rounded to bfloat16 and add the
 * products in floats; the rules of whet_kernels.h apply. */
#ifndef WHET_KERNELS_BF16_H
#define WHET_KERNELS_BF16_H

#include "whet_kernels_stored.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[rows,o] = min(max(x[rows,i] w[o,i]' + b + add, low), high); b, add may be NULL; in place on
 * add */
void whet_linear_bf16_f32(float *y, const float *x, const float *w, const float *b,
                          const float *add, float low, float high, int32_t rows, int32_t i,
                          int32_t o);
/* dx[rows,i] = dy[rows,o] w[o,i] */
void whet_linear_bf16_dx_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                             int32_t o);
/* dw[o,i] = dy[rows,o]' x[rows,i] */
void whet_linear_bf16_dw_f32(float *dw, const float *dy, const float *x, int32_t rows, int32_t i,
                             int32_t o);
/* The same with w as it is stored. */
void whet_linear_stored_bf16_f32(float *y, const float *x, const void *w, const float *table,
                                 const float *b, const float *add, float low, float high,
                                 int32_t rows, int32_t i, int32_t o, int32_t form);
void whet_linear_stored_bf16_dx_f32(float *dx, const float *dy, const void *w, const float *table,
                                    int32_t rows, int32_t i, int32_t o, int32_t form);

#ifdef __cplusplus
}
#endif

#endif
