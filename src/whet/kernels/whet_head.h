/* SPDX-License-Identifier: Apache-2.0 */
/* What linear_cross_entropy is made of besides linear layers; in head_parts.c. */
#ifndef WHET_HEAD_H
#define WHET_HEAD_H

#include <stdint.h>

/* A softmax part by part: x[rows,n] = exp(x - top), top[rows] being the largest number so far;
 * sum[rows,2] and y[rows,width], sums of such exponentials, are made relative to that. */
void whet_softmax_some_f32(float *x, float *y, float *top, float *sum, int32_t rows, int32_t n,
                           int32_t width);
/* dx[rows,i] += dy[rows,o] w[o,i] */
void whet_linear_dx_add_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                            int32_t o);

#endif
