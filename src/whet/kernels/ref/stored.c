/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_stored.h"

/* y[r,j] += x[r] . w[j] for up to 3 rows of x, with the sums of whet_dot. */
static void dots(float *y, const float *x, const whet_stored_t *w, int32_t j, int32_t rows,
                 int32_t o) {
    const int32_t i = w->columns, whole = i / WHET_TILE * WHET_TILE;
    float piece[WHET_DEPTH], lane[3][WHET_TILE] = {{0.0f}};
    for (int32_t l = 0, k; l < whole; l += k) {
        k = whet_min(whole - l, WHET_DEPTH);
        whet_read_stored(piece, w, j, l, k);
        for (int32_t r = 0; r < rows; r++)
            for (int32_t e = 0; e < k; e++) lane[r][e % WHET_TILE] += x[r * i + l + e] * piece[e];
    }
    whet_read_stored(piece, w, j, whole, i - whole);
    for (int32_t r = 0; r < rows; r++) {
        float sum = whet_fold(lane[r], WHET_TILE);
        for (int32_t l = whole; l < i; l++) sum += x[r * i + l] * piece[l - whole];
        y[r * o + j] += sum;
    }
}

/* y[rows,width] += x[rows,depth] w', for `width` rows of w from j on, and columns from l on. */
WHET_OWN_FRAME static void transposed(float *y, int32_t ldy, const float *x, const whet_stored_t *w,
                                      int32_t j, int32_t l, int32_t rows, int32_t width,
                                      int32_t depth) {
    float panel[WHET_DEPTH * WHET_TILE], piece[WHET_DEPTH];
    for (int32_t c = 0; c < width; c++) {
        whet_read_stored(piece, w, j + c, l, depth);
        for (int32_t k = 0; k < depth; k++) panel[k * width + c] = piece[k];
    }
    whet_panel(y, ldy, x, w->columns, 1, panel, width, rows, width, depth);
}

/* dx[rows,width] += dy[rows,depth] w, for `depth` rows of w from l on, columns from j on. */
WHET_OWN_FRAME static void straight(float *dx, const float *dy, int32_t o, const whet_stored_t *w,
                                    int32_t l, int32_t j, int32_t rows, int32_t depth,
                                    int32_t width) {
    float panel[WHET_DEPTH * WHET_TILE];
    for (int32_t k = 0; k < depth; k++) whet_read_stored(panel + k * width, w, l + k, j, width);
    whet_panel(dx, w->columns, dy, o, 1, panel, width, rows, width, depth);
}

/* formula    y = min(max(linear(x, w, b) + add, low), high)
 * shapes     y[rows,o], x[rows,i], w[o,i] as it is stored, b[o] or NULL, add[rows,o] or NULL
 * aliasing   y may be add
 * rounding   as linear_fused of the same w in floats, to the bit
 * workspace  (WHET_DEPTH + 1) * WHET_TILE floats of stack */
void whet_linear_stored_f32(float *y, const float *x, const void *w, const float *table,
                            const float *b, const float *add, float low, float high, int32_t rows,
                            int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    whet_start_rows(y, b, add, rows, o);
    if (rows < 4)
        for (int32_t j = 0; j < o; j++) dots(y, x, &from, j, rows, o);
    else
        for (int32_t l = 0; l < i; l += WHET_DEPTH)
            for (int32_t j = 0; j < o; j += WHET_TILE)
                transposed(y + j, o, x + l, &from, j, l, rows, whet_min(o - j, WHET_TILE),
                           whet_min(i - l, WHET_DEPTH));
    whet_clip_all(y, rows * o, low, high);
}

/* formula    dx[r,i] = sum_o dy[r,o] * w[o,i]
 * shapes     dx[rows,i], dy[rows,o], w[o,i] as it is stored
 * aliasing   none
 * rounding   as linear_dx of the same w in floats, to the bit
 * workspace  WHET_DEPTH * WHET_TILE floats of stack */
void whet_linear_stored_dx_f32(float *dx, const float *dy, const void *w, const float *table,
                               int32_t rows, int32_t i, int32_t o, int32_t form) {
    const whet_stored_t from = {w, table, form, i};
    whet_fill(dx, rows * i, 0.0f);
    for (int32_t l = 0; l < o; l += WHET_DEPTH)
        for (int32_t j = 0; j < i; j += WHET_TILE)
            straight(dx + j, dy + l, o, &from, l, j, rows, whet_min(o - l, WHET_DEPTH),
                     whet_min(i - j, WHET_TILE));
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
        whet_read_stored(y + (size_t)j * (size_t)columns, &from, index[j], 0, columns);
}

/* formula    y[j,:] = w[first + j,:]
 * shapes     y[count,columns], w[any,columns] as it is stored
 * aliasing   none
 * rounding   that of the weight in floats
 * workspace  none */
void whet_rows_stored_f32(float *y, const void *w, const float *table, int32_t first, int32_t count,
                          int32_t columns, int32_t form) {
    const whet_stored_t from = {w, table, form, columns};
    for (int32_t j = 0; j < count; j++)
        whet_read_stored(y + j * columns, &from, first + j, 0, columns);
}
