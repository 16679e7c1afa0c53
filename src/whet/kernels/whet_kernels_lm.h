/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for language models; the rules of whet_kernels.h apply. */
#ifndef WHET_KERNELS_LM_H
#define WHET_KERNELS_LM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* scale is [rows] */
void whet_rms_norm_f32(float *y, float *scale, const float *x, const float *w, int32_t rows,
                       int32_t c, float eps);
/* In place: dy or x. */
void whet_rms_norm_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                          const float *scale, int32_t rows, int32_t c);
void whet_rms_norm_dw_f32(float *dw, const float *dy, const float *x, const float *scale,
                          int32_t rows, int32_t c);

/* Gates. In place: y for a or b, da for dy or a, db for b. */
void whet_swiglu_f32(float *y, const float *a, const float *b, int32_t n);
void whet_swiglu_dx_f32(float *da, float *db, const float *dy, const float *a, const float *b,
                        int32_t n);
void whet_geglu_f32(float *y, const float *a, const float *b, int32_t n);
void whet_geglu_dx_f32(float *da, float *db, const float *dy, const float *a, const float *b,
                       int32_t n);
void whet_geglu_tanh_f32(float *y, const float *a, const float *b, int32_t n);
void whet_geglu_tanh_dx_f32(float *da, float *db, const float *dy, const float *a, const float *b,
                            int32_t n);

/* x is [outer,length,inner,width], cos and sin are [length,half]. In place: x. */
void whet_rotary_f32(float *y, const float *x, const float *cos, const float *sin, int32_t outer,
                     int32_t length, int32_t inner, int32_t width, int32_t half, float sign);

#ifdef __cplusplus
}
#endif

#endif
