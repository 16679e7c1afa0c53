/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* One body for every element size, which is a constant after inlining. memcpy copies elements of
 * any type. */
static inline void gather(char *y, const char *x, int32_t start, const whet_walk_t *walk,
                          const size_t size) {
    const int32_t axes = walk->rank - 1, n = walk->dims[axes], step = walk->step[axes];
    int32_t index[WHET_MAX_RANK] = {0};
    do {
        const char *from = x + (size_t)(start + whet_offset(index, walk->step, axes)) * size;
        if (step == 1)
            memcpy(y, from, (size_t)n * size);
        else
            for (int32_t i = 0; i < n; i++)
                memcpy(y + (size_t)i * size, from + (size_t)(i * step) * size, size);
        y += (size_t)n * size;
    } while (whet_next(index, walk->dims, axes));
}

/* formula    y in order = x[start + sum of index * step]
 * shapes     y[dims], x of any shape
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_gather_x32(void *y, const void *x, int32_t start, const whet_walk_t *walk) {
    gather(y, x, start, walk, 4);
}

/* The same for elements of one byte. */
void whet_gather_x8(void *y, const void *x, int32_t start, const whet_walk_t *walk) {
    gather(y, x, start, walk, 1);
}
