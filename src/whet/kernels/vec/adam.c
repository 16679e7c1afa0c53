/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_threads.h"

enum { UNIT = 4096 }; /* minimum elements per thread */

typedef struct {
    float *next, *m_next, *v_next;
    const float *w, *g, *m, *v;
    int32_t n;
    float keep, decay, step, scale, fresh1, fresh2, eps;
} adam_t;

/* Elements [i, i + n); n is a constant after inlining. Results wait in arrays of their own, because
 * compilers use no vectors where a result may be in the place of an operand. */
static inline __attribute__((always_inline)) void lanes(const adam_t *a, int32_t i,
                                                        const int32_t n) {
    float next[WHET_LANES], mean[WHET_LANES], square[WHET_LANES];
    for (int32_t l = 0; l < n; l++) {
        const float w = a->w[i + l], h = a->g[i + l] + a->decay * w;
        mean[l] = a->m[i + l] + a->fresh1 * (h - a->m[i + l]);
        square[l] = a->v[i + l] + a->fresh2 * (h * h - a->v[i + l]);
        next[l] = w * a->keep - a->step * mean[l] / (sqrtf(square[l]) * a->scale + a->eps);
    }
    memcpy(a->next + i, next, sizeof(float) * (size_t)n);
    memcpy(a->m_next + i, mean, sizeof(float) * (size_t)n);
    memcpy(a->v_next + i, square, sizeof(float) * (size_t)n);
}

static void some(const void *args, int32_t first, int32_t end) {
    const adam_t a = *(const adam_t *)args;
    const int32_t stop = whet_min(end * UNIT, a.n);
    int32_t i = first * UNIT;
    for (; i + WHET_LANES <= stop; i += WHET_LANES) lanes(&a, i, WHET_LANES);
    for (; i < stop; i++) lanes(&a, i, 1);
}

/* formula    m' = (1 - fresh1) * m + fresh1 * h;  v' = (1 - fresh2) * v + fresh2 * h^2;
 *            w' = w - rate * (m' / c1) / (sqrt(v' / c2) + eps), c = 1 - (1 - fresh)^t,
 *            rate = lr * lr_scale; h = g + weight_decay * w, or h = g and w shrinks by
 *            1 - rate * weight_decay first if decoupled
 * shapes     next[n], m_next[n], v_next[n], w[n], g[n], m[n], v[n], t[1], lr[1]
 * aliasing   next = w, m_next = m, v_next = v
 * rounding   float; c in double from 1 - beta, because 1 - 0.999f has lost five digits
 * workspace  none */
void whet_adam_f32(float *next, float *m_next, float *v_next, const float *w, const float *g,
                   const float *m, const float *v, const float *t, const float *lr, int32_t n,
                   float lr_scale, float weight_decay, float fresh1, float fresh2, float eps,
                   int32_t decoupled) {
    const float c1 = (float)whet_correction(fresh1, *t), c2 = (float)whet_correction(fresh2, *t);
    const float rate = *lr * lr_scale;
    adam_t a = {next, m_next, v_next, w, g, m, v, n, 1.0f, weight_decay, rate / c1, 0, 0, 0, eps};
    if (decoupled) {
        a.keep = 1.0f - rate * weight_decay;
        a.decay = 0.0f;
    }
    a.scale = whet_rsqrt(c2);
    a.fresh1 = fresh1;
    a.fresh2 = fresh2;
    whet_share_work(some, &a, (n + UNIT - 1) / UNIT, (int64_t)n * 16);
}
