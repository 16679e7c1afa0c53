/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_classes.h"
#include "whet_threads.h"

/* Lines along the last axis are processed in vectors, others one number at a time. */
typedef struct {
    float *y;
    const float *x, *dy;
    int32_t n, inner;
} lines_t;

static int32_t start_of(const lines_t *a, int32_t line) {
    return line / a->inner * a->n * a->inner + line % a->inner;
}

static void forward(const void *args, int32_t first, int32_t end) {
    const lines_t *a = args;
    for (int32_t line = first; line < end; line++) {
        const int32_t n = a->n, step = a->inner, at = start_of(a, line);
        const float *x = a->x + at;
        float *y = a->y + at;
        if (step == 1) {
            const float share = 1.0f / whet_line_exps(y, x, n, whet_line_top(x, n));
            for (int32_t i = 0; i < n; i++) y[i] *= share;
            continue;
        }
        const float top = whet_top(x, n, step);
        whet_sum_t sum = {0.0f, 0.0f};
        for (int32_t i = 0; i < n; i++) y[i * step] = whet_exp(x[i * step] - top);
        WHET_SUM(&sum, n, y[i * step]);
        const float share = 1.0f / sum.sum;
        for (int32_t i = 0; i < n; i++) y[i * step] *= share;
    }
}

static void backward(const void *args, int32_t first, int32_t end) {
    const lines_t *a = args;
    for (int32_t line = first; line < end; line++) {
        const int32_t n = a->n, step = a->inner, at = start_of(a, line);
        const float *dy = a->dy + at, *y = a->x + at;
        float *dx = a->y + at;
        whet_sum_t dot = {0.0f, 0.0f};
        if (step == 1) {
            WHET_SUM(&dot, n, dy[i] * y[i]);
            for (int32_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - dot.sum);
        } else {
            WHET_SUM(&dot, n, dy[i * step] * y[i * step]);
            for (int32_t i = 0; i < n; i++) dx[i * step] = y[i * step] * (dy[i * step] - dot.sum);
        }
    }
}

/* formula    y = exp(x - max) / sum of exp(x - max) along the middle axis
 * shapes     y[outer,n,inner], x[outer,n,inner]
 * aliasing   y = x
 * rounding   compensated sum
 * workspace  none */
void whet_softmax_f32(float *y, const float *x, int32_t outer, int32_t n, int32_t inner) {
    const lines_t a = {y, x, NULL, n, inner};
    whet_share_work(forward, &a, outer * inner, (int64_t)outer * n * inner * 16);
}

/* formula    dx = y * (dy - sum of dy * y along the middle axis)
 * shapes     dx[outer,n,inner], dy[outer,n,inner], y[outer,n,inner]
 * aliasing   dx = dy
 * rounding   compensated sum
 * workspace  none */
void whet_softmax_dx_f32(float *dx, const float *dy, const float *y, int32_t outer, int32_t n,
                         int32_t inner) {
    const lines_t a = {dx, y, dy, n, inner};
    whet_share_work(backward, &a, outer * inner, (int64_t)outer * n * inner * 4);
}
