/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_head.h"
#include "whet_kernels_stored.h"

typedef struct {
    const void *w;
    const float *table;
    int32_t i, form;
    float *floats;
} some_t;

static const float *made(const void *who, int32_t first, int32_t count) {
    const some_t *s = who;
    whet_rows_stored_f32(s->floats, s->w, s->table, first, count, s->i, s->form);
    return s->floats;
}

/* formula    loss = cross_entropy(linear(x, w, b), labels), and its gradients dx and db
 * shapes     loss[1], x[n,i], w[o,i] as it is stored, b[o] or NULL, labels[n]; dx[n,i] and db[o] or
 *            NULL; db needs rows >= n
 * aliasing   dx = x
 * rounding   as linear_cross_entropy of the same w in floats, to the bit
 * workspace  rows * (classes + i + 4) + classes * i floats */
void whet_linear_cross_entropy_stored_f32(float *loss, float *dx, float *db, const float *x,
                                          const void *w, const float *table, const float *b,
                                          const int32_t *labels, int32_t n, int32_t i, int32_t o,
                                          int32_t ignore, int32_t mean, int32_t rows,
                                          int32_t classes, int32_t form, float *workspace) {
    const some_t some = {w, table, i, form, workspace};
    const whet_head_weight_t own = {made, &some};
    whet_head_loss_f32(loss, dx, NULL, db, x, &own, b, labels, n, i, o, ignore, mean, rows, classes,
                       workspace + classes * i);
}
