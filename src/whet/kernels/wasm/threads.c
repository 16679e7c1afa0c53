/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_threads.h"

/* formula    part(args, 0, units): there is one thread
 * shapes     none
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_share_work(void (*part)(const void *args, int32_t first, int32_t end), const void *args,
                     int32_t units, int64_t work) {
    (void)work;
    if (units > 0) part(args, 0, units);
}
