/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_head.h"
#include "whet_inline.h"

/* Rows [first, end), of which `count` have a label. What is known of the k-th of these: */
typedef struct {
    const whet_head_weight_t *w;
    const float *b;
    const int32_t *labels;
    int32_t i, o, ignore, first, end, count;
    float *some;   /* [count,i]: the row of x */
    float *scores; /* [count,classes]: its scores for some classes, then their exponentials */
    float *top;    /* [count]: its largest score so far */
    float *sum;    /* [count,2]: the sum of exponentials relative to that, and what it lost */
    float *own;    /* [count]: the score of its label, later the slope of that */
} head_t;

/* The next rows, up to `most` with a label. */
static void gather(head_t *h, const float *x, int32_t n, int32_t most) {
    h->first = h->end;
    for (h->count = 0; h->end < n && h->count < most; h->end++)
        if (h->labels[h->end] != h->ignore)
            memcpy(h->some + h->i * h->count++, x + h->i * h->end, (size_t)h->i * sizeof *x);
}

/* Returns the rows of w for these classes. */
static const float *score(const head_t *h, int32_t class, int32_t n) {
    const float *w = h->w->rows(h->w->who, class, n), *b = h->b == NULL ? NULL : h->b + class;
    whet_linear_f32(h->scores, h->some, w, b, h->count, h->i, n);
    return w;
}

/* Sums over all classes but the label: of exponentials, and in dx[count,i], unless that is NULL, of
 * rows of w times these. */
static void add_classes(const head_t *h, float *dx, int32_t classes) {
    for (int32_t class = 0; class < h->o; class += classes) {
        const int32_t n = whet_min(classes, h->o - class);
        const float *w = score(h, class, n);
        for (int32_t r = h->first, k = 0; r < h->end; r++) {
            const int32_t label = h->labels[r] - class;
            if (h->labels[r] == h->ignore) continue;
            if (label >= 0 && label < n) {
                h->own[k] = h->scores[k * n + label];
                h->scores[k * n + label] = -INFINITY;
            }
            k++;
        }
        whet_softmax_some_f32(h->scores, class > 0 ? dx : NULL, h->top, h->sum, h->count, n, h->i);
        if (dx != NULL && class > 0)
            whet_linear_dx_add_f32(dx, h->scores, w, h->count, h->i, n);
        else if (dx != NULL)
            whet_linear_dx_f32(dx, h->scores, w, h->count, h->i, n);
    }
}

/* Adds the losses of the rows, and completes dx. Leaves what dw is made from: the largest score, in
 * sum[k,0] what exponentials relative to that are multiplied by, and the slope of the label. */
static void add_labels(const head_t *h, whet_sum_t *loss, float *dx, float scale) {
    for (int32_t r = h->first, k = 0; r < h->end; r++) {
        if (h->labels[r] == h->ignore) continue;
        const float own = h->own[k], top = own > h->top[k] ? own : h->top[k];
        const float change = whet_exp(h->top[k] - top), others = h->sum[2 * k] * change;
        const float total = others + whet_exp(own - top), share = scale / total;
        const float gain = share * change, slope = -(share * others);
        whet_add(loss, whet_log(total) - (own - top));
        const float *w = dx == NULL ? NULL : h->w->rows(h->w->who, h->labels[r], 1);
        for (int32_t j = 0; j < h->i && dx != NULL; j++)
            dx[k * h->i + j] = gain * dx[k * h->i + j] + slope * w[j];
        h->top[k] = top;
        h->sum[2 * k] = share;
        h->own[k] = slope;
        k++;
    }
}

/* The gradient of the scores for some classes, which are computed again. */
static void slopes(const head_t *h, int32_t class, int32_t n) {
    score(h, class, n);
    for (int32_t r = h->first, k = 0; r < h->end; r++) {
        const int32_t label = h->labels[r] - class;
        if (h->labels[r] == h->ignore) continue;
        float *s = h->scores + k * n;
        const float top = h->top[k], share = h->sum[2 * k];
        for (int32_t j = 0; j < n; j++) s[j] = whet_exp(s[j] - top) * share;
        if (label >= 0 && label < n) s[label] = h->own[k];
        k++;
    }
}

/* dw and db, either of which may be NULL. */
static void add_weights(const head_t *h, float *dw, float *db, int32_t classes) {
    for (int32_t class = 0; class < h->o; class += classes) {
        const int32_t n = whet_min(classes, h->o - class);
        slopes(h, class, n);
        if (dw != NULL)
            whet_linear_dw_f32(dw + class * h->i, h->scores, h->some, h->count, h->i, n);
        for (int32_t c = 0; c < n && db != NULL; c += WHET_TILE)
            WHET_SUM_ROWS(db + class + c, h->count, c, whet_min(n - c, WHET_TILE),
                          h->scores[r * n + i]);
    }
}

/* Moves the rows of dx from the start to where their labels are. The others are 0. */
static void spread(const head_t *h, float *dx) {
    const size_t row = (size_t)h->i * sizeof *dx;
    int32_t k = h->count;
    for (int32_t r = h->end - 1; r >= h->first; r--) {
        float *to = dx + h->i * (r - h->first);
        if (h->labels[r] == h->ignore)
            memset(to, 0, row);
        else if (to != dx + h->i * --k)
            memcpy(to, dx + h->i * k, row);
    }
}

/* formula    loss = cross_entropy(linear(x, w, b), labels), divided by the number of labels that
 *            count if `mean`; dx, dw, db = its gradients. Of `rows` rows with a label at a time,
 *            and their scores for `classes` classes: exponentials are relative to the largest score
 *            so far, and the sums made of them are corrected when a larger one comes.
 * shapes     loss[1], x[n,i], w[o,i] by its rows, b[o] or NULL, labels[n]; dx[n,i], dw[o,i] and
 *            db[o] or NULL; dw and db need rows >= n
 * aliasing   dx = x
 * rounding   compensated sums of losses and exponentials; dx as linear_dx of `classes` at a time
 * workspace  rows * (classes + i + 4) floats */
void whet_head_loss_f32(float *loss, float *dx, float *dw, float *db, const float *x,
                        const whet_head_weight_t *w, const float *b, const int32_t *labels,
                        int32_t n, int32_t i, int32_t o, int32_t ignore, int32_t mean, int32_t rows,
                        int32_t classes, float *workspace) {
    head_t h = {.w = w, .b = b, .labels = labels, .i = i, .o = o, .ignore = ignore};
    h.some = workspace;
    h.scores = h.some + rows * i;
    h.top = h.scores + rows * classes;
    h.sum = h.top + rows;
    h.own = h.sum + 2 * rows;
    const float divisor = whet_loss_divisor(labels, NULL, n, ignore, mean);
    whet_sum_t total = {0.0f, 0.0f};
    if (dw != NULL) whet_fill(dw, o * i, 0.0f);
    if (db != NULL) whet_fill(db, o, 0.0f);
    while (h.end < n) {
        gather(&h, x, n, rows);
        float *some = dx == NULL ? NULL : dx + h.first * i;
        if (h.count > 0) {
            whet_fill(h.top, h.count, -INFINITY);
            whet_fill(h.sum, 2 * h.count, 0.0f);
            add_classes(&h, some, classes);
            add_labels(&h, &total, some, 1.0f / divisor);
            if (dw != NULL || db != NULL) add_weights(&h, dw, db, classes);
        }
        if (dx != NULL) spread(&h, some);
    }
    *loss = total.sum / divisor;
}

typedef struct {
    const float *w;
    int32_t i;
} floats_t;

static const float *in_memory(const void *who, int32_t first, int32_t count) {
    const floats_t *f = who;
    (void)count;
    return f->w + first * f->i;
}

/* formula    loss = cross_entropy(linear(x, w, b), labels), and dx, dw, db, as whet_head_loss_f32
 * shapes     the same, with w[o,i] in memory
 * aliasing   dx = x
 * rounding   the same
 * workspace  rows * (classes + i + 4) floats */
void whet_linear_cross_entropy_f32(float *loss, float *dx, float *dw, float *db, const float *x,
                                   const float *w, const float *b, const int32_t *labels, int32_t n,
                                   int32_t i, int32_t o, int32_t ignore, int32_t mean, int32_t rows,
                                   int32_t classes, float *workspace) {
    const floats_t floats = {w, i};
    const whet_head_weight_t own = {in_memory, &floats};
    whet_head_loss_f32(loss, dx, dw, db, x, &own, b, labels, n, i, o, ignore, mean, rows, classes,
                       workspace);
}
