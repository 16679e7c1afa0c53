/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of linear layers of which only the live elements are stored. */
#ifndef WHET_LIVE_H
#define WHET_LIVE_H

#include <stdint.h>

/* The live elements of a weight [o,i], in order. */
typedef struct {
    const uint8_t *bits;
    int32_t bytes, inputs; /* of bits; in a row of the weight */
    int32_t base, row;     /* the element that the 32 bits at hand begin with; where its row does */
    uint32_t rest;         /* those of the 32 bits that were not visited */
    int32_t o, i;          /* where the present element is */
} whet_live_t;

static inline whet_live_t whet_first_live(const uint8_t *bits, int32_t i, int32_t o) {
    return (whet_live_t){.bits = bits, .bytes = (o * i + 7) / 8, .inputs = i, .base = -32};
}

/* Whether there is a next one; o and i are then its place. */
static inline int whet_next_live(whet_live_t *at) {
    /* The number of the lowest bit, from the top bits of its product with a de Bruijn sequence. */
    static const uint8_t lowest[32] = {0,  1,  28, 2,  29, 14, 24, 3,  30, 22, 20,
                                       15, 25, 17, 4,  8,  31, 27, 13, 23, 21, 19,
                                       16, 7,  26, 12, 18, 6,  11, 5,  10, 9};
    while (at->rest == 0) {
        at->base += 32;
        const int32_t byte = at->base / 8, left = at->bytes - byte;
        if (left <= 0) return 0;
        for (int32_t j = 0; j < 4 && j < left; j++)
            at->rest |= (uint32_t)at->bits[byte + j] << 8 * j;
    }
    at->i = at->base + lowest[((at->rest & (0u - at->rest)) * 0x077cb531u) >> 27] - at->row;
    at->rest &= at->rest - 1;
    for (; at->i >= at->inputs; at->i -= at->inputs, at->row += at->inputs) at->o++;
    return 1;
}

/* The gradients of the next live elements, at most `most`; returns of how many. */
static inline int32_t whet_live_dw(float *dv, int32_t most, whet_live_t *at, const float *dy,
                                   const float *x, int32_t rows, int32_t o) {
    int32_t count = 0;
    for (; count < most && whet_next_live(at); count++) {
        float sum = 0.0f;
        for (int32_t r = 0; r < rows; r++) sum += dy[r * o + at->o] * x[r * at->inputs + at->i];
        dv[count] = sum;
    }
    return count;
}

#endif
