/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_classes.h"
#include "whet_head.h"
#include "whet_threads.h"

typedef struct {
    float *x, *y, *top, *sum;
    int32_t n, width;
} rows_t;

static void some_rows(const void *args, int32_t first, int32_t end) {
    const rows_t *a = args;
    for (int32_t r = first; r < end; r++) {
        float *x = a->x + r * a->n, *sum = a->sum + 2 * r;
        const float here = whet_line_top(x, a->n), now = here > a->top[r] ? here : a->top[r];
        const float base = now > -INFINITY ? now : 0.0f, change = whet_exp(a->top[r] - base);
        whet_sum_t total = {sum[0] * change, sum[1] * change};
        whet_add(&total, whet_line_exps(x, x, a->n, base));
        if (a->y != NULL && change != 1.0f)
            for (int32_t j = 0; j < a->width; j++) a->y[r * a->width + j] *= change;
        a->top[r] = now;
        sum[0] = total.sum;
        sum[1] = total.lost;
    }
}

/* formula    top' = max(top, max x[r]), c = exp(top - top'); x' = exp(x - top'), y' = c * y,
 *            sum' = c * sum + the sum of x'
 * shapes     x[rows,n], y[rows,width] or NULL, top[rows], sum[rows,2]: each a sum and what it lost;
 *            a first part has top = -infinity and sum = 0
 * aliasing   x', y', top' and sum' replace x, y, top and sum
 * rounding   compensated sum
 * workspace  none */
void whet_softmax_some_f32(float *x, float *y, float *top, float *sum, int32_t rows, int32_t n,
                           int32_t width) {
    const rows_t a = {x, y, top, sum, n, width};
    whet_share_work(some_rows, &a, rows, (int64_t)rows * n * 16);
}

/* formula    dx[r,i] += sum_o dy[r,o] * w[o,i]
 * shapes     dx[rows,i], dy[rows,o], w[o,i]
 * aliasing   none
 * rounding   as linear_dx, plus dx
 * workspace  some 70 KB of stack */
void whet_linear_dx_add_f32(float *dx, const float *dy, const float *w, int32_t rows, int32_t i,
                            int32_t o) {
    whet_product_t p = {.rows = rows, .columns = i, .depth = o, .b = w, .bl = i, .bj = 1};
    p.add = dx;
    p.low = -INFINITY;
    p.high = INFINITY;
    whet_dense_product(dx, i, dy, o, &p);
}
