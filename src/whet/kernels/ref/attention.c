/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_attention.h"

#include "whet_inline.h"

/* What query i of head h sees: the first of its own numbers, the first of its head in keys and
 * values, its row of the mask, and the number of keys. */
typedef struct {
    int32_t q, y, k, v, row, keys;
    const float *mask;
} query_t;

static query_t query_of(const whet_attention_t *a, const float *mask, int32_t b, int32_t h,
                        int32_t i) {
    const int32_t group = h / (a->h / a->g);
    const query_t at = {
        .q = ((b * a->l + i) * a->h + h) * a->d,
        .y = ((b * a->l + i) * a->h + h) * a->e,
        .k = (b * a->s * a->g + group) * a->d,
        .v = (b * a->s * a->g + group) * a->e,
        .row = (b * a->h + h) * a->l + i,
        .keys = a->causal ? whet_min(i + 1, a->s) : a->s,
        .mask = mask ? mask + b * a->mask_b + h * a->mask_h + i * a->mask_l : NULL,
    };
    return at;
}

static float score(const float *q, const float *k, const query_t *at, int32_t j, float scale,
                   const whet_attention_t *a) {
    const float x = whet_dot(q + at->q, k + at->k + j * a->g * a->d, a->d) * scale;
    return at->mask ? x + at->mask[j] : x;
}

/* y[n] += w * x[n] */
static void add_times(float *y, float w, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] += w * x[i];
}

static void scale_all(float *y, float w, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] *= w;
}

/* formula    y = sum_j exp(x_j - top) * share * v_j, x_j = scale * q . k_j + mask_j, top = max x_j,
 *            share = 1 / sum_j exp(x_j - top), for every query and head; all are 0 if every x_j
 *            is -inf
 * shapes     y[b,l,h,e], top[b,h,l], share[b,h,l], q[b,l,h,d], k[b,s,g,d], v[b,s,g,e], mask as
 *            its steps say or NULL
 * aliasing   none
 * rounding   whet_dot; sums over keys one after the other, scaled whenever the top rises
 * workspace  none */
void whet_attention_f32(float *y, float *top, float *share, const float *q, const float *k,
                        const float *v, const float *mask, float scale, const whet_attention_t *a) {
    for (int32_t n = 0; n < a->b * a->h * a->l; n++) {
        const query_t at = query_of(a, mask, n / a->l / a->h, n / a->l % a->h, n % a->l);
        float highest = -INFINITY, sum = 0.0f, *out = y + at.y;
        whet_fill(out, a->e, 0.0f);
        for (int32_t j = 0; j < at.keys; j++) {
            const float x = score(q, k, &at, j, scale, a);
            if (x == -INFINITY) continue;
            if (x > highest) {
                const float fade = whet_exp(highest - x);
                highest = x;
                sum *= fade;
                scale_all(out, fade, a->e);
            }
            const float weight = whet_exp(x - highest);
            sum += weight;
            add_times(out, weight, v + at.v + j * a->g * a->e, a->e);
        }
        top[at.row] = sum == 0.0f ? 0.0f : highest;
        share[at.row] = sum == 0.0f ? 0.0f : 1.0f / sum;
        scale_all(out, share[at.row], a->e);
    }
}

/* formula    dq_i = sum_j ds_ij * k_j; dk_j = sum_i ds_ij * q_i; dv_j = sum_i w_ij * dy_i; w =
 *            exp(x - top) * share, ds = w * (dy_i . v_j - dy_i . y_i) * scale; sums over i run over
 *            the heads of a group, too
 * shapes     as attention; dq as q, dk as k, dv as v, each of which may be NULL; dy as y
 * aliasing   none
 * rounding   whet_dot; sums one after the other
 * workspace  none: that of `parts` is not used */
void whet_attention_dx_f32(float *dq, float *dk, float *dv, const float *dy, const float *q,
                           const float *k, const float *v, const float *y, const float *top,
                           const float *share, const float *mask, float scale,
                           const whet_attention_t *a, float *workspace) {
    (void)workspace;
    if (dk) whet_fill(dk, a->b * a->s * a->g * a->d, 0.0f);
    if (dv) whet_fill(dv, a->b * a->s * a->g * a->e, 0.0f);
    for (int32_t n = 0; n < a->b * a->h * a->l; n++) {
        const query_t at = query_of(a, mask, n / a->l / a->h, n / a->l % a->h, n % a->l);
        const float *slopes = dy + at.y;
        const float mean = whet_dot(slopes, y + at.y, a->e);
        if (dq) whet_fill(dq + at.q, a->d, 0.0f);
        for (int32_t j = 0; j < at.keys; j++) {
            const int32_t key = at.k + j * a->g * a->d, value = at.v + j * a->g * a->e;
            const float x = score(q, k, &at, j, scale, a);
            const float weight = whet_exp(x - top[at.row]) * share[at.row];
            if (dv) add_times(dv + value, weight, slopes, a->e);
            if (!dq && !dk) continue;
            const float ds = weight * (whet_dot(slopes, v + value, a->e) - mean) * scale;
            if (dq) add_times(dq + at.q, ds, k + key, a->d);
            if (dk) add_times(dk + key, ds, q + at.q, a->d);
        }
    }
}
