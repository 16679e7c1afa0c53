/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_classes.h"
#include "whet_threads.h"

enum { SOME = 64 }; /* rows whose losses are buffered before they are summed */

typedef struct {
    float *y; /* the loss of each row, or dx */
    const float *x, *weight;
    const int32_t *labels;
    int32_t classes, ignore;
    float smoothing;
    float scale, all; /* for dx: dloss after division, and the sum of all weights */
} rows_t;

static float weight_of(const rows_t *a, int32_t c) { return a->weight ? a->weight[c] : 1.0f; }

static void losses(const void *args, int32_t first, int32_t end) {
    const rows_t *a = args;
    const float spread = a->smoothing / (float)a->classes;
    for (int32_t r = first; r < end; r++) {
        const float *x = a->x + (ptrdiff_t)r * a->classes;
        const int32_t label = a->labels[r];
        whet_sum_t total = {0.0f, 0.0f};
        a->y[r] = 0.0f;
        if (label == a->ignore) continue;
        const float own = (1.0f - a->smoothing) * whet_label_weight(label, a->weight, a->ignore);
        const float top = whet_line_top(x, a->classes);
        const float shift = whet_log(whet_line_exps(NULL, x, a->classes, top));
        whet_add(&total, own * (shift - (x[label] - top)));
        if (spread > 0.0f)
            WHET_SUM(&total, a->classes, spread * weight_of(a, i) * (shift - (x[i] - top)));
        a->y[r] = total.sum;
    }
}

/* formula    loss = sum_r (1-s) * weight[label_r] * e[r,label_r] + s/classes * sum_c weight[c] *
 *            e[r,c], e = -log softmax(x), s = smoothing; if mean, divided by sum_r weight[label_r]
 * shapes     loss[1], x[rows,classes], labels[rows], weight[classes] or NULL
 * aliasing   none
 * rounding   compensated sums
 * workspace  none */
void whet_cross_entropy_f32(float *loss, const float *x, const int32_t *labels, const float *weight,
                            int32_t rows, int32_t classes, int32_t ignore, int32_t mean,
                            float smoothing) {
    float some[SOME];
    whet_sum_t total = {0.0f, 0.0f};
    for (int32_t r = 0; r < rows; r += SOME) {
        const int32_t count = whet_min(rows - r, SOME);
        const rows_t a = {.y = some,
                          .x = x + (ptrdiff_t)r * classes,
                          .weight = weight,
                          .labels = labels + r,
                          .classes = classes,
                          .ignore = ignore,
                          .smoothing = smoothing};
        whet_share_work(losses, &a, count, (int64_t)count * classes * 16);
        for (int32_t i = 0; i < count; i++) whet_add(&total, some[i]);
    }
    *loss = total.sum / whet_loss_divisor(labels, weight, rows, ignore, mean);
}

/* Rows of dx, which may be x: the label's own element is computed last, from its saved
 * exponential. */
static void slopes(const void *args, int32_t first, int32_t end) {
    const rows_t *a = args;
    const float spread = a->smoothing / (float)a->classes;
    for (int32_t r = first; r < end; r++) {
        const int32_t label = a->labels[r], n = a->classes;
        const float *x = a->x + (ptrdiff_t)r * n;
        float *dx = a->y + (ptrdiff_t)r * n;
        if (label == a->ignore) {
            whet_fill(dx, n, 0.0f);
            continue;
        }
        const float own = (1.0f - a->smoothing) * whet_label_weight(label, a->weight, a->ignore);
        const float share = 1.0f / whet_line_exps(dx, x, n, whet_line_top(x, n));
        const float p = dx[label] * share, gain = a->scale * (own + spread * a->all) * share;
        if (spread > 0.0f)
            for (int32_t i = 0; i < n; i++)
                dx[i] = dx[i] * gain - a->scale * spread * weight_of(a, i);
        else
            for (int32_t i = 0; i < n; i++) dx[i] *= gain;
        dx[label] = a->scale * (own * (p - 1.0f) + spread * (p * a->all - weight_of(a, label)));
    }
}

/* formula    dx[r] = k * ((1-s) * weight[label_r] * (p - onehot) + s/classes * (p * sum weight -
 *            weight)), p = softmax(x_r), k = dloss, divided as the loss is; 0 for ignored rows
 * shapes     dx[rows,classes], dloss[1], x[rows,classes], labels[rows], weight[classes] or NULL
 * aliasing   dx = x
 * rounding   compensated sums
 * workspace  none */
void whet_cross_entropy_dx_f32(float *dx, const float *dloss, const float *x, const int32_t *labels,
                               const float *weight, int32_t rows, int32_t classes, int32_t ignore,
                               int32_t mean, float smoothing) {
    whet_sum_t all = {0.0f, 0.0f};
    for (int32_t c = 0; c < classes; c++) whet_add(&all, weight == NULL ? 1.0f : weight[c]);
    const rows_t a = {.y = dx,
                      .x = x,
                      .weight = weight,
                      .labels = labels,
                      .classes = classes,
                      .ignore = ignore,
                      .smoothing = smoothing,
                      .scale = *dloss / whet_loss_divisor(labels, weight, rows, ignore, mean),
                      .all = all.sum};
    whet_share_work(slopes, &a, rows, (int64_t)rows * classes * 20);
}
