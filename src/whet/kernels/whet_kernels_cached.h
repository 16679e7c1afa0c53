/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for texts that are written token by token; the rules of whet_kernels.h apply. */
#ifndef WHET_KERNELS_CACHED_H
#define WHET_KERNELS_CACHED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* y[n,row] = x[*position + i] for i < n */
void whet_rows_at_f32(float *y, const float *x, const int32_t *position, int32_t n, int32_t row);
void whet_rows_at_i32(int32_t *y, const int32_t *x, const int32_t *position, int32_t n,
                      int32_t row);
/* y[s,row] = x[s,row] with rows[n,row] from *position on. In place: x. */
void whet_put_rows_f32(float *y, const float *x, const float *rows, const int32_t *position,
                       int32_t s, int32_t n, int32_t row);
/* Causal attention of the positions *position + i, i < n, over k[s,g,d] and v[s,g,e]; rows of later
 * positions are not read; q[n,h,d], y[n,h,e] */
void whet_attention_cached_f32(float *y, const float *q, const float *k, const float *v,
                               const int32_t *position, float scale, int32_t n, int32_t h,
                               int32_t g, int32_t d, int32_t e);

#ifdef __cplusplus
}
#endif

#endif
