/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_threads.h"

enum { UNIT = 4096 }; /* minimum elements per thread */

typedef struct {
    float *next, *m_next;
    const float *w, *g, *m;
    int32_t n, nesterov;
    float rate, decay, momentum;
} sgd_t;

static void some(const void *args, int32_t first, int32_t end) {
    const sgd_t *a = args;
    const int32_t stop = whet_min(end * UNIT, a->n);
    for (int32_t i = first * UNIT; i < stop; i++) {
        const float h = a->g[i] + a->decay * a->w[i], moved = a->momentum * a->m[i] + h;
        a->next[i] = a->w[i] - a->rate * (a->nesterov ? h + a->momentum * moved : moved);
        a->m_next[i] = moved;
    }
}

/* formula    m' = momentum * m + h, h = g + weight_decay * w;
 *            w' = w - lr * lr_scale * (nesterov ? h + momentum * m' : m')
 * shapes     next[n], m_next[n], w[n], g[n], m[n], lr[1]
 * aliasing   next = w, m_next = m
 * rounding   float, element by element
 * workspace  none */
void whet_sgd_momentum_f32(float *next, float *m_next, const float *w, const float *g,
                           const float *m, const float *lr, int32_t n, float lr_scale,
                           float weight_decay, float momentum, int32_t nesterov) {
    const float rate = *lr * lr_scale;
    const sgd_t a = {next, m_next, w, g, m, n, nesterov, rate, weight_decay, momentum};
    whet_share_work(some, &a, (n + UNIT - 1) / UNIT, (int64_t)n * 8);
}
