/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    y = value, except y[start + sum of index * step] = x in order
 * shapes     y[n], x[dims]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_pad_f32(float *y, const float *x, int32_t n, int32_t start, float value,
                  const whet_walk_t *walk) {
    const int32_t axes = walk->rank - 1, row = walk->dims[axes], step = walk->step[axes];
    int32_t index[WHET_MAX_RANK] = {0};
    whet_fill(y, n, value);
    do {
        float *to = y + start + whet_offset(index, walk->step, axes);
        for (int32_t i = 0; i < row; i++) to[i * step] = x[i];
        x += row;
    } while (whet_next(index, walk->dims, axes));
}

/* Elements of `size` bytes, of any type. */
static inline void pad(char *y, const char *x, int32_t n, int32_t start, const void *value,
                       const whet_walk_t *walk, const size_t size) {
    const int32_t axes = walk->rank - 1, row = walk->dims[axes], step = walk->step[axes];
    int32_t index[WHET_MAX_RANK] = {0};
    for (int32_t i = 0; i < n; i++) memcpy(y + (size_t)i * size, value, size);
    do {
        char *to = y + (size_t)(start + whet_offset(index, walk->step, axes)) * size;
        for (int32_t i = 0; i < row; i++, x += size)
            memcpy(to + (size_t)(i * step) * size, x, size);
    } while (whet_next(index, walk->dims, axes));
}

/* The same for 8-bit integers. */
void whet_pad_i8(int8_t *y, const int8_t *x, int32_t n, int32_t start, int32_t value,
                 const whet_walk_t *walk) {
    const int8_t narrow = (int8_t)value;
    pad((char *)y, (const char *)x, n, start, &narrow, walk, sizeof *y);
}

/* The same for 32-bit integers. */
void whet_pad_i32(int32_t *y, const int32_t *x, int32_t n, int32_t start, int32_t value,
                  const whet_walk_t *walk) {
    pad((char *)y, (const char *)x, n, start, &value, walk, sizeof *y);
}
