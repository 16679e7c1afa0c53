/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_stream.h"

static void layer(const whet_stream_t *s, int32_t k, int32_t row, const whet_conv2d_t *d, void *y,
                  const void *x) {
    const float *w = s->operands[3 * k], *b = s->operands[3 * k + 1];
    const float *add = s->operands[3 * k + 2], *limits = (const float *)s->more + 2 * k;
    if (add != NULL) add += (s->image * s->layers[k]->p + row) * d->q * d->o;
    if (s->depthwise[k])
        whet_depthwise_fused_f32(y, x, w, b, add, limits[0], limits[1], d);
    else
        whet_conv2d_fused_f32(y, x, w, b, add, limits[0], limits[1], d);
}

/* formula    y = layer_k(... layer_1(x)), each a conv2d_fused or depthwise_fused
 * shapes     as those of the layers; operands are weight, bias, addend of each, the last two
 *            maybe NULL; limits are low, high of each; count <= WHET_MAX_STAGES
 * aliasing   y may be x, also where x is an addend, if there are two layers or more, all of them
 *            have a row stride of 1 and keep the number of rows, and the first is one row
 *            high
 * rounding   as the layers, for images that are one row high
 * workspace  of every layer but the first, as many rows of its operand as its window is high */
void whet_stream_f32(float *y, const float *x, const void *const *operands,
                     const whet_conv2d_t *const *layers, const int32_t *depthwise,
                     const float *limits, int32_t count, float *workspace) {
    whet_stream_t s = {.size = sizeof *x, .layer = layer, .more = limits};
    whet_run_stream(&s, y, x, operands, layers, depthwise, count, workspace);
}
