/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_cached.h"

#include "whet_inline.h"

/* formula    y[i,:] = x[position + i,:]
 * shapes     y[n,row], x[at least position + n,row], position one number
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_rows_at_f32(float *y, const float *x, const int32_t *position, int32_t n, int32_t row) {
    memcpy(y, x + *position * row, (size_t)(n * row) * sizeof *y);
}

/* The same for 32-bit integers. */
void whet_rows_at_i32(int32_t *y, const int32_t *x, const int32_t *position, int32_t n,
                      int32_t row) {
    memcpy(y, x + *position * row, (size_t)(n * row) * sizeof *y);
}

/* formula    y = x, then y[position + i,:] = rows[i,:]
 * shapes     y[s,row], x[s,row], rows[n,row], position one number
 * aliasing   y = x
 * rounding   none
 * workspace  none */
void whet_put_rows_f32(float *y, const float *x, const float *rows, const int32_t *position,
                       int32_t s, int32_t n, int32_t row) {
    if (y != x) memcpy(y, x, (size_t)(s * row) * sizeof *y);
    memcpy(y + *position * row, rows, (size_t)(n * row) * sizeof *y);
}

/* Sum of a[i] * b[i], as whet_dot, which kernels with vectors do not have. */
static float dot(const float *a, const float *b, int32_t n) {
    float lane[WHET_TILE] = {0.0f};
    int32_t i = 0;
    for (; i + WHET_TILE <= n; i += WHET_TILE)
        for (int32_t l = 0; l < WHET_TILE; l++) lane[l] += a[i + l] * b[i + l];
    float sum = whet_fold(lane, WHET_TILE);
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* y[n] += w * x[n] */
static void add_times(float *y, float w, const float *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] += w * x[i];
}

static void scale_all(float *y, float w, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] *= w;
}

/* formula    y_i = sum_j w_j v_j over j <= position + i, w the softmax of scale * q_i . k_j, for
 *            every head
 * shapes     y[n,h,e], q[n,h,d], k[at least position + n,g,d], v as many [g,e], position one number
 * aliasing   none
 * rounding   dot; sums over keys one after the other, scaled whenever the top rises
 * workspace  none */
void whet_attention_cached_f32(float *y, const float *q, const float *k, const float *v,
                               const int32_t *position, float scale, int32_t n, int32_t h,
                               int32_t g, int32_t d, int32_t e) {
    for (int32_t row = 0; row < n * h; row++, q += d, y += e) {
        const int32_t keys = *position + row / h + 1, group = row % h / (h / g);
        const float *key = k + group * d, *value = v + group * e;
        float highest = -INFINITY, sum = 0.0f;
        whet_fill(y, e, 0.0f);
        for (int32_t j = 0; j < keys; j++, key += g * d, value += g * e) {
            const float x = dot(q, key, d) * scale;
            if (x > highest) {
                const float fade = whet_exp(highest - x);
                highest = x;
                sum *= fade;
                scale_all(y, fade, e);
            }
            const float weight = whet_exp(x - highest);
            sum += weight;
            add_times(y, weight, value, e);
        }
        scale_all(y, 1.0f / sum, e);
    }
}
