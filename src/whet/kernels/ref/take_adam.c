/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_take_rows.h"

/* formula    w', m', v' = adam(w, take_dx(dy, index), m, v, t, lr)
 * shapes     next[n,inner], m_next[n,inner], v_next[n,inner], w[n,inner], dy[count,inner],
 *            index[count], m[n,inner], v[n,inner], t[1], lr[1]; `rows` rows of the gradient are
 *            made and applied at a time
 * aliasing   next = w, m_next = m, v_next = v
 * rounding   as take_dx and adam
 * workspace  rows * inner floats */
void whet_take_adam_f32(float *next, float *m_next, float *v_next, const float *w, const float *dy,
                        const int32_t *index, const float *m, const float *v, const float *t,
                        const float *lr, int32_t n, int32_t inner, int32_t count, int32_t skip,
                        int32_t rows, float lr_scale, float weight_decay, float fresh1,
                        float fresh2, float eps, int32_t decoupled, float *workspace) {
    for (int32_t first = 0; first < n; first += rows) {
        const int32_t at = first * inner, size = whet_min(rows, n - first) * inner;
        whet_take_rows(workspace, dy, index, first, size, inner, count, skip);
        whet_adam_f32(next + at, m_next + at, v_next + at, w + at, workspace, m + at, v + at, t, lr,
                      size, lr_scale, weight_decay, fresh1, fresh2, eps, decoupled);
    }
}
