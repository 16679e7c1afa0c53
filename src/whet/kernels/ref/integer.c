/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* y = expr in u and v, the elements of a and b, which have type T; advances y. */
#define BINARY(T, y, first, second, d, expr)                           \
    do {                                                               \
        const int32_t axes = (d)->rank - 1, n = (d)->dims[axes];       \
        int32_t index[WHET_MAX_RANK] = {0};                            \
        do {                                                           \
            const T *a_ = (first) + whet_offset(index, (d)->a, axes);  \
            const T *b_ = (second) + whet_offset(index, (d)->b, axes); \
            for (int32_t i = 0; i < n; i++) {                          \
                const T u = a_[i * (d)->a[axes]];                      \
                const T v = b_[i * (d)->b[axes]];                      \
                (y)[i] = (expr);                                       \
            }                                                          \
            (y) += n;                                                  \
        } while (whet_next(index, (d)->dims, axes));                   \
    } while (0)

/* formula    y = a + b
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   any operand of the same shape as y
 * rounding   wraps around
 * workspace  none */
void whet_add_i32(int32_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d) {
    BINARY(int32_t, y, a, b, d, (int32_t)((uint32_t)u + (uint32_t)v));
}

/* formula    y = a - b
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   any operand of the same shape as y
 * rounding   wraps around
 * workspace  none */
void whet_sub_i32(int32_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d) {
    BINARY(int32_t, y, a, b, d, (int32_t)((uint32_t)u - (uint32_t)v));
}

/* formula    y = a * b
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   any operand of the same shape as y
 * rounding   wraps around
 * workspace  none */
void whet_mul_i32(int32_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d) {
    BINARY(int32_t, y, a, b, d, (int32_t)((uint32_t)u * (uint32_t)v));
}

/* formula    y = 1 if a > b, else 0
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_gt_i32(uint8_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d) {
    BINARY(int32_t, y, a, b, d, u > v);
}

/* formula    y = 1 if a >= b, else 0
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_ge_i32(uint8_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d) {
    BINARY(int32_t, y, a, b, d, u >= v);
}

/* formula    y = 1 if a == b, else 0
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_eq_i32(uint8_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d) {
    BINARY(int32_t, y, a, b, d, u == v);
}

/* formula    y = 1 if a != b, else 0
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_ne_i32(uint8_t *y, const int32_t *a, const int32_t *b, const whet_broadcast_t *d) {
    BINARY(int32_t, y, a, b, d, u != v);
}

/* formula    y = c ? a : b
 * shapes     y[dims]; c, a and b broadcast to it
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_where_i32(int32_t *y, const uint8_t *c, const int32_t *a, const int32_t *b,
                    const whet_broadcast_t *d) {
    const int32_t axes = d->rank - 1, n = d->dims[axes];
    int32_t index[WHET_MAX_RANK] = {0};
    do {
        const uint8_t *test = c + whet_offset(index, d->a, axes);
        const int32_t *yes = a + whet_offset(index, d->b, axes);
        const int32_t *no = b + whet_offset(index, d->c, axes);
        for (int32_t i = 0; i < n; i++)
            y[i] = test[i * d->a[axes]] ? yes[i * d->b[axes]] : no[i * d->c[axes]];
        y += n;
    } while (whet_next(index, d->dims, axes));
}

/* formula    y = a and b, as 0 or 1
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   any operand of the same shape as y
 * rounding   none
 * workspace  none */
void whet_and_u8(uint8_t *y, const uint8_t *a, const uint8_t *b, const whet_broadcast_t *d) {
    BINARY(uint8_t, y, a, b, d, u &&v);
}

/* formula    y = a or b, as 0 or 1
 * shapes     y[dims]; a and b broadcast to it
 * aliasing   any operand of the same shape as y
 * rounding   none
 * workspace  none */
void whet_or_u8(uint8_t *y, const uint8_t *a, const uint8_t *b, const whet_broadcast_t *d) {
    BINARY(uint8_t, y, a, b, d, u || v);
}

/* formula    y = not x, as 0 or 1
 * shapes     y[n], x[n]
 * aliasing   y = x
 * rounding   none
 * workspace  none */
void whet_not_u8(uint8_t *y, const uint8_t *x, int32_t n) {
    for (int32_t i = 0; i < n; i++) y[i] = !x[i];
}
