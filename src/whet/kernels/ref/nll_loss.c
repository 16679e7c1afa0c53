/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    loss = - sum_r weight[label_r] * x[r,label_r]; divided by the total weight if mean
 * shapes     loss[1], x[rows,classes], labels[rows], weight[classes] or NULL
 * aliasing   none
 * rounding   compensated sums
 * workspace  none */
void whet_nll_loss_f32(float *loss, const float *x, const int32_t *labels, const float *weight,
                       int32_t rows, int32_t classes, int32_t ignore, int32_t mean) {
    whet_sum_t total = {0.0f, 0.0f};
    for (int32_t r = 0; r < rows; r++) {
        const float wr = whet_label_weight(labels[r], weight, ignore);
        if (wr != 0.0f) whet_add(&total, -wr * x[r * classes + labels[r]]);
    }
    *loss = total.sum / whet_loss_divisor(labels, weight, rows, ignore, mean);
}

/* formula    dx = 0, except dx[r,label_r] = -dloss * weight[label_r], divided as the loss is
 * shapes     dx[rows,classes], dloss[1], labels[rows], weight[classes] or NULL
 * aliasing   none
 * rounding   compensated sum of the weights
 * workspace  none */
void whet_nll_loss_dx_f32(float *dx, const float *dloss, const int32_t *labels, const float *weight,
                          int32_t rows, int32_t classes, int32_t ignore, int32_t mean) {
    const float scale = *dloss / whet_loss_divisor(labels, weight, rows, ignore, mean);
    whet_fill(dx, rows * classes, 0.0f);
    for (int32_t r = 0; r < rows; r++) {
        const float wr = whet_label_weight(labels[r], weight, ignore);
        if (wr != 0.0f) dx[r * classes + labels[r]] = -wr * scale;
    }
}
