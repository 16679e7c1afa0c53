/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* Rows of `row` bytes. */
static void take(char *y, const char *x, const int32_t *index, int32_t outer, int32_t n, size_t row,
                 int32_t count) {
    for (int32_t o = 0; o < outer; o++)
        for (int32_t j = 0; j < count; j++, y += row)
            memcpy(y, x + (size_t)(o * n + index[j]) * row, row);
}

/* formula    y[o,j,:] = x[o,index[j],:]
 * shapes     y[outer,count,inner], x[outer,n,inner], index[count]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_take_f32(float *y, const float *x, const int32_t *index, int32_t outer, int32_t n,
                   int32_t inner, int32_t count) {
    take((char *)y, (const char *)x, index, outer, n, (size_t)inner * sizeof *y, count);
}

/* The same for 8-bit integers. */
void whet_take_i8(int8_t *y, const int8_t *x, const int32_t *index, int32_t outer, int32_t n,
                  int32_t inner, int32_t count) {
    take((char *)y, (const char *)x, index, outer, n, (size_t)inner * sizeof *y, count);
}

/* The same for 32-bit integers. */
void whet_take_i32(int32_t *y, const int32_t *x, const int32_t *index, int32_t outer, int32_t n,
                   int32_t inner, int32_t count) {
    take((char *)y, (const char *)x, index, outer, n, (size_t)inner * sizeof *y, count);
}

/* formula    dx = 0, then dx[o,index[j],:] += dy[o,j,:] unless index[j] = skip
 * shapes     dx[outer,n,inner], dy[outer,count,inner], index[count]
 * aliasing   none
 * rounding   added in the order of j
 * workspace  none */
void whet_take_dx_f32(float *dx, const float *dy, const int32_t *index, int32_t outer, int32_t n,
                      int32_t inner, int32_t count, int32_t skip) {
    whet_fill(dx, outer * n * inner, 0.0f);
    for (int32_t o = 0; o < outer; o++)
        for (int32_t j = 0; j < count; j++) {
            if (index[j] == skip) continue;
            float *to = dx + (o * n + index[j]) * inner;
            for (int32_t i = 0; i < inner; i++) to[i] += dy[(o * count + j) * inner + i];
        }
}

/* The same for 32-bit integers, which wrap around. */
void whet_take_dx_i32(int32_t *dx, const int32_t *dy, const int32_t *index, int32_t outer,
                      int32_t n, int32_t inner, int32_t count, int32_t skip) {
    memset(dx, 0, (size_t)(outer * n * inner) * sizeof *dx);
    for (int32_t o = 0; o < outer; o++)
        for (int32_t j = 0; j < count; j++) {
            if (index[j] == skip) continue;
            int32_t *to = dx + (o * n + index[j]) * inner;
            for (int32_t i = 0; i < inner; i++)
                to[i] = (int32_t)((uint32_t)to[i] + (uint32_t)dy[(o * count + j) * inner + i]);
        }
}
