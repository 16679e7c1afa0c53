/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_THREADS_H
#define WHET_THREADS_H

/* Amount of work, roughly in multiplications, worth sharing with another thread. */
#ifndef WHET_GRAIN
#define WHET_GRAIN 768000
#endif

/* Calls part(args, first, end) for ranges that together cover [0, units), on several threads if
 * there are any and the work, roughly in multiplications, is worth waking them. */
void whet_share_work(void (*part)(const void *args, int32_t first, int32_t end), const void *args,
                     int32_t units, int64_t work);

#endif
