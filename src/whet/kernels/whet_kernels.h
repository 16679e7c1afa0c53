/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel that whet calls, with its contract.
 *
 * Results come first, then operands, sizes and scalars. Arrays are dense and row-major; images are
 * [n,h,w,c]. A kernel writes every element of its results, reads only its operands, keeps no state,
 * allocates nothing and cannot fail. Results must not overlap operands unless the comment says so
 * ("in place": the result is either exactly that operand or disjoint from it). Names: f32, i32, u8
 * are the element types; x32 and x8 copy elements of that many bits of any type. Do not build with
 * -ffast-math: sums are compensated and NaN is meaningful.
 */
#ifndef WHET_KERNELS_H
#define WHET_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define WHET_MAX_RANK   8
#define WHET_MAX_STAGES 16

/* A convolution of x[n,h,w,c] that gives y[n,p,q,o]: kernel kh x kw, strides sh and sw, zero
 * padding at the top (ph) and left (pw), dilations dh and dw. */
typedef struct {
    int32_t n, h, w, c, p, q, o;
    int32_t kh, kw, groups, sh, sw, ph, pw, dh, dw;
    int32_t packed; /* w is stored as [kh,kw,c,o]; vector kernels of conv2d and conv2d_fused only */
} whet_conv2d_t;

/* A pooling window over x[n,h,w,c] that gives y[n,p,q,c]. An adaptive pool divides the input into
 * p x q windows and ignores kernel, stride, padding and dilation. */
typedef struct {
    int32_t n, h, w, c, p, q;
    int32_t kh, kw, sh, sw, ph, pw, dh, dw;
    int32_t adaptive, count_pad, divisor;
} whet_pool2d_t;

/* Conversion of a value v to int8: round(v) + zero, clamped to [low, high]; rounds to nearest, ties
 * to even. x_zero is the zero point of the operand; part is the number of channels of a second
 * operand, if there is one. */
typedef struct {
    int32_t x_zero, zero, low, high, part;
} whet_narrow_t;

/* How up to three operands a, b, c are traversed while a result of shape dims is written in order:
 * strides in elements along each axis, 0 where the operand is broadcast. */
typedef struct {
    int32_t rank;
    int32_t dims[WHET_MAX_RANK];
    int32_t a[WHET_MAX_RANK], b[WHET_MAX_RANK], c[WHET_MAX_RANK];
} whet_broadcast_t;

/* How a second array is traversed while one of shape dims is traversed in order. */
typedef struct {
    int32_t rank;
    int32_t dims[WHET_MAX_RANK];
    int32_t step[WHET_MAX_RANK];
} whet_walk_t;

/* The same for a reduction: dims is the shape of the large array; step has the strides of the small
 * one, 0 along the axes that are summed. Adjacent axes of the same kind are merged, so kinds
 * alternate. */
typedef whet_walk_t whet_reduce_t;

/* ---- Convolutions. Weights are w[o,kh,kw,c/groups], or w[kh,kw,c] if depthwise. b may be NULL. */

/* y = conv(x, w) + b */
void whet_conv2d_f32(float *y, const float *x, const float *w, const float *b,
                     const whet_conv2d_t *d);
/* y = min(max(conv(x, w) + b + add, low), high); add may be NULL; in place on add */
void whet_conv2d_fused_f32(float *y, const float *x, const float *w, const float *b,
                           const float *add, float low, float high, const whet_conv2d_t *d);
/* the same, and a bit for each y: whether low < y < high */
void whet_conv2d_masked_f32(float *y, uint8_t *bits, const float *x, const float *w, const float *b,
                            const float *add, float low, float high, const whet_conv2d_t *d);
/* dx[n,h,w,c] = the transpose of conv in x, applied to dy[n,p,q,o] */
void whet_conv2d_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d);
/* dw = the gradient of w */
void whet_conv2d_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d);
/* rows [first, first + count) of dw */
void whet_conv2d_dw_rows_f32(float *dw, const float *dy, const float *x, int32_t first,
                             int32_t count, const whet_conv2d_t *d);

/* y = depthwise conv(x, w) + b; groups = o = c */
void whet_depthwise_f32(float *y, const float *x, const float *w, const float *b,
                        const whet_conv2d_t *d);
/* y = min(max(depthwise(x, w) + b + add, low), high); add may be NULL; in place on add */
void whet_depthwise_fused_f32(float *y, const float *x, const float *w, const float *b,
                              const float *add, float low, float high, const whet_conv2d_t *d);
/* the same, and a bit for each y: whether low < y < high */
void whet_depthwise_masked_f32(float *y, uint8_t *bits, const float *x, const float *w,
                               const float *b, const float *add, float low, float high,
                               const whet_conv2d_t *d);
void whet_depthwise_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d);
void whet_depthwise_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d);

/* conv2d_fused, conv2d_dx and conv2d_dw for 3x3 windows of stride 1, without groups or dilation:
 * fewer multiplications, at the cost of a workspace; only in programs with vector kernels. */
void whet_conv2d_winograd_f32(float *y, const float *x, const float *w, const float *b,
                              const float *add, float low, float high, const whet_conv2d_t *d,
                              float *workspace);
void whet_conv2d_winograd_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d,
                                 float *workspace);
void whet_conv2d_winograd_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d,
                                 float *workspace);

/* y = layer_k(... layer_1(x)), row by row. Each layer is depthwise_fused or conv2d_fused; its
 * weight, bias and addend (the last two may be NULL) are in operands, its low and high in limits.
 * For every layer but the first, the workspace holds as many rows of its operand as its window is
 * high. */
void whet_stream_f32(float *y, const float *x, const void *const *operands,
                     const whet_conv2d_t *const *layers, const int32_t *depthwise,
                     const float *limits, int32_t count, float *workspace);

/* ---- Matrix products. */

/* y[rows,o] = x[rows,i] w[o,i]' + b[o]; b may be NULL */
void whet_linear_f32(float *y, const float *x, const float *w, const float *b, int32_t rows,
                     int32_t i, int32_t o);
/* y = min(max(x w' + b + add, low), high); add may be NULL; in place on add */
void whet_linear_fused_f32(float *y, const float *x, const float *w, const float *b,
                           const float *add, float low, float high, int32_t rows, int32_t i,
                           int32_t o);
/* dx[rows,i] = dy[rows,o] w[o,i] */
void whet_linear_dx_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                        int32_t o);
/* dw[o,i] = dy[rows,o]' x[rows,i] */
void whet_linear_dw_f32(float *dw, const float *dy, const float *x, int32_t rows, int32_t i,
                        int32_t o);
/* y[stacks,m,n] = a b, where a is [stacks,m,k], or [stacks,k,m] if ta; b likewise with tb */
void whet_bmm_f32(float *y, const float *a, const float *b, int32_t stacks, int32_t m, int32_t k,
                  int32_t n, int32_t ta, int32_t tb);

/* ---- Element-wise functions of one array of n elements. dx = dy * slope, from x or from y.
 * In place: any operand. */

void whet_relu_f32(float *y, const float *x, int32_t n);
void whet_relu_dx_f32(float *dx, const float *dy, const float *y, int32_t n);
void whet_leaky_relu_f32(float *y, const float *x, int32_t n, float slope);
void whet_leaky_relu_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float slope);
void whet_hardtanh_f32(float *y, const float *x, int32_t n, float low, float high);
void whet_hardtanh_dx_f32(float *dx, const float *dy, const float *y, int32_t n, float low,
                          float high);
void whet_clamp_f32(float *y, const float *x, int32_t n, float low, float high);
void whet_clamp_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float low,
                       float high);
void whet_hardsigmoid_f32(float *y, const float *x, int32_t n);
void whet_hardsigmoid_dx_f32(float *dx, const float *dy, const float *y, int32_t n);
void whet_hardswish_f32(float *y, const float *x, int32_t n);
void whet_hardswish_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_sigmoid_f32(float *y, const float *x, int32_t n);
void whet_sigmoid_dx_f32(float *dx, const float *dy, const float *y, int32_t n);
void whet_tanh_f32(float *y, const float *x, int32_t n);
void whet_tanh_dx_f32(float *dx, const float *dy, const float *y, int32_t n);
void whet_silu_f32(float *y, const float *x, int32_t n);
void whet_silu_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_gelu_f32(float *y, const float *x, int32_t n);
void whet_gelu_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_gelu_tanh_f32(float *y, const float *x, int32_t n);
void whet_gelu_tanh_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_elu_f32(float *y, const float *x, int32_t n, float alpha, float scale, float input_scale);
void whet_elu_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float alpha,
                     float scale, float input_scale);
void whet_softplus_f32(float *y, const float *x, int32_t n, float beta, float threshold);
void whet_softplus_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float beta,
                          float threshold);
void whet_huber_f32(float *y, const float *x, int32_t n, float delta);
void whet_huber_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float delta);
void whet_exp_f32(float *y, const float *x, int32_t n);
void whet_exp_dx_f32(float *dx, const float *dy, const float *y, int32_t n);
void whet_log_f32(float *y, const float *x, int32_t n);
void whet_log_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_sqrt_f32(float *y, const float *x, int32_t n);
void whet_sqrt_dx_f32(float *dx, const float *dy, const float *y, int32_t n);
void whet_rsqrt_f32(float *y, const float *x, int32_t n);
void whet_rsqrt_dx_f32(float *dx, const float *dy, const float *y, int32_t n);
void whet_abs_f32(float *y, const float *x, int32_t n);
void whet_abs_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_sin_f32(float *y, const float *x, int32_t n);
void whet_sin_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_cos_f32(float *y, const float *x, int32_t n);
void whet_cos_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_erf_f32(float *y, const float *x, int32_t n);
void whet_erf_dx_f32(float *dx, const float *dy, const float *x, int32_t n);
void whet_pow_f32(float *y, const float *x, int32_t n, float exponent);
void whet_pow_dx_f32(float *dx, const float *dy, const float *x, int32_t n, float exponent);
void whet_neg_f32(float *y, const float *x, int32_t n);
void whet_floor_f32(float *y, const float *x, int32_t n);

/* ---- Slopes with two values, kept as one bit per element. */

/* bit i % 8 of bits[i / 8] = low < x[i] < high, or low <= x[i] <= high if closed */
void whet_within_bits_f32(uint8_t *bits, const float *x, int32_t n, float low, float high,
                          int32_t closed);
/* dx[i] = dy[i] * (bit i ? inside : outside). In place: dy. */
void whet_bits_dx_f32(float *dx, const float *dy, const uint8_t *bits, int32_t n, float inside,
                      float outside);

/* ---- Linear layers of which only the live weights are stored. */

/* The rule of an optimizer, with linear_live_dw computed and applied `block` elements at a time. In
 * place: v and the moments. */
void whet_live_sgd_f32(float *next, const float *v, const float *dy, const float *x,
                       const uint8_t *bits, const float *lr, int32_t rows, int32_t i, int32_t o,
                       int32_t block, float lr_scale, float weight_decay, float *workspace);
void whet_live_sgd_momentum_f32(float *next, float *m_next, const float *v, const float *dy,
                                const float *x, const uint8_t *bits, const float *m,
                                const float *lr, int32_t rows, int32_t i, int32_t o, int32_t block,
                                float lr_scale, float weight_decay, float momentum,
                                int32_t nesterov, float *workspace);
void whet_live_adam_f32(float *next, float *m_next, float *s_next, const float *v, const float *dy,
                        const float *x, const uint8_t *bits, const float *m, const float *s,
                        const float *t, const float *lr, int32_t rows, int32_t i, int32_t o,
                        int32_t block, float lr_scale, float weight_decay, float fresh1,
                        float fresh2, float eps, int32_t decoupled, float *workspace);
void whet_live_rmsprop_f32(float *next, float *s_next, float *a_next, float *m_next, const float *v,
                           const float *dy, const float *x, const uint8_t *bits, const float *s,
                           const float *a, const float *m, const float *lr, int32_t rows, int32_t i,
                           int32_t o, int32_t block, float lr_scale, float weight_decay,
                           float fresh, float eps, float momentum, float *workspace);

/* y[r,o] = b[o] + sum_i x[r,i] * w[o,i], w being spread(v, bits); b may be NULL */
void whet_linear_live_f32(float *y, const float *x, const float *v, const uint8_t *bits,
                          const float *b, int32_t rows, int32_t i, int32_t o);
void whet_linear_live_dx_f32(float *dx, const float *dy, const float *v, const uint8_t *bits,
                             int32_t rows, int32_t i, int32_t o);
void whet_linear_live_dw_f32(float *dv, const float *dy, const float *x, const uint8_t *bits,
                             int32_t rows, int32_t i, int32_t o);

/* ---- Element-wise functions of two or three arrays, with broadcasting.
 * In place: any operand that has the type and shape of the result. */

void whet_add_f32(float *y, const float *a, const float *b, const whet_broadcast_t *d);
void whet_sub_f32(float *y, const float *a, const float *b, const whet_broadcast_t *d);
void whet_mul_f32(float *y, const float *a, const float *b, const whet_broadcast_t *d);
void whet_div_f32(float *y, const float *a, const float *b, const whet_broadcast_t *d);
void whet_maximum_f32(float *y, const float *a, const float *b, const whet_broadcast_t *d);
/* da = a > b ? dy : a == b ? dy / 2 : 0; the struct's a, b, c walk dy, a, b */
void whet_maximum_da_f32(float *da, const float *dy, const float *a, const float *b,
                         const whet_broadcast_t *d);
/* y = 1 where the comparison holds, else 0 */
void whet_gt_f32(uint8_t *y, const float *a, const float *b, const whet_broadcast_t *d);
void whet_ge_f32(uint8_t *y, const float *a, const float *b, const whet_broadcast_t *d);
void whet_eq_f32(uint8_t *y, const float *a, const float *b, const whet_broadcast_t *d);
void whet_ne_f32(uint8_t *y, const float *a, const float *b, const whet_broadcast_t *d);
/* y = c ? a : b; the struct's a, b, c walk c, a, b */
void whet_where_f32(float *y, const uint8_t *c, const float *a, const float *b,
                    const whet_broadcast_t *d);

/* ---- The same for integers, which wrap around, and booleans, 0 or 1. */

void whet_add_i32(int32_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d);
void whet_sub_i32(int32_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d);
void whet_mul_i32(int32_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d);
void whet_gt_i32(uint8_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d);
void whet_ge_i32(uint8_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d);
void whet_eq_i32(uint8_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d);
void whet_ne_i32(uint8_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d);
void whet_where_i32(int32_t *y, const uint8_t *c, const int32_t *a, const int32_t *b,
                    const whet_broadcast_t *d);
void whet_and_u8(uint8_t *y, const uint8_t *a, const uint8_t *b, const whet_broadcast_t *d);
void whet_or_u8(uint8_t *y, const uint8_t *a, const uint8_t *b, const whet_broadcast_t *d);
void whet_not_u8(uint8_t *y, const uint8_t *x, int32_t n);

/* ---- Conversions of n elements. To integers: truncate towards 0, saturate, 0 for NaN. */

void whet_cast_u8_i32(int32_t *y, const uint8_t *x, int32_t n);
void whet_cast_i32_f32(float *y, const int32_t *x, int32_t n);
void whet_cast_f32_i32(int32_t *y, const float *x, int32_t n);
/* y[outer][channels][inner] = x * scale[channel]: dequantize weights stored in 8 bits */
void whet_widen_i8(float *y, const int8_t *x, const float *scale, int32_t outer, int32_t channels,
                   int32_t inner);

/* ---- Weights by a codebook. Indices have 1 to 8 bits each and are packed, the low end first. */

/* y[outer][channels][inner] = book[index] * scale[channel]; scale may be NULL */
void whet_lookup_f32(float *y, const float *book, const uint8_t *index, const float *scale,
                     int32_t outer, int32_t channels, int32_t inner, int32_t bits);
void whet_lookup_i8(int8_t *y, const int8_t *book, const uint8_t *index, int32_t n, int32_t bits);
/* dbook[k] = sum of dy[i] with index[i] = k, 0 for k = fixed; sums has as many elements as dbook */
void whet_lookup_dcodebook_f32(float *dbook, const float *dy, const uint8_t *index, int32_t n,
                               int32_t entries, int32_t fixed, int32_t bits, float *sums);
/* the same for dy[rows,o]' x[rows,i] in place of dy */
void whet_linear_shared_dcodebook_f32(float *dbook, const float *dy, const float *x,
                                      const uint8_t *index, int32_t rows, int32_t i, int32_t o,
                                      int32_t entries, int32_t fixed, int32_t bits, float *sums);

/* ---- The largest elements of each sample: their values, and a bit for each element. */

void whet_pick_largest_f32(float *values, uint8_t *bits, const float *x, int32_t samples, int32_t n,
                           int32_t keep);
void whet_pick_f32(float *values, const float *x, const uint8_t *bits, int32_t n);
void whet_spread_f32(float *y, const float *values, const uint8_t *bits, int32_t n);

/* ---- Reductions: y has `outputs` elements, each computed from `count` elements of x. */

void whet_sum_f32(float *y, const float *x, int32_t outputs, int32_t count, const whet_reduce_t *d);
void whet_mean_f32(float *y, const float *x, int32_t outputs, int32_t count,
                   const whet_reduce_t *d);
void whet_amax_f32(float *y, const float *x, int32_t outputs, int32_t count,
                   const whet_reduce_t *d);
/* y[outer,inner] = the first index of the maximum along the middle axis of x[outer,n,inner] */
void whet_argmax_f32(int32_t *y, const float *x, int32_t outer, int32_t n, int32_t inner);
/* y = sums of x[outer,n,inner] along the middle axis, up to each index, or from it if reverse. In
 * place. */
void whet_cumsum_f32(float *y, const float *x, int32_t outer, int32_t n, int32_t inner,
                     int32_t reverse);
/* y = sqrt(sum of squares) */
void whet_norm_f32(float *y, const float *x, int32_t outputs, int32_t count,
                   const whet_reduce_t *d);
/* dx = y > 0 ? dy * x / y : 0; dx and x have the large shape, dy and y the small one */
void whet_norm_dx_f32(float *dx, const float *dy, const float *x, const float *y,
                      const whet_reduce_t *d);
/* y = scale * x, broadcast; y has the large shape, x the small one */
void whet_expand_f32(float *y, const float *x, float scale, const whet_reduce_t *d);

/* ---- Softmax along the middle axis of [outer,n,inner]. In place: the first operand. */

void whet_softmax_f32(float *y, const float *x, int32_t outer, int32_t n, int32_t inner);
void whet_softmax_dx_f32(float *dx, const float *dy, const float *y, int32_t outer, int32_t n,
                         int32_t inner);
void whet_log_softmax_f32(float *y, const float *x, int32_t outer, int32_t n, int32_t inner);
void whet_log_softmax_dx_f32(float *dx, const float *dy, const float *y, int32_t outer, int32_t n,
                             int32_t inner);

/* ---- Losses of x[rows,classes] and labels[rows]. Rows whose label is `ignore` do not count; other
 * labels must be in range. weight[classes] may be NULL. With `mean`, the loss is divided by the
 * total weight of the labels that count. */

void whet_nll_loss_f32(float *loss, const float *x, const int32_t *labels, const float *weight,
                       int32_t rows, int32_t classes, int32_t ignore, int32_t mean);
void whet_nll_loss_dx_f32(float *dx, const float *dloss, const int32_t *labels, const float *weight,
                          int32_t rows, int32_t classes, int32_t ignore, int32_t mean);
void whet_cross_entropy_f32(float *loss, const float *x, const int32_t *labels, const float *weight,
                            int32_t rows, int32_t classes, int32_t ignore, int32_t mean,
                            float smoothing);
/* In place: x. */
void whet_cross_entropy_dx_f32(float *dx, const float *dloss, const float *x, const int32_t *labels,
                               const float *weight, int32_t rows, int32_t classes, int32_t ignore,
                               int32_t mean, float smoothing);
/* The loss of linear(x[n,i], w[o,i], b[o]) and its gradients, made of `classes` scores of `rows`
 * rows at a time; b, dx, dw and db may be NULL. In place: dx on x. */
void whet_linear_cross_entropy_f32(float *loss, float *dx, float *dw, float *db, const float *x,
                                   const float *w, const float *b, const int32_t *labels, int32_t n,
                                   int32_t i, int32_t o, int32_t ignore, int32_t mean, int32_t rows,
                                   int32_t classes, float *workspace);
/* Binary cross-entropy of probabilities x and t; finite where x is 0 or 1. In place: any
 * operand. */
void whet_bce_f32(float *y, const float *x, const float *t, int32_t n);
void whet_bce_dx_f32(float *dx, const float *dy, const float *x, const float *t, int32_t n);

/* ---- Normalisations of x[rows,c], or of x[n,pixels,c] per image and group of channels. */

/* y = (x - mean) / sqrt(var + eps) * w + b. In place: x. */
void whet_batch_norm_f32(float *y, const float *x, const float *w, const float *b,
                         const float *mean, const float *var, int32_t rows, int32_t c, float eps);
/* dx = dy * w / sqrt(var + eps). In place: dy. */
void whet_batch_norm_dx_f32(float *dx, const float *dy, const float *w, const float *var,
                            int32_t rows, int32_t c, float eps);
/* dw[c] = sum of dy * (x - mean) / sqrt(var + eps) */
void whet_batch_norm_dw_f32(float *dw, const float *dy, const float *x, const float *mean,
                            const float *var, int32_t rows, int32_t c, float eps);
/* y = min(max(batch_norm, low), high) */
void whet_batch_norm_clipped_f32(float *y, const float *x, const float *w, const float *b,
                                 const float *mean, const float *var, int32_t rows, int32_t c,
                                 float eps, float low, float high);
/* y = min(max(batch_norm, low), high) with batch statistics; also gives mean[c] and biased var[c]
 * of x */
void whet_batch_norm_train_f32(float *y, float *mean, float *var, const float *x, const float *w,
                               const float *b, int32_t rows, int32_t c, float eps, float low,
                               float high);
/* dw[c], db[c]; dy is 0 where the result was clipped */
void whet_batch_norm_train_dw_f32(float *dw, float *db, const float *dy, const float *x,
                                  const float *w, const float *b, const float *mean,
                                  const float *var, int32_t rows, int32_t c, float eps, float low,
                                  float high);
/* in place on dy or x */
void whet_batch_norm_train_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                                  const float *b, const float *mean, const float *var,
                                  const float *dw, const float *db, int32_t rows, int32_t c,
                                  float eps, float low, float high);
/* mean and var are [n,groups] */
void whet_group_norm_f32(float *y, float *mean, float *var, const float *x, const float *w,
                         const float *b, int32_t n, int32_t pixels, int32_t c, int32_t groups,
                         float eps);
/* In place: dy or x. */
void whet_group_norm_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                            const float *mean, const float *var, int32_t n, int32_t pixels,
                            int32_t c, int32_t groups, float eps);
void whet_group_norm_dw_f32(float *dw, const float *dy, const float *x, const float *mean,
                            const float *var, int32_t n, int32_t pixels, int32_t c, int32_t groups,
                            float eps);

/* ---- Pooling. No window may consist of padding only. */

/* index = the position of the first maximum in its window, row by row, padding included: `bits` <=
 * 24 bits each, packed from the low end, in (n*p*q*c * bits + 7) / 8 bytes */
void whet_max_pool2d_f32(float *y, uint8_t *index, const float *x, int32_t bits,
                         const whet_pool2d_t *d);
void whet_max_pool2d_i8(int8_t *y, uint8_t *index, const int8_t *x, int32_t bits,
                        const whet_pool2d_t *d);
void whet_max_pool2d_dx_f32(float *dx, const float *dy, const uint8_t *index, int32_t bits,
                            const whet_pool2d_t *d);
/* Divides by `divisor` if it is not 0, else by the window's size, including padding if
 * count_pad. */
void whet_avg_pool2d_f32(float *y, const float *x, const whet_pool2d_t *d);
void whet_avg_pool2d_dx_f32(float *dx, const float *dy, const whet_pool2d_t *d);

/* ---- Resampling between [n,h,w,c] and [n,p,q,c]; sh and sw are source pixels per target pixel. */

void whet_upsample_nearest_f32(float *y, const float *x, int32_t n, int32_t h, int32_t w, int32_t c,
                               int32_t p, int32_t q, float sh, float sw);
void whet_upsample_nearest_i8(int8_t *y, const int8_t *x, int32_t n, int32_t h, int32_t w,
                              int32_t c, int32_t p, int32_t q, float sh, float sw);
void whet_upsample_nearest_dx_f32(float *dx, const float *dy, int32_t n, int32_t h, int32_t w,
                                  int32_t c, int32_t p, int32_t q, float sh, float sw);
void whet_upsample_bilinear_f32(float *y, const float *x, int32_t n, int32_t h, int32_t w,
                                int32_t c, int32_t p, int32_t q, float sh, float sw,
                                int32_t align_corners);
/* int8 results are rounded to nearest, ties to even. */
void whet_upsample_bilinear_i8(int8_t *y, const int8_t *x, int32_t n, int32_t h, int32_t w,
                               int32_t c, int32_t p, int32_t q, float sh, float sw,
                               int32_t align_corners);
void whet_upsample_bilinear_dx_f32(float *dx, const float *dy, int32_t n, int32_t h, int32_t w,
                                   int32_t c, int32_t p, int32_t q, float sh, float sw,
                                   int32_t align_corners);

/* ---- Data movement. */

/* y in order = x[start + steps]: transposes and slices */
void whet_gather_x32(void *y, const void *x, int32_t start, const whet_walk_t *walk);
void whet_gather_x8(void *y, const void *x, int32_t start, const whet_walk_t *walk);
/* dx[outer,size,inner] = 0, except dx[:, start + step * i] = dy[:, i], i < n */
void whet_slice_dx_f32(float *dx, const float *dy, int32_t outer, int32_t n, int32_t inner,
                       int32_t size, int32_t start, int32_t step);
void whet_slice_dx_i8(int8_t *dx, const int8_t *dy, int32_t outer, int32_t n, int32_t inner,
                      int32_t size, int32_t start, int32_t step);
void whet_slice_dx_i32(int32_t *dx, const int32_t *dy, int32_t outer, int32_t n, int32_t inner,
                       int32_t size, int32_t start, int32_t step);
/* y = `rows` times: bytes[0] bytes of parts[0], then bytes[1] of parts[1], ... */
void whet_concat(void *y, const void *const *parts, const int32_t *bytes, int32_t count,
                 int32_t rows);
/* y[n] = value, except y[start + steps] = x in order */
void whet_pad_f32(float *y, const float *x, int32_t n, int32_t start, float value,
                  const whet_walk_t *walk);
void whet_pad_i8(int8_t *y, const int8_t *x, int32_t n, int32_t start, int32_t value,
                 const whet_walk_t *walk);
void whet_pad_i32(int32_t *y, const int32_t *x, int32_t n, int32_t start, int32_t value,
                  const whet_walk_t *walk);
/* y[outer,count,inner] = x[outer,n,inner] at index[count], all in [0, n) */
void whet_take_f32(float *y, const float *x, const int32_t *index, int32_t outer, int32_t n,
                   int32_t inner, int32_t count);
void whet_take_i8(int8_t *y, const int8_t *x, const int32_t *index, int32_t outer, int32_t n,
                  int32_t inner, int32_t count);
void whet_take_i32(int32_t *y, const int32_t *x, const int32_t *index, int32_t outer, int32_t n,
                   int32_t inner, int32_t count);
/* dx[outer,n,inner] = 0, then dx[:, index[j]] += dy[:, j] unless index[j] = skip */
void whet_take_dx_f32(float *dx, const float *dy, const int32_t *index, int32_t outer, int32_t n,
                      int32_t inner, int32_t count, int32_t skip);
void whet_take_dx_i32(int32_t *dx, const int32_t *dy, const int32_t *index, int32_t outer,
                      int32_t n, int32_t inner, int32_t count, int32_t skip);
/* y[outer,count,inner] = x[outer,n,inner] at index[outer,count,inner], all in [0, n) */
void whet_take_along_f32(float *y, const float *x, const int32_t *index, int32_t outer, int32_t n,
                         int32_t inner, int32_t count);
/* dx[outer,n,inner] = 0, then dx at index[outer,count,inner] += dy */
void whet_take_along_dx_f32(float *dx, const float *dy, const int32_t *index, int32_t outer,
                            int32_t n, int32_t inner, int32_t count);
/* y[outer,n,inner] = base, then y[:, index[j]] += u[:, j], j < count. In place: base. */
void whet_put_add_f32(float *y, const float *base, const float *u, const int32_t *index,
                      int32_t outer, int32_t n, int32_t inner, int32_t count);
/* y[outer,n,inner] = base, then y[:, start + j] += u[:, j], j < count. In place: base. */
void whet_slice_add_f32(float *y, const float *base, const float *u, int32_t outer, int32_t n,
                        int32_t inner, int32_t count, int32_t start);
void whet_fill_f32(float *y, int32_t n, float value);

/* ---- Random numbers: Philox 4x32-10. rng = (seed, step) and the number of the site select the
 * bits. */

/* y = word < threshold ? 0 : x * scale; threshold is an unsigned bit pattern. In place: x. */
void whet_dropout_f32(float *y, const float *x, const int32_t *rng, int32_t n, int32_t site,
                      int32_t threshold, float scale);
/* y[n] = random numbers in [0, 1) */
void whet_uniform_f32(float *y, const int32_t *rng, int32_t n, int32_t site);
/* next = (seed, step + 1). In place. */
void whet_rng_next(int32_t *next, const int32_t *rng);

/* ---- Updates. In place: each result may overwrite the operand whose next value it is. */

/* w' = w - lr * lr_scale * (g + weight_decay * w) */
void whet_sgd_f32(float *next, const float *w, const float *g, const float *lr, int32_t n,
                  float lr_scale, float weight_decay);
/* m' = momentum * m + g;  w' = w - lr * (nesterov ? g + momentum * m' : m') */
void whet_sgd_momentum_f32(float *next, float *m_next, const float *w, const float *g,
                           const float *m, const float *lr, int32_t n, float lr_scale,
                           float weight_decay, float momentum, int32_t nesterov);
/* t counts steps from 1; fresh1 and fresh2 are 1 - beta1 and 1 - beta2 */
void whet_adam_f32(float *next, float *m_next, float *v_next, const float *w, const float *g,
                   const float *m, const float *v, const float *t, const float *lr, int32_t n,
                   float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                   int32_t decoupled);
/* fresh is 1 - alpha; a and a_next are NULL unless centered, m and m_next without momentum */
void whet_rmsprop_f32(float *next, float *v_next, float *a_next, float *m_next, const float *w,
                      const float *g, const float *v, const float *a, const float *m,
                      const float *lr, int32_t n, float lr_scale, float weight_decay, float fresh,
                      float eps, float momentum);
/* The same with the gradient of a convolution's weight, computed and applied `rows` rows at a time;
 * a linear layer is a 1x1 convolution. In place in the same way. */
void whet_dw_sgd_f32(float *next, const float *w, const float *dy, const float *x, const float *lr,
                     const whet_conv2d_t *d, int32_t rows, float lr_scale, float weight_decay,
                     float *workspace);
void whet_dw_sgd_momentum_f32(float *next, float *m_next, const float *w, const float *dy,
                              const float *x, const float *m, const float *lr,
                              const whet_conv2d_t *d, int32_t rows, float lr_scale,
                              float weight_decay, float momentum, int32_t nesterov,
                              float *workspace);
void whet_dw_adam_f32(float *next, float *m_next, float *v_next, const float *w, const float *dy,
                      const float *x, const float *m, const float *v, const float *t,
                      const float *lr, const whet_conv2d_t *d, int32_t rows, float lr_scale,
                      float weight_decay, float fresh1, float fresh2, float eps, int32_t decoupled,
                      float *workspace);
void whet_dw_rmsprop_f32(float *next, float *v_next, float *a_next, float *m_next, const float *w,
                         const float *dy, const float *x, const float *v, const float *a,
                         const float *m, const float *lr, const whet_conv2d_t *d, int32_t rows,
                         float lr_scale, float weight_decay, float fresh, float eps, float momentum,
                         float *workspace);
/* t' = t + 1 */
void whet_count_step_f32(float *next, const float *t, int32_t n);
/* s' = (1 - momentum) * s + momentum * correction * x */
void whet_ema_f32(float *next, const float *s, const float *x, int32_t n, float momentum,
                  float correction);
/* y[0] = sum of x[i]^2 */
void whet_sum_squares_f32(float *y, const float *x, int32_t n);
/* y = min(1, limit / (sqrt(x) + 1e-6)) */
void whet_clip_scale_f32(float *y, const float *x, int32_t n, float limit);

/* ---- Checks. */

/* CRC-32 (IEEE 802.3) of n bytes, continued from `crc`; start with 0 */
uint32_t whet_crc32(const void *data, size_t n, uint32_t crc);

/* A range of memory in a checkpoint. */
typedef struct {
    void *data;
    size_t bytes;
} whet_bytes_t;

typedef struct {
    const void *data;
    size_t bytes;
} whet_const_bytes_t;

typedef enum {
    WHET_CHECKPOINT_OK,
    WHET_CHECKPOINT_TRUNCATED,
    WHET_CHECKPOINT_CORRUPT,
    WHET_CHECKPOINT_FOREIGN
} whet_checkpoint_t;

/* Header (magic, version, model, length, CRC-32), then the spans. save writes nothing if the buffer
 * is NULL or too small, and returns the number of bytes needed; load changes nothing unless OK.
 * `model` is a fingerprint of names and shapes, so that the checkpoint of another model is
 * rejected. */
size_t whet_checkpoint_save(void *buffer, size_t size, uint32_t model,
                            const whet_const_bytes_t *spans, int32_t count);
whet_checkpoint_t whet_checkpoint_load(const void *buffer, size_t size, uint32_t model,
                                       const whet_bytes_t *spans, int32_t count);
/* 1 if every id is in [0, limit) or equals exempt, else 0 */
int32_t whet_ids_in_range(const int32_t *ids, int32_t n, int32_t limit, int32_t exempt);
/* 1 if x is neither infinite nor NaN, else 0 */
int32_t whet_is_finite(float x);

/* ---- Threads and floating-point mode; only in programs with vector kernels. */

/* Kernels use up to `count` threads from now on; returns how many, and changes nothing if count <
 * 1. Results are bit-identical for any number. */
int32_t whet_set_threads(int32_t count);
/* Flush subnormal numbers to 0 until `whet_restore_subnormals` gets the value returned here. */
uint32_t whet_flush_subnormals(void);
void whet_restore_subnormals(uint32_t before);

#ifdef __cplusplus
}
#endif

#endif
