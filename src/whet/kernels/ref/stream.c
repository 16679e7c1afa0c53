/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* Of every layer but the first, the rows of its operand that are at hand: [first, end). */
typedef struct {
    float *rows;
    int32_t first, end;
} at_hand_t;

typedef struct {
    const float *x;
    const void *const *operands; /* weight, bias, addend of every layer */
    const whet_conv2d_t *const *layers;
    const int32_t *depthwise;
    const float *limits; /* low, high of every layer */
    int32_t image;
    at_hand_t inner[WHET_MAX_STAGES];
} stream_t;

static void make_row(stream_t *s, int32_t k, int32_t row, float *y);

/* Rows [first, end) of what layer k reads; those before are not needed any more. */
static const float *rows_of(stream_t *s, int32_t k, int32_t first, int32_t end) {
    const int32_t width = s->layers[k]->w * s->layers[k]->c;
    if (k == 0) return s->x + (s->image * s->layers[0]->h + first) * width;
    at_hand_t *hand = &s->inner[k];
    const int32_t kept = hand->end > first ? hand->end - first : 0;
    if (kept > 0 && first > hand->first)
        memmove(hand->rows, hand->rows + (first - hand->first) * width,
                (size_t)(kept * width) * sizeof *hand->rows);
    hand->first = first;
    for (hand->end = first + kept; hand->end < end; hand->end++)
        make_row(s, k - 1, hand->end, hand->rows + (hand->end - first) * width);
    return hand->rows;
}

/* One row of what layer k gives: the layer applied to the rows under its window. */
static void make_row(stream_t *s, int32_t k, int32_t row, float *y) {
    whet_conv2d_t d = *s->layers[k];
    const int32_t top = row * d.sh - d.ph, bottom = top + d.dh * (d.kh - 1) + 1;
    const int32_t first = top < 0 ? 0 : whet_min(top, d.h), end = whet_min(bottom, d.h);
    const float *w = s->operands[3 * k], *b = s->operands[3 * k + 1];
    const float *add = s->operands[3 * k + 2];
    if (add != NULL) add += (s->image * d.p + row) * d.q * d.o;
    const float *x = rows_of(s, k, first, end);
    const float low = s->limits[2 * k], high = s->limits[2 * k + 1];
    d.n = 1;
    d.h = end > first ? end - first : 0;
    d.p = 1;
    d.ph = first - top;
    if (s->depthwise[k])
        whet_depthwise_fused_f32(y, x, w, b, add, low, high, &d);
    else
        whet_conv2d_fused_f32(y, x, w, b, add, low, high, &d);
}

/* formula    y = layer_k(... layer_1(x)), each a conv2d_fused or depthwise_fused
 * shapes     as those of the layers; operands are weight, bias, addend of each, the last two
 *            maybe NULL; limits are low, high of each; count <= WHET_MAX_STAGES
 * aliasing   y may be x, also where x is an addend, if there are two layers or more, all of them
 *            move by one row and keep the number of rows, and the first is one row high
 * rounding   as the layers, of images that are one row high
 * workspace  of every layer but the first, as many rows of its operand as its window is high */
void whet_stream_f32(float *y, const float *x, const void *const *operands,
                     const whet_conv2d_t *const *layers, const int32_t *depthwise,
                     const float *limits, int32_t count, float *workspace) {
    stream_t s = {x, operands, layers, depthwise, limits, 0, {{NULL, 0, 0}}};
    for (int32_t k = 1; k < count; k++) {
        const whet_conv2d_t *d = layers[k];
        s.inner[k].rows = workspace;
        workspace += whet_min(d->dh * (d->kh - 1) + 1, d->h) * d->w * d->c;
    }
    const whet_conv2d_t *last = layers[count - 1];
    for (; s.image < last->n; s.image++) {
        for (int32_t k = 1; k < count; k++) s.inner[k].first = s.inner[k].end = 0;
        for (int32_t row = 0; row < last->p; row++, y += last->q * last->o)
            make_row(&s, count - 1, row, y);
    }
}
