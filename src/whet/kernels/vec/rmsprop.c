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

/* Elements [i, i + n); n, and whether there are means and momentum, are constants after inlining.
 * Results wait in arrays of their own, as in adam.c. */
static inline __attribute__((always_inline)) void lanes(const rule_t *r, int32_t i, const int32_t n,
                                                        const int32_t means,
                                                        const int32_t momentum) {
    float next[WHET_LANES], square[WHET_LANES], mean[WHET_LANES], change[WHET_LANES];
    for (int32_t l = 0; l < n; l++) {
        const float w = r->w[i + l], h = r->g[i + l] + r->decay * w;
        float spread = square[l] = r->v[i + l] + r->fresh * (h * h - r->v[i + l]);
        if (means) {
            mean[l] = r->a[i + l] + r->fresh * (h - r->a[i + l]);
            spread -= mean[l] * mean[l];
            spread = spread < 0.0f ? 0.0f : spread;
        }
        change[l] = h / (sqrtf(spread) + r->eps);
        if (momentum) change[l] = r->momentum * r->m[i + l] + change[l];
        next[l] = w - r->rate * change[l];
    }
    memcpy(r->next + i, next, sizeof(float) * (size_t)n);
    memcpy(r->v_next + i, square, sizeof(float) * (size_t)n);
    if (means) memcpy(r->a_next + i, mean, sizeof(float) * (size_t)n);
    if (momentum) memcpy(r->m_next + i, change, sizeof(float) * (size_t)n);
}

static inline __attribute__((always_inline)) void between(const rule_t *r, int32_t i, int32_t stop,
                                                          const int32_t means,
                                                          const int32_t momentum) {
    for (; i + WHET_LANES <= stop; i += WHET_LANES) lanes(r, i, WHET_LANES, means, momentum);
    for (; i < stop; i++) lanes(r, i, 1, means, momentum);
}

static void some(const void *args, int32_t first, int32_t end) {
    const rule_t r = *(const rule_t *)args;
    const int32_t i = first * UNIT, stop = whet_min(end * UNIT, r.n);
    if (r.a && r.m)
        between(&r, i, stop, 1, 1);
    else if (r.a)
        between(&r, i, stop, 1, 0);
    else if (r.m)
        between(&r, i, stop, 0, 1);
    else
        between(&r, i, stop, 0, 0);
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
