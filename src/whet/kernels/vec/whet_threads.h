/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_THREADS_H
#define WHET_THREADS_H

/* Work, in multiplications or so, that is worth sharing with another thread. */
#ifndef WHET_GRAIN
#define WHET_GRAIN 768000
#endif

/* Does part(args, first, end) for ranges that together are [0, units), on several threads if there
 * are any and the work, in multiplications or so, is worth waking them. */
void whet_share_work(void (*part)(const void *args, int32_t first, int32_t end), const void *args,
                     int32_t units, int64_t work);

#endif
