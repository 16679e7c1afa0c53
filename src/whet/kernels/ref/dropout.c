/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_random.h"

/* formula    y[i] = word < threshold ? 0 : x[i] * scale, word i % 4 of block (i / 4, site, step)
 * shapes     y[n], x[n], rng[2] = (seed, step)
 * aliasing   y = x
 * rounding   float; the choice is exact
 * workspace  none */
void whet_dropout_f32(float *y, const float *x, const int32_t *rng, int32_t n, int32_t site,
                      int32_t threshold, float scale) {
    for (int32_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        whet_random_words(word, i, site, rng);
        for (int32_t l = 0; l < whet_min(4, n - i); l++)
            y[i + l] = word[l] < (uint32_t)threshold ? 0.0f : x[i + l] * scale;
    }
}

/* formula    y[i] = the upper 24 bits of word i % 4 of block (i / 4, site, step), / 2^24
 * shapes     y[n], rng[2] = (seed, step)
 * aliasing   none
 * rounding   exact
 * workspace  none */
void whet_uniform_f32(float *y, const int32_t *rng, int32_t n, int32_t site) {
    for (int32_t i = 0; i < n; i += 4) {
        uint32_t word[4];
        whet_random_words(word, i, site, rng);
        for (int32_t l = 0; l < whet_min(4, n - i); l++)
            y[i + l] = (float)(word[l] >> 8) * (1.0f / 16777216.0f);
    }
}

/* formula    next = (seed, step + 1)
 * shapes     next[2], rng[2]
 * aliasing   next = rng
 * rounding   wraps around
 * workspace  none */
void whet_rng_next(int32_t *next, const int32_t *rng) {
    next[0] = rng[0];
    next[1] = (int32_t)((uint32_t)rng[1] + 1u);
}
