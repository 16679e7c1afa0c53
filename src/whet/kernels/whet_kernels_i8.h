/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for integers that train; the rules of whet_kernels.h apply. */
#ifndef WHET_KERNELS_I8_H
#define WHET_KERNELS_I8_H

#include "whet_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- int8: a number q represents (q - zero) * scale. Sums of products are int32 and wrap around;
 * padding adds nothing. Gradients are those of the integers, in float, summed in an order that is
 * part of the contract: every kernel gives the same bits if compiled without contraction of
 * products and sums (-ffp-contract=off). Where bits may be NULL, bit i % 8 of bits[i / 8] says
 * whether element i was within [low, high] before clamping. */

/* y = conv(x - zero, w) + b; b may be NULL */
void whet_conv2d_i8(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int32_t zero,
                    const whet_conv2d_t *d);
/* y = (conv(x - x_zero, w) + b + conv(x2 - x_zero, w2)) * scale[o], converted to int8; b, bits, and
 * x2 with w2 may be NULL */
void whet_conv2d_i8_fused(int8_t *y, uint8_t *bits, const int8_t *x, const int8_t *w,
                          const int32_t *b, const float *scale, const int8_t *x2, const int8_t *w2,
                          const whet_narrow_t *to, const whet_conv2d_t *d);
void whet_conv2d_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d);
void whet_conv2d_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                       const whet_conv2d_t *d);
/* Rows [first, first + count) of dw, for a convolution without groups */
void whet_conv2d_i8_dw_rows(float *dw, const float *dy, const int8_t *x, int32_t zero,
                            int32_t first, int32_t count, const whet_conv2d_t *d);
void whet_depthwise_i8(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int32_t zero,
                       const whet_conv2d_t *d);
void whet_depthwise_i8_fused(int8_t *y, uint8_t *bits, const int8_t *x, const int8_t *w,
                             const int32_t *b, const float *scale, const whet_narrow_t *to,
                             const whet_conv2d_t *d);
void whet_depthwise_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d);
void whet_depthwise_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d);

/* Integer gradients: q[n] = round(g / scale), where scale is the smallest power of two >= 2^-100
 * with |g| <= limit * scale everywhere; if some g is not finite, scale is NaN and q = 0. In place:
 * q may start where g does. */
void whet_narrow_gradient_i16(int16_t *q, float *scale, const float *g, int32_t n, int32_t limit);
void whet_narrow_gradient_i8(int8_t *q, float *scale, const float *g, int32_t n, int32_t limit);
/* The gradients above from an integer dy and its scale; its limit is such that int32 sums of
 * products with dy do not overflow */
void whet_conv2d_i8_dx_i16(float *dx, const int16_t *dy, const int8_t *w, const float *scale,
                           const whet_conv2d_t *d);
void whet_conv2d_i8_dw_i16(float *dw, const int16_t *dy, const int8_t *x, const float *scale,
                           int32_t zero, const whet_conv2d_t *d);
void whet_conv2d_i8_dw_rows_i16(float *dw, const int16_t *dy, const int8_t *x, const float *scale,
                                int32_t zero, int32_t first, int32_t count, const whet_conv2d_t *d);
void whet_depthwise_i8_dx_i16(float *dx, const int16_t *dy, const int8_t *w, const float *scale,
                              const whet_conv2d_t *d);
void whet_depthwise_i8_dw_i16(float *dw, const int16_t *dy, const int8_t *x, const float *scale,
                              int32_t zero, const whet_conv2d_t *d);
void whet_conv2d_i8_dx_i8(float *dx, const int8_t *dy, const int8_t *w, const float *scale,
                          const whet_conv2d_t *d);
void whet_conv2d_i8_dw_i8(float *dw, const int8_t *dy, const int8_t *x, const float *scale,
                          int32_t zero, const whet_conv2d_t *d);
void whet_conv2d_i8_dw_rows_i8(float *dw, const int8_t *dy, const int8_t *x, const float *scale,
                               int32_t zero, int32_t first, int32_t count, const whet_conv2d_t *d);
void whet_depthwise_i8_dx_i8(float *dx, const int8_t *dy, const int8_t *w, const float *scale,
                             const whet_conv2d_t *d);
void whet_depthwise_i8_dw_i8(float *dw, const int8_t *dy, const int8_t *x, const float *scale,
                             int32_t zero, const whet_conv2d_t *d);

/* y = the last of `count` <= WHET_MAX_STAGES layers applied in sequence, as in stream_f32; operands
 * are weight, bias (may be NULL) and scale of each */
void whet_stream_i8(int8_t *y, const int8_t *x, const void *const *operands,
                    const whet_conv2d_t *const *layers, const whet_narrow_t *const *narrow,
                    const int32_t *depthwise, int32_t count, void *workspace);

/* y[n] = (x - x_zero) * scale[i % scales], converted to int8; bits may be NULL. In place: y may
 * start where x does. */
void whet_requantize_f32(int8_t *y, uint8_t *bits, const float *x, const float *scale, int32_t n,
                         int32_t scales, const whet_narrow_t *to);
void whet_requantize_i32(int8_t *y, uint8_t *bits, const int32_t *x, const float *scale, int32_t n,
                         int32_t scales, const whet_narrow_t *to);
void whet_requantize_i8(int8_t *y, uint8_t *bits, const int8_t *x, const float *scale, int32_t n,
                        int32_t scales, const whet_narrow_t *to);
/* dx[n] = bit i ? dy * scale[i % scales] : 0. In place: dy. */
void whet_requantize_dx_f32(float *dx, const float *dy, const uint8_t *bits, const float *scale,
                            int32_t n, int32_t scales);
/* y[n] = (x - zero) * scale */
void whet_dequantize_i8(float *y, const int8_t *x, int32_t n, float scale, int32_t zero);
void whet_dequantize_i32(float *y, const int32_t *x, int32_t n, float scale, int32_t zero);
/* y[n] = (a - a_zero) * a_scale + (b - b_zero) * b_scale, converted to int8; bits may be NULL. In
 * place: a or b. */
void whet_add_i8(int8_t *y, uint8_t *bits, const int8_t *a, const int8_t *b, int32_t n,
                 int32_t a_zero, int32_t b_zero, float a_scale, float b_scale,
                 const whet_narrow_t *to);
/* y = round(mean of x - zero over each window) + zero */
void whet_avg_pool_i8(int8_t *y, const int8_t *x, int32_t zero, const whet_pool2d_t *d);

/* ---- Updates of integers. An element q[outer,n,inner] represents q * s, where s = scale[c] * unit
 * and c is the index along n. In place: results may overwrite g and the operand whose next value
 * they are. `settle` then rounds the step `move`, which is in units of q, and applies it. An int8
 * is clamped to its range; an int32, which is a bias, to +-WHET_MOST, so that adding 8,000 products
 * cannot overflow. */

enum { WHET_MOST = 2147483647 - 268435455 };

/* y[0] = sum of (g / s)^2 */
void whet_real_squares_f32(float *y, const float *g, const float *scale, int32_t outer, int32_t n,
                           int32_t inner, float unit);
/* move = lr * lr_scale * (g / s + weight_decay * q * s) / s */
void whet_sgd_step_i8(float *move, const int8_t *q, const float *g, const float *scale,
                      const float *lr, int32_t outer, int32_t n, int32_t inner, float unit,
                      float lr_scale, float weight_decay);
void whet_sgd_step_i32(float *move, const int32_t *q, const float *g, const float *scale,
                       const float *lr, int32_t outer, int32_t n, int32_t inner, float unit,
                       float lr_scale, float weight_decay);
/* h = g / s + weight_decay * q * s;  m' = momentum * m + h;
 * move = lr * lr_scale * (nesterov ? h + momentum * m' : m') / s */
void whet_momentum_step_i8(float *move, float *m_next, const int8_t *q, const float *g,
                           const float *scale, const float *m, const float *lr, int32_t outer,
                           int32_t n, int32_t inner, float unit, float lr_scale, float weight_decay,
                           float momentum, int32_t nesterov);
void whet_momentum_step_i32(float *move, float *m_next, const int32_t *q, const float *g,
                            const float *scale, const float *m, const float *lr, int32_t outer,
                            int32_t n, int32_t inner, float unit, float lr_scale,
                            float weight_decay, float momentum, int32_t nesterov);
/* As adam_f32 with h; the step is divided by s */
void whet_adam_step_i8(float *move, float *m_next, float *v_next, const int8_t *q, const float *g,
                       const float *scale, const float *m, const float *v, const float *t,
                       const float *lr, int32_t outer, int32_t n, int32_t inner, float unit,
                       float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                       int32_t decoupled);
void whet_adam_step_i32(float *move, float *m_next, float *v_next, const int32_t *q, const float *g,
                        const float *scale, const float *m, const float *v, const float *t,
                        const float *lr, int32_t outer, int32_t n, int32_t inner, float unit,
                        float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                        int32_t decoupled);
/* As rmsprop_f32 with h; the move is divided by s */
void whet_rmsprop_step_i8(float *move, float *v_next, float *a_next, float *m_next, const int8_t *q,
                          const float *g, const float *scale, const float *v, const float *a,
                          const float *m, const float *lr, int32_t outer, int32_t n, int32_t inner,
                          float unit, float lr_scale, float weight_decay, float fresh, float eps,
                          float momentum);
void whet_rmsprop_step_i32(float *move, float *v_next, float *a_next, float *m_next,
                           const int32_t *q, const float *g, const float *scale, const float *v,
                           const float *a, const float *m, const float *lr, int32_t outer,
                           int32_t n, int32_t inner, float unit, float lr_scale, float weight_decay,
                           float fresh, float eps, float momentum);
/* q' = q - round(move), saturating, ties to even */
void whet_settle_nearest_i8(int8_t *next, const int8_t *q, const float *move, int32_t n);
void whet_settle_nearest_i32(int32_t *next, const int32_t *q, const float *move, int32_t n);
/* q' = q - floor(move + u), saturating, with u random in [0, 1) */
void whet_settle_stochastic_i8(int8_t *next, const int8_t *q, const float *move, const int32_t *rng,
                               int32_t n, int32_t site);
void whet_settle_stochastic_i32(int32_t *next, const int32_t *q, const float *move,
                                const int32_t *rng, int32_t n, int32_t site);
/* q' = q - move, truncated towards 0, saturating */
void whet_settle_truncate_i8(int8_t *next, const int8_t *q, const float *move, int32_t n);
void whet_settle_truncate_i32(int32_t *next, const int32_t *q, const float *move, int32_t n);
/* q' = q - round(move + c / C), saturating; c' = the remainder times C = 2^8 or 2^16 */
void whet_settle_carry_i8_i8(int8_t *next, int8_t *c_next, const int8_t *q, const float *move,
                             const int8_t *c, int32_t n);
void whet_settle_carry_i8_i16(int8_t *next, int16_t *c_next, const int8_t *q, const float *move,
                              const int16_t *c, int32_t n);
void whet_settle_carry_i32_i8(int32_t *next, int8_t *c_next, const int32_t *q, const float *move,
                              const int8_t *c, int32_t n);
void whet_settle_carry_i32_i16(int32_t *next, int16_t *c_next, const int32_t *q, const float *move,
                               const int16_t *c, int32_t n);
/* m' = m - move, clamped to the range of q; q' = round(m') */
void whet_settle_master_i8(int8_t *next, float *m_next, const int8_t *q, const float *move,
                           const float *m, int32_t n);
void whet_settle_master_i32(int32_t *next, float *m_next, const int32_t *q, const float *move,
                            const float *m, int32_t n);

/* ---- Weight gradients that are applied as they are computed, `rows` at a time: conv2d_i8_dw, then
 * sgd_step, then settle. `scale` has `scales` elements: one per output, or one. */

void whet_dw_sgd_nearest_i8(int8_t *next, const int8_t *q, const float *dy, const int8_t *x,
                            const float *scale, const float *lr, int32_t zero,
                            const whet_conv2d_t *d, int32_t rows, int32_t scales, float unit,
                            float lr_scale, float weight_decay, float *workspace);
void whet_dw_sgd_carry_i8(int8_t *next, int8_t *c_next, const int8_t *q, const float *dy,
                          const int8_t *x, const float *scale, const float *lr, const int8_t *c,
                          int32_t zero, const whet_conv2d_t *d, int32_t rows, int32_t scales,
                          float unit, float lr_scale, float weight_decay, float *workspace);
/* The same from an integer dy, whose scale is `by` */
void whet_dw_sgd_nearest_i8_i16(int8_t *next, const int8_t *q, const int16_t *dy, const int8_t *x,
                                const float *by, const float *scale, const float *lr, int32_t zero,
                                const whet_conv2d_t *d, int32_t rows, int32_t scales, float unit,
                                float lr_scale, float weight_decay, float *workspace);
void whet_dw_sgd_carry_i8_i16(int8_t *next, int8_t *c_next, const int8_t *q, const int16_t *dy,
                              const int8_t *x, const float *by, const float *scale, const float *lr,
                              const int8_t *c, int32_t zero, const whet_conv2d_t *d, int32_t rows,
                              int32_t scales, float unit, float lr_scale, float weight_decay,
                              float *workspace);
void whet_dw_sgd_nearest_i8_i8(int8_t *next, const int8_t *q, const int8_t *dy, const int8_t *x,
                               const float *by, const float *scale, const float *lr, int32_t zero,
                               const whet_conv2d_t *d, int32_t rows, int32_t scales, float unit,
                               float lr_scale, float weight_decay, float *workspace);
void whet_dw_sgd_carry_i8_i8(int8_t *next, int8_t *c_next, const int8_t *q, const int8_t *dy,
                             const int8_t *x, const float *by, const float *scale, const float *lr,
                             const int8_t *c, int32_t zero, const whet_conv2d_t *d, int32_t rows,
                             int32_t scales, float unit, float lr_scale, float weight_decay,
                             float *workspace);

#ifdef __cplusplus
}
#endif

#endif
