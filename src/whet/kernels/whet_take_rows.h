/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_TAKE_ROWS_H
#define WHET_TAKE_ROWS_H

#include "whet_inline.h"

#include "whet_kernels_moments.h"

/* The `size` numbers from row `first` on of the gradient of an embedding, as take_dx makes it. */
static inline void whet_take_rows(float *dx, const float *dy, const int32_t *index, int32_t first,
                                  int32_t size, int32_t inner, int32_t count, int32_t skip) {
    whet_fill(dx, size, 0.0f);
    for (int32_t j = 0; j < count; j++) {
        const int32_t row = index[j] - first;
        if (index[j] == skip || row < 0 || row >= size / inner) continue;
        for (int32_t i = 0; i < inner; i++) dx[row * inner + i] += dy[j * inner + i];
    }
}

#endif
