/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    loss = sum_r (1-s) * weight[label_r] * e[r,label_r] + s/classes * sum_c weight[c] *
 *            e[r,c], e = -log softmax(x), s = smoothing; if mean, divided by sum_r weight[label_r]
 * shapes     loss[1], x[rows,classes], labels[rows], weight[classes] or NULL
 * aliasing   none
 * rounding   compensated sums
 * workspace  none */
void whet_cross_entropy_f32(float *loss, const float *x, const int32_t *labels, const float *weight,
                            int32_t rows, int32_t classes, int32_t ignore, int32_t mean,
                            float smoothing) {
    const float spread = smoothing / (float)classes;
    whet_sum_t total = {0.0f, 0.0f};
    for (int32_t r = 0; r < rows; r++, x += classes) {
        if (labels[r] == ignore) continue;
        const float wr = whet_label_weight(labels[r], weight, ignore);
        const float top = whet_top(x, classes, 1);
        const float shift = whet_log(whet_exp_sum(x, classes, 1, top));
        whet_add(&total, (1.0f - smoothing) * wr * (shift - (x[labels[r]] - top)));
        for (int32_t c = 0; c < classes && spread > 0.0f; c++)
            whet_add(&total, spread * (weight == NULL ? 1.0f : weight[c]) * (shift - (x[c] - top)));
    }
    *loss = total.sum / whet_loss_divisor(labels, weight, rows, ignore, mean);
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
    const float scale = *dloss / whet_loss_divisor(labels, weight, rows, ignore, mean);
    const float spread = smoothing / (float)classes;
    whet_sum_t all = {0.0f, 0.0f};
    for (int32_t c = 0; c < classes; c++) whet_add(&all, weight == NULL ? 1.0f : weight[c]);
    for (int32_t r = 0; r < rows; r++, x += classes, dx += classes) {
        if (labels[r] == ignore) {
            whet_fill(dx, classes, 0.0f);
            continue;
        }
        const float wr = (1.0f - smoothing) * whet_label_weight(labels[r], weight, ignore);
        const float top = whet_top(x, classes, 1);
        const float share = 1.0f / whet_exp_sum(x, classes, 1, top);
        for (int32_t c = 0; c < classes; c++) {
            const float p = whet_exp(x[c] - top) * share, wc = weight == NULL ? 1.0f : weight[c];
            const float target = c == labels[r] ? 1.0f : 0.0f;
            dx[c] = scale * (wr * (p - target) + spread * (p * all.sum - wc));
        }
    }
}
