/* SPDX-License-Identifier: Apache-2.0 */
/* What linear_cross_entropy is made of besides linear layers. */
#ifndef WHET_HEAD_H
#define WHET_HEAD_H

#include <stdint.h>

/* A weight[o,i], of which some rows at a time are needed in floats. */
typedef struct {
    /* Rows [first, first + count), until it is called again. */
    const float *(*rows)(const void *who, int32_t first, int32_t count);
    const void *who;
} whet_head_weight_t;

/* In linear_cross_entropy.c: whet_linear_cross_entropy_f32 with such a weight. */
void whet_head_loss_f32(float *loss, float *dx, float *dw, float *db, const float *x,
                        const whet_head_weight_t *w, const float *b, const int32_t *labels,
                        int32_t n, int32_t i, int32_t o, int32_t ignore, int32_t mean, int32_t rows,
                        int32_t classes, float *workspace);

/* The others are in head_parts.c. */

/* A softmax part by part: x[rows,n] = exp(x - top), top[rows] being the largest number so far;
 * sum[rows,2] and y[rows,width], sums of such exponentials, are made relative to that. */
void whet_softmax_some_f32(float *x, float *y, float *top, float *sum, int32_t rows, int32_t n,
                           int32_t width);
/* dx[rows,i] += dy[rows,o] w[o,i] */
void whet_linear_dx_add_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                            int32_t o);

#endif
