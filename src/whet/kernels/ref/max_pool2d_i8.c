/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_max_pool.h"

#define NEVER(v) 0
POOL(pool_i8, window_i8, int8_t, NEVER)

/* formula    y = max of x over the window;  index = the position of the first maximum in it
 * shapes     as max_pool2d
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_max_pool2d_i8(int8_t *y, uint8_t *index, const int8_t *x, int32_t bits,
                        const whet_pool2d_t *d) {
    pool_i8(y, index, x, bits, d);
}
