/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers that multiply integers: rows of x rounded to int8, and a frozen weight as it is
 * stored; the rules of whet_kernels.h apply. */
#ifndef WHET_KERNELS_DOTS_H
#define WHET_KERNELS_DOTS_H

#include "whet_kernels_stored.h"

#ifdef __cplusplus
extern "C" {
#endif

/* scale[r] = max |x[r,:]| / 127; q[r,:] = round(x[r,:] / scale[r]); sums[r,k] is that of the
 * elements of q[r,:] from k * WHET_BLOCK on, WHET_BLOCK of them; n is a multiple of that */
void whet_quantize_rows_f32(int8_t *q, float *scale, int32_t *sums, const float *x, int32_t rows,
                            int32_t n);
/* y[rows,o] = min(max(scale[r] * (q[rows,i] w') + b + add, low), high); b, add may be NULL; in
 * place on add; the form of w[o,i] is from WHET_Q8_ROWS on, i a multiple of WHET_BLOCK */
void whet_linear_dots_f32(float *y, const int8_t *q, const float *scale, const int32_t *sums,
                          const void *w, const float *table, const float *b, const float *add,
                          float low, float high, int32_t rows, int32_t i, int32_t o, int32_t form);

#ifdef __cplusplus
}
#endif

#endif
