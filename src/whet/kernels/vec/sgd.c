/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_threads.h"

enum { UNIT = 4096 }; /* minimum elements per thread */

typedef struct {
    float *next;
    const float *w, *g;
    int32_t n;
    float rate, decay;
} sgd_t;

static void some(const void *args, int32_t first, int32_t end) {
    const sgd_t *a = args;
    const int32_t stop = whet_min(end * UNIT, a->n);
    for (int32_t i = first * UNIT; i < stop; i++)
        a->next[i] = a->w[i] - a->rate * (a->g[i] + a->decay * a->w[i]);
}

/* formula    w' = w - lr * lr_scale * (g + weight_decay * w)
 * shapes     next[n], w[n], g[n], lr[1]
 * aliasing   next = w
 * rounding   float, element by element
 * workspace  none */
void whet_sgd_f32(float *next, const float *w, const float *g, const float *lr, int32_t n,
                  float lr_scale, float weight_decay) {
    const sgd_t a = {next, w, g, n, *lr * lr_scale, weight_decay};
    whet_share_work(some, &a, (n + UNIT - 1) / UNIT, (int64_t)n * 8);
}
