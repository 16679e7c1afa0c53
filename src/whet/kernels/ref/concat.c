/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    each row of y = the rows of the parts, one after the other
 * shapes     y[rows, sum of bytes], parts[i][rows, bytes[i]]
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_concat(void *y, const void *const *parts, const int32_t *bytes, int32_t count,
                 int32_t rows) {
    char *to = y;
    for (int32_t r = 0; r < rows; r++)
        for (int32_t i = 0; i < count; i++) {
            const size_t size = (size_t)bytes[i];
            memcpy(to, (const char *)parts[i] + (size_t)r * size, size);
            to += size;
        }
}
