/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_stored.h"

#include "whet_read.h"
#include "whet_threads.h"

/* formula    y = min(max(linear(x, w, b) + add, low), high)
 * shapes     y[rows,o], x[rows,i], w[o,i] as it is stored, b[o] or NULL, add[rows,o] or NULL
 * aliasing   y may be add
 * rounding   as linear_fused of the same w in floats, to the bit
 * workspace  some 80 KB of stack */
void whet_linear_stored_f32(float *y, const float *x, const void *w, const float *table,
                            const float *b, const float *add, float low, float high, int32_t rows,
                            int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    whet_product_t p = {.rows = rows, .columns = o, .depth = i, .w = &from, .bl = 1, .bj = i};
    p.read = whet_read_rows;
    p.bias = b;
    p.add = add;
    p.low = low;
    p.high = high;
    whet_dense_product(y, o, x, i, &p);
}

/* formula    dx[r,i] = sum_o dy[r,o] * w[o,i]
 * shapes     dx[rows,i], dy[rows,o], w[o,i] as it is stored
 * aliasing   none
 * rounding   as linear_dx of the same w in floats, to the bit
 * workspace  some 80 KB of stack */
void whet_linear_stored_dx_f32(float *dx, const float *dy, const void *w, const float *table,
                               int32_t rows, int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    whet_product_t p = {.rows = rows, .columns = i, .depth = o, .w = &from, .bl = i, .bj = 1};
    p.read = whet_read_rows;
    p.low = -INFINITY;
    p.high = INFINITY;
    whet_dense_product(dx, i, dy, o, &p);
}

/* formula    y[j,:] = w[index[j],:]
 * shapes     y[count,columns], index[count], w[any,columns] as it is stored
 * aliasing   none
 * rounding   that of the weight in floats
 * workspace  none */
void whet_take_stored_f32(float *y, const void *w, const float *table, const int32_t *index,
                          int32_t count, int32_t columns, int32_t form) {
    const whet_stored_t from = {w, table, form, columns};
    for (int32_t j = 0; j < count; j++)
        whet_read_rows(&from, y + (size_t)j * (size_t)columns, columns, index[j], 1, 0, columns);
}

typedef struct {
    float *y;
    const whet_stored_t *w;
    int32_t first;
} rows_t;

static void some_rows(const void *args, int32_t first, int32_t end) {
    const rows_t *a = args;
    const int32_t columns = a->w->columns;
    whet_read_rows(a->w, a->y + first * columns, columns, a->first + first, end - first, 0,
                   columns);
}

/* formula    y[j,:] = w[first + j,:]
 * shapes     y[count,columns], w[any,columns] as it is stored
 * aliasing   none
 * rounding   that of the weight in floats
 * workspace  none */
void whet_rows_stored_f32(float *y, const void *w, const float *table, int32_t first, int32_t count,
                          int32_t columns, int32_t form) {
    const whet_stored_t from = {w, table, form, columns};
    const rows_t a = {y, &from, first};
    whet_share_work(some_rows, &a, count, (int64_t)count * columns * 4);
}
