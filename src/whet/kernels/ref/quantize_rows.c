/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"
#include "whet_kernels_dots.h"

/* formula    scale[r] = max_c |x[r,c]| / 127, q[r,c] = round(x[r,c] / scale[r])
 *            sums[r,k] = sum of q[r,c], c from k * WHET_BLOCK to before (k + 1) * WHET_BLOCK
 * shapes     q[rows,n], scale[rows], sums[rows,n/WHET_BLOCK], x[rows,n]
 * aliasing   none
 * rounding   x * (127 / max) to the nearest integer, ties to even, once; a row below 1e-30 is 0; of
 *            a row with an infinity or NaN, q is 0 and scale NaN
 * workspace  none */
void whet_quantize_rows_f32(int8_t *q, float *scale, int32_t *sums, const float *x, int32_t rows,
                            int32_t n) {
    for (int32_t r = 0; r < rows; r++, q += n, x += n) {
        int32_t largest = 0; /* of the bits of |x|, which are in the order of the numbers */
        for (int32_t c = 0; c < n; c++) {
            const int32_t size = (int32_t)(whet_bits_of(x[c]) & 0x7fffffff);
            largest = largest > size ? largest : size;
        }
        const float most = whet_from_bits((uint32_t)largest);
        const int32_t fits = most >= 1e-30f && most < INFINITY;
        scale[r] = fits ? most / 127.0f : most < INFINITY ? 0.0f : NAN;
        if (!fits) {
            for (int32_t c = 0; c < n; c++) q[c] = 0;
        } else {
            const float inverse = 127.0f / most;
            for (int32_t c = 0; c < n; c++) {
                const float shifted = fmaf(x[c], inverse, 12582912.0f); /* 1.5 * 2^23 */
                q[c] = (int8_t)((int32_t)whet_bits_of(shifted) - 0x4B400000);
            }
        }
        for (int32_t k = 0; k < n; k += WHET_BLOCK) {
            int32_t sum = 0;
            for (int32_t c = 0; c < WHET_BLOCK; c++) sum += q[k + c];
            *sums++ = sum;
        }
    }
}
