/* SPDX-License-Identifier: Apache-2.0 */
/* Weight gradients that are applied as they are computed, from a dy of type GRADIENT; DW_ROWS(dw,
 * u, first, count) computes some rows of them. A kernel file defines both before it includes
 * this. */
#ifndef WHET_DW_SGD_H
#define WHET_DW_SGD_H

#include "whet_inline.h"
#include "whet_kernels_i8.h"

/* Operands of the gradient and of the step; an integer dy has a scale, `by`. */
typedef struct {
    const int8_t *q;
    const GRADIENT *dy;
    const int8_t *x;
    const float *by, *scale, *lr;
    int32_t zero;
    const whet_conv2d_t *d;
    int32_t rows, scales;
    float unit, lr_scale, weight_decay;
} update_t;

/* The step of rows [o, o + count) of q, from their gradient. */
static void move_of(float *move, const update_t *u, int32_t o, int32_t count) {
    const int32_t size = u->d->kh * u->d->kw * u->d->c;
    DW_ROWS(move, u, o, count);
    if (u->scales == 1)
        whet_sgd_step_i8(move, u->q + o * size, move, u->scale, u->lr, 1, 1, count * size, u->unit,
                         u->lr_scale, u->weight_decay);
    else
        whet_sgd_step_i8(move, u->q + o * size, move, u->scale + o, u->lr, 1, count, size, u->unit,
                         u->lr_scale, u->weight_decay);
}

static void nearest(int8_t *next, const update_t *u, float *workspace) {
    const int32_t size = u->d->kh * u->d->kw * u->d->c;
    for (int32_t o = 0; o < u->d->o; o += u->rows) {
        const int32_t count = whet_min(u->rows, u->d->o - o), at = o * size;
        move_of(workspace, u, o, count);
        whet_settle_nearest_i8(next + at, u->q + at, workspace, count * size);
    }
}

static void carried(int8_t *next, int8_t *c_next, const update_t *u, const int8_t *c,
                    float *workspace) {
    const int32_t size = u->d->kh * u->d->kw * u->d->c;
    for (int32_t o = 0; o < u->d->o; o += u->rows) {
        const int32_t count = whet_min(u->rows, u->d->o - o), at = o * size;
        move_of(workspace, u, o, count);
        whet_settle_carry_i8_i8(next + at, c_next + at, u->q + at, workspace, c + at, count * size);
    }
}

#endif
