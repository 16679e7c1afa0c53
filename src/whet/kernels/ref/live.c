/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* The live elements of a weight [o,i], in order. */
typedef struct {
    const uint8_t *bits;
    int32_t bytes, inputs; /* of bits; in a row of the weight */
    int32_t base, row;     /* the element that the 32 bits at hand begin with; where its row does */
    uint32_t rest;         /* those of the 32 bits that were not visited */
    int32_t o, i;          /* where the present element is */
} live_t;

static inline live_t first_live(const uint8_t *bits, int32_t i, int32_t o) {
    return (live_t){.bits = bits, .bytes = (o * i + 7) / 8, .inputs = i, .base = -32};
}

/* Whether there is a next one; o and i are then its place. */
static inline int next_live(live_t *at) {
    /* The number of the lowest bit, from the top bits of its product with a de Bruijn sequence. */
    static const uint8_t lowest[32] = {0,  1,  28, 2,  29, 14, 24, 3,  30, 22, 20,
                                       15, 25, 17, 4,  8,  31, 27, 13, 23, 21, 19,
                                       16, 7,  26, 12, 18, 6,  11, 5,  10, 9};
    while (at->rest == 0) {
        at->base += 32;
        const int32_t byte = at->base / 8, left = at->bytes - byte;
        if (left <= 0) return 0;
        for (int32_t j = 0; j < whet_min(left, 4); j++)
            at->rest |= (uint32_t)at->bits[byte + j] << 8 * j;
    }
    at->i = at->base + lowest[((at->rest & (0u - at->rest)) * 0x077cb531u) >> 27] - at->row;
    at->rest &= at->rest - 1;
    for (; at->i >= at->inputs; at->i -= at->inputs, at->row += at->inputs) at->o++;
    return 1;
}

/* formula    y[r,o] = b[o] + sum_i x[r,i] * w[o,i], w being spread(v, bits)
 * shapes     y[rows,o], x[rows,i], v[number of bits set], bits[(o * i + 7) / 8], b[o] or NULL
 * aliasing   none
 * rounding   one sum per result, over the live elements in order
 * workspace  none */
void whet_linear_live_f32(float *y, const float *x, const float *v, const uint8_t *bits,
                          const float *b, int32_t rows, int32_t i, int32_t o) {
    whet_fill_rows(y, b, rows, o);
    for (live_t at = first_live(bits, i, o); next_live(&at); v++)
        for (int32_t r = 0; r < rows; r++) y[r * o + at.o] += x[r * i + at.i] * *v;
}

/* formula    dx[r,i] = sum_o dy[r,o] * w[o,i], w being spread(v, bits)
 * shapes     as linear_live
 * aliasing   none
 * rounding   one sum per result, over the live elements in order
 * workspace  none */
void whet_linear_live_dx_f32(float *dx, const float *dy, const float *v, const uint8_t *bits,
                             int32_t rows, int32_t i, int32_t o) {
    whet_fill(dx, rows * i, 0.0f);
    for (live_t at = first_live(bits, i, o); next_live(&at); v++)
        for (int32_t r = 0; r < rows; r++) dx[r * i + at.i] += dy[r * o + at.o] * *v;
}

/* formula    dv = sum_r dy[r,o] * x[r,i] for every live w[o,i], in order
 * shapes     as linear_live; dv as v
 * aliasing   none
 * rounding   one sum per result
 * workspace  none */
void whet_linear_live_dw_f32(float *dv, const float *dy, const float *x, const uint8_t *bits,
                             int32_t rows, int32_t i, int32_t o) {
    for (live_t at = first_live(bits, i, o); next_live(&at); dv++) {
        *dv = 0.0f;
        for (int32_t r = 0; r < rows; r++) *dv += dy[r * o + at.o] * x[r * i + at.i];
    }
}
