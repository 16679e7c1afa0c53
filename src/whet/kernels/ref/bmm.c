/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* y[m,n] += a[k,m]' b[n,k]', the rare case where neither operand has contiguous rows. */
static void matmul_tt(float *y, const float *a, const float *b, int32_t m, int32_t n, int32_t k) {
    for (int32_t i = 0; i < m; i++)
        for (int32_t j = 0; j < n; j++) {
            whet_sum_t sum = {0.0f, 0.0f};
            for (int32_t l = 0; l < k; l++) whet_add(&sum, a[l * m + i] * b[j * k + l]);
            y[i * n + j] += sum.sum;
        }
}

/* formula    y[s] = a[s] b[s], with a[s] or b[s] transposed if ta or tb
 * shapes     y[stacks,m,n], a[stacks,m,k] or [stacks,k,m], b[stacks,k,n] or [stacks,n,k]
 * aliasing   none
 * rounding   sums of WHET_DEPTH products or in WHET_TILE lanes
 * workspace  WHET_DEPTH * WHET_TILE floats of stack */
void whet_bmm_f32(float *y, const float *a, const float *b, int32_t stacks, int32_t m, int32_t k,
                  int32_t n, int32_t ta, int32_t tb) {
    whet_fill(y, stacks * m * n, 0.0f);
    for (; stacks > 0; stacks--, y += m * n, a += m * k, b += k * n) {
        if (ta && tb)
            matmul_tt(y, a, b, m, n, k);
        else if (tb)
            whet_matmul_nt(y, a, b, m, n, k);
        else if (ta)
            whet_matmul(y, n, a, 1, m, b, n, m, n, k);
        else
            whet_matmul(y, n, a, k, 1, b, n, m, n, k);
    }
}
