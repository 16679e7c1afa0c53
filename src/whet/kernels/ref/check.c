/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* formula    1 if every id is in [0, limit) or equals exempt, else 0
 * shapes     ids[n]
 * aliasing   reads only
 * rounding   exact
 * workspace  none */
int32_t whet_ids_in_range(const int32_t *ids, int32_t n, int32_t limit, int32_t exempt) {
    for (int32_t i = 0; i < n; i++)
        if ((ids[i] < 0 || ids[i] >= limit) && ids[i] != exempt) return 0;
    return 1;
}

/* formula    1 if x is neither infinite nor NaN, else 0
 * shapes     one number
 * aliasing   reads only
 * rounding   exact
 * workspace  none */
int32_t whet_is_finite(float x) { return isfinite(x) ? 1 : 0; }
