/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_GELU_TANH_H
#define WHET_GELU_TANH_H

#include "whet_inline.h"

#define WHET_GELU_SCALE 1.5957692f /* 2 sqrt(2 / pi) */
#define WHET_GELU_CUBE  0.044715f

/* (1 + tanh(z / 2)) / 2 = sigmoid(z) */
static inline float whet_gelu_share(float x) {
    return whet_sigmoid(WHET_GELU_SCALE * (x + WHET_GELU_CUBE * x * x * x));
}

/* The derivative of x * share(x), given share(x). */
static inline float whet_gelu_slope(float x, float share) {
    const float inner = WHET_GELU_SCALE * (1.0f + 3.0f * WHET_GELU_CUBE * x * x);
    return share + x * share * (1.0f - share) * inner;
}

#endif
