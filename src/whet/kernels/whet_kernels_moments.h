/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of embeddings, and with moments in bf16, the upper half of a float; the rules of
 * whet_kernels.h apply. */
#ifndef WHET_KERNELS_MOMENTS_H
#define WHET_KERNELS_MOMENTS_H

#include "whet_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `first` is where these n elements begin in the parameter. In place: next for w, m_next for m,
 * v_next for v. */
void whet_adam_bf16(float *next, uint16_t *m_next, uint16_t *v_next, const float *w, const float *g,
                    const uint16_t *m, const uint16_t *v, const float *t, const float *lr,
                    int32_t n, int32_t first, float lr_scale, float weight_decay, float fresh1,
                    float fresh2, float eps, int32_t decoupled);
void whet_dw_adam_bf16(float *next, uint16_t *m_next, uint16_t *v_next, const float *w,
                       const float *dy, const float *x, const uint16_t *m, const uint16_t *v,
                       const float *t, const float *lr, const whet_conv2d_t *d, int32_t rows,
                       float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                       int32_t decoupled, float *workspace);

/* dy is [count,inner]; all rows of w change. In place: next for w, m_next for m, v_next for v. */
void whet_take_adam_f32(float *next, float *m_next, float *v_next, const float *w, const float *dy,
                        const int32_t *index, const float *m, const float *v, const float *t,
                        const float *lr, int32_t n, int32_t inner, int32_t count, int32_t skip,
                        int32_t rows, float lr_scale, float weight_decay, float fresh1,
                        float fresh2, float eps, int32_t decoupled, float *workspace);
void whet_take_adam_bf16(float *next, uint16_t *m_next, uint16_t *v_next, const float *w,
                         const float *dy, const int32_t *index, const uint16_t *m,
                         const uint16_t *v, const float *t, const float *lr, int32_t n,
                         int32_t inner, int32_t count, int32_t skip, int32_t rows, float lr_scale,
                         float weight_decay, float fresh1, float fresh2, float eps,
                         int32_t decoupled, float *workspace);

#ifdef __cplusplus
}
#endif

#endif
