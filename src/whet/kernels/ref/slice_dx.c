/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* Rows of `row` bytes. */
static void place(char *dx, const char *dy, int32_t outer, int32_t n, size_t row, int32_t size,
                  int32_t start, int32_t step) {
    memset(dx, 0, (size_t)(outer * size) * row);
    for (int32_t o = 0; o < outer; o++)
        for (int32_t i = 0; i < n; i++, dy += row)
            memcpy(dx + (size_t)(o * size + start + step * i) * row, dy, row);
}

/* formula    dx = 0, except dx[o, start + step * i, :] = dy[o, i, :]
 * shapes     dx[outer,size,inner], dy[outer,n,inner]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_slice_dx_f32(float *dx, const float *dy, int32_t outer, int32_t n, int32_t inner,
                       int32_t size, int32_t start, int32_t step) {
    place((char *)dx, (const char *)dy, outer, n, (size_t)inner * sizeof *dx, size, start, step);
}

/* The same for 8-bit integers. */
void whet_slice_dx_i8(int8_t *dx, const int8_t *dy, int32_t outer, int32_t n, int32_t inner,
                      int32_t size, int32_t start, int32_t step) {
    place((char *)dx, (const char *)dy, outer, n, (size_t)inner * sizeof *dx, size, start, step);
}

/* The same for 32-bit integers. */
void whet_slice_dx_i32(int32_t *dx, const int32_t *dy, int32_t outer, int32_t n, int32_t inner,
                       int32_t size, int32_t start, int32_t step) {
    place((char *)dx, (const char *)dy, outer, n, (size_t)inner * sizeof *dx, size, start, step);
}
