/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_moments.h"
#include "whet_threads.h"

enum { UNIT = 4096 }; /* minimum elements per thread */

typedef struct {
    float *next;
    uint16_t *m_next, *v_next;
    const float *w, *g;
    const uint16_t *m, *v;
    int32_t n;
    float keep, decay, step, scale, fresh1, fresh2, eps;
    uint32_t turn;
} adam_t;

/* Elements [i, i + n); n is a constant after inlining. Results wait in arrays of their own, as in
 * adam.c. */
static inline __attribute__((always_inline)) void lanes(const adam_t *a, int32_t i,
                                                        const int32_t n) {
    float next[WHET_TILE];
    uint16_t mean[WHET_TILE], square[WHET_TILE];
    for (int32_t l = 0; l < n; l++) {
        const float w = a->w[i + l], h = a->g[i + l] + a->decay * w;
        const float m = whet_from_bf16(a->m[i + l]), v = whet_from_bf16(a->v[i + l]);
        const float m_next = m + a->fresh1 * (h - m), v_next = v + a->fresh2 * (h * h - v);
        const uint32_t at = a->turn + (uint32_t)(i + l);
        next[l] = w * a->keep - a->step * m_next / (sqrtf(v_next) * a->scale + a->eps);
        mean[l] = whet_to_bf16(m_next, at);
        square[l] = whet_to_bf16(v_next, at);
    }
    memcpy(a->next + i, next, sizeof(float) * (size_t)n);
    memcpy(a->m_next + i, mean, sizeof(uint16_t) * (size_t)n);
    memcpy(a->v_next + i, square, sizeof(uint16_t) * (size_t)n);
}

static void some(const void *args, int32_t first, int32_t end) {
    const adam_t a = *(const adam_t *)args;
    const int32_t stop = whet_min(end * UNIT, a.n);
    int32_t i = first * UNIT;
    for (; i + WHET_TILE <= stop; i += WHET_TILE) lanes(&a, i, WHET_TILE);
    for (; i < stop; i++) lanes(&a, i, 1);
}

/* formula    m' = (1 - fresh1) * m + fresh1 * h;  v' = (1 - fresh2) * v + fresh2 * h^2;
 *            w' = w - rate * (m' / c1) / (sqrt(v' / c2) + eps), c = 1 - (1 - fresh)^t,
 *            rate = lr * lr_scale; h = g + weight_decay * w, or h = g and w shrinks by
 *            1 - rate * weight_decay first if decoupled
 * shapes     next[n], m_next[n], v_next[n], w[n], g[n], m[n], v[n], t[1], lr[1]; elements from
 *            `first` on of a parameter
 * aliasing   next = w, m_next = m, v_next = v
 * rounding   as adam in float; then m' and v' down or up to bf16, in turn (whet_to_bf16)
 * workspace  none */
void whet_adam_bf16(float *next, uint16_t *m_next, uint16_t *v_next, const float *w, const float *g,
                    const uint16_t *m, const uint16_t *v, const float *t, const float *lr,
                    int32_t n, int32_t first, float lr_scale, float weight_decay, float fresh1,
                    float fresh2, float eps, int32_t decoupled) {
    const float c1 = (float)whet_correction(fresh1, *t), c2 = (float)whet_correction(fresh2, *t);
    const float rate = *lr * lr_scale;
    adam_t a = {next, m_next,       v_next,    w, g, m, v,   n,
                1.0f, weight_decay, rate / c1, 0, 0, 0, eps, 0};
    if (decoupled) {
        a.keep = 1.0f - rate * weight_decay;
        a.decay = 0.0f;
    }
    a.scale = whet_rsqrt(c2);
    a.fresh1 = fresh1;
    a.fresh2 = fresh2;
    a.turn = (uint32_t)first + (uint32_t)*t;
    whet_share_work(some, &a, (n + UNIT - 1) / UNIT, (int64_t)n * 16);
}
