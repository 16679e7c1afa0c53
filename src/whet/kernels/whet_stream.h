/* SPDX-License-Identifier: Apache-2.0 */
/* A sequence of layers, one row at a time: tracks which rows are available and computes more on
 * demand. */
#ifndef WHET_STREAM_H
#define WHET_STREAM_H

#include "whet_inline.h"

/* For every layer but the first, the rows of its operand that are available: [first, end). */
typedef struct {
    unsigned char *rows;
    int32_t first, end;
} whet_at_hand_t;

typedef struct whet_stream {
    const unsigned char *x;
    const void *const *operands; /* three per layer */
    const whet_conv2d_t *const *layers;
    const int32_t *depthwise;
    size_t size; /* bytes per element */
    int32_t image;
    whet_at_hand_t inner[WHET_MAX_STAGES];
    /* y = row `row` of layer k, computed from the given rows of x; d describes the window over
     * these */
    void (*layer)(const struct whet_stream *s, int32_t k, int32_t row, const whet_conv2d_t *d,
                  void *y, const void *x);
    const void *more; /* extra data for `layer` */
} whet_stream_t;

static void whet_make_row(whet_stream_t *s, int32_t k, int32_t row, unsigned char *y);

/* Rows [first, end) of the operand of layer k; earlier rows are discarded. */
static const unsigned char *whet_rows_of(whet_stream_t *s, int32_t k, int32_t first, int32_t end) {
    const size_t width = (size_t)(s->layers[k]->w * s->layers[k]->c) * s->size;
    if (k == 0) return s->x + (size_t)(s->image * s->layers[0]->h + first) * width;
    whet_at_hand_t *hand = &s->inner[k];
    const int32_t kept = hand->end > first ? hand->end - first : 0;
    if (kept > 0 && first > hand->first)
        memmove(hand->rows, hand->rows + (size_t)(first - hand->first) * width,
                (size_t)kept * width);
    hand->first = first;
    for (hand->end = first + kept; hand->end < end; hand->end++)
        whet_make_row(s, k - 1, hand->end, hand->rows + (size_t)(hand->end - first) * width);
    return hand->rows;
}

/* One row of the result of layer k: the layer applied to the rows under its window. */
static void whet_make_row(whet_stream_t *s, int32_t k, int32_t row, unsigned char *y) {
    whet_conv2d_t d = *s->layers[k];
    const int32_t top = row * d.sh - d.ph, bottom = top + d.dh * (d.kh - 1) + 1;
    const int32_t first = top < 0 ? 0 : whet_min(top, d.h), end = whet_min(bottom, d.h);
    const unsigned char *x = whet_rows_of(s, k, first, end);
    d.n = 1;
    d.h = end > first ? end - first : 0;
    d.p = 1;
    d.ph = first - top;
    s->layer(s, k, row, &d, y, x);
}

/* All rows of all images of the last layer; the caller sets `size`, `layer` and `more`. */
static inline void whet_run_stream(whet_stream_t *s, void *y, const void *x,
                                   const void *const *operands, const whet_conv2d_t *const *layers,
                                   const int32_t *depthwise, int32_t count, void *workspace) {
    unsigned char *to = y, *rows = workspace;
    s->x = x;
    s->operands = operands;
    s->layers = layers;
    s->depthwise = depthwise;
    for (int32_t k = 1; k < count; k++) {
        const whet_conv2d_t *d = s->layers[k];
        s->inner[k].rows = rows;
        rows += (size_t)(whet_min(d->dh * (d->kh - 1) + 1, d->h) * d->w * d->c) * s->size;
    }
    const whet_conv2d_t *last = s->layers[count - 1];
    const size_t width = (size_t)(last->q * last->o) * s->size;
    for (s->image = 0; s->image < last->n; s->image++) {
        for (int32_t k = 1; k < count; k++) s->inner[k].first = s->inner[k].end = 0;
        for (int32_t row = 0; row < last->p; row++, to += width)
            whet_make_row(s, count - 1, row, to);
    }
}

#endif
