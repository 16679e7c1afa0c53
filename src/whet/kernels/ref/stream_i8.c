/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_stream.h"

#include "whet_kernels_i8.h"

static void layer(const whet_stream_t *s, int32_t k, int32_t row, const whet_conv2d_t *d, void *y,
                  const void *x) {
    const int8_t *w = s->operands[3 * k];
    const int32_t *b = s->operands[3 * k + 1];
    const float *scale = s->operands[3 * k + 2];
    const whet_narrow_t *narrow = ((const whet_narrow_t *const *)s->more)[k];
    (void)row;
    if (s->depthwise[k])
        whet_depthwise_i8_fused(y, NULL, x, w, b, scale, narrow, d);
    else
        whet_conv2d_i8_fused(y, NULL, x, w, b, scale, NULL, NULL, narrow, d);
}

/* formula    y = layer_k(... layer_1(x)), each a conv2d_i8_fused or depthwise_i8_fused
 * shapes     as those of the layers; operands are weight, bias, scale of each, the bias maybe
 *            NULL; count <= WHET_MAX_STAGES
 * aliasing   y may be x if there are two layers or more, all of them have a row stride of 1 and
 *            keep the number of rows, and the first is one row high
 * rounding   as the layers
 * workspace  of every layer but the first, as many rows of its operand as its window is high */
void whet_stream_i8(int8_t *y, const int8_t *x, const void *const *operands,
                    const whet_conv2d_t *const *layers, const whet_narrow_t *const *narrow,
                    const int32_t *depthwise, int32_t count, void *workspace) {
    whet_stream_t s = {.size = sizeof *x, .layer = layer, .more = (const void *)narrow};
    whet_run_stream(&s, y, x, operands, layers, depthwise, count, workspace);
}
