/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for attention; the rules of whet_kernels.h apply. */
#ifndef WHET_KERNELS_ATTENTION_H
#define WHET_KERNELS_ATTENTION_H

#include "whet_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Attention of l queries over s keys in each of b samples. Queries have h heads of d numbers; keys
 * and values have g heads, each for h / g heads of queries; values have e numbers. Steps of the
 * mask are in elements, 0 where it is broadcast. Causal: query i sees key j only if j <= i. With
 * vectors, a gradient is computed in `parts`, which the workspace is for. */
typedef struct {
    int32_t b, l, s, h, g, d, e;
    int32_t mask_b, mask_h, mask_l;
    int32_t causal, parts;
} whet_attention_t;

/* y[b,l,h,e] = sum over keys of w * v, where w = exp(x - top) * share is the softmax of x = scale *
 * q k' + mask; q[b,l,h,d], k[b,s,g,d], v[b,s,g,e], top[b,h,l], share[b,h,l]. The mask may be NULL;
 * -inf hides a key. A query that sees no key has y, top and share of 0. d, e <= 256 with vectors */
void whet_attention_f32(float *y, float *top, float *share, const float *q, const float *k,
                        const float *v, const float *mask, float scale, const whet_attention_t *a);
/* The gradients, each of which may be NULL; the workspace is [parts - 1] of those of k and v, or
 * NULL. */
void whet_attention_dx_f32(float *dq, float *dk, float *dv, const float *dy, const float *q,
                           const float *k, const float *v, const float *y, const float *top,
                           const float *share, const float *mask, float scale,
                           const whet_attention_t *a, float *workspace);

#ifdef __cplusplus
}
#endif

#endif
