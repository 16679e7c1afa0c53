/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_threads.h"

enum { UNIT = 4096 }; /* elements that one thread does at least */

typedef struct {
    float *next, *v_next, *a_next, *m_next;
    const float *w, *g, *v, *a, *m;
    int32_t n;
    float rate, decay, fresh, eps, momentum;
} rule_t;

static void some(const void *args, int32_t first, int32_t end) {
    const rule_t *r = args;
    const int32_t stop = whet_min(end * UNIT, r->n);
    for (int32_t i = first * UNIT; i < stop; i++) {
        const float h = r->g[i] + r->decay * r->w[i];
        const float square = r->v[i] + r->fresh * (h * h - r->v[i]);
        float spread = square;
        r->v_next[i] = square;
        if (r->a) {
            const float mean = r->a[i] + r->fresh * (h - r->a[i]), rest = square - mean * mean;
            spread = rest < 0.0f ? 0.0f : rest;
            r->a_next[i] = mean;
        }
        float change = h / (sqrtf(spread) + r->eps);
        if (r->m) {
            change = r->momentum * r->m[i] + change;
            r->m_next[i] = change;
        }
        r->next[i] = r->w[i] - r->rate * change;
    }
}

/* formula    h = g + weight_decay * w;  v' = v + fresh * (h^2 - v);  a' = a + fresh * (h - a);
 *            d = h / (sqrt(v' - a'^2, at least 0) + eps);  m' = momentum * m + d;
 *            w' = w - lr * lr_scale * m'; without a, v' alone is under the root; without m, d is
 *            taken for m'; fresh = 1 - alpha
 * shapes     next[n], v_next[n], a_next[n], m_next[n], w[n], g[n], v[n], a[n], m[n], lr[1]; a and
 *            a_next, or m and m_next, may be NULL
 * aliasing   next = w, v_next = v, a_next = a, m_next = m
 * rounding   float, element by element
 * workspace  none */
void whet_rmsprop_f32(float *next, float *v_next, float *a_next, float *m_next, const float *w,
                      const float *g, const float *v, const float *a, const float *m,
                      const float *lr, int32_t n, float lr_scale, float weight_decay, float fresh,
                      float eps, float momentum) {
    const rule_t r = {next, v_next, a_next,         m_next,       w,     g,   v,       a,
                      m,    n,      *lr * lr_scale, weight_decay, fresh, eps, momentum};
    whet_share_work(some, &r, (n + UNIT - 1) / UNIT, (int64_t)n * 16);
}
