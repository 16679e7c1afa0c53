/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_COLUMNS_H
#define WHET_COLUMNS_H

/* Channels are processed in columns of a vector (v), half a vector (h) or a single one (s). A
 * kernel that runs down columns is written once, as a macro of the letter and the type. */

typedef float whet_one_t;

static inline whet_vec_t whet_clip_v(whet_vec_t x, float low, float high) {
    return whet_clip_vec(x, low, high);
}
static inline whet_half_t whet_clip_h(whet_half_t x, float low, float high) {
    return whet_clip_half(x, low, high);
}
static inline float whet_clip_s(float x, float low, float high) { return whet_clip(x, low, high); }

/* Does work_v, work_h or work_s(arguments) for each column of n channels; j is its first. */
#define WHET_COLUMNS(n, work, ...)                                                   \
    do {                                                                             \
        const int32_t n_ = (n);                                                      \
        int32_t j = 0;                                                               \
        for (; j + WHET_LANES <= n_; j += WHET_LANES) work##_v(__VA_ARGS__);         \
        for (; j + WHET_LANES / 2 <= n_; j += WHET_LANES / 2) work##_h(__VA_ARGS__); \
        for (; j < n_; j++) work##_s(__VA_ARGS__);                                   \
    } while (0)

#endif
