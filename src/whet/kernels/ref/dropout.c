/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* Four random words from a counter and a key: Philox 4x32 with ten rounds (Salmon et al., 2011). */
static void philox(uint32_t c[4], uint32_t key) {
    uint32_t k0 = key, k1 = 0;
    for (int32_t round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)c[0] * 0xD2511F53u, p1 = (uint64_t)c[2] * 0xCD9E8D57u;
        c[0] = (uint32_t)(p1 >> 32) ^ c[1] ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[3] = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

/* formula    y[i] = word < threshold ? 0 : x[i] * scale, word i % 4 of block (i / 4, site, step)
 * shapes     y[n], x[n], rng[2] = (seed, step)
 * aliasing   y = x
 * rounding   float; the choice is exact
 * workspace  none */
void whet_dropout_f32(float *y, const float *x, const int32_t *rng, int32_t n, int32_t site,
                      int32_t threshold, float scale) {
    for (int32_t i = 0; i < n; i += 4) {
        uint32_t word[4] = {(uint32_t)i / 4, (uint32_t)site, (uint32_t)rng[1], 0};
        philox(word, (uint32_t)rng[0]);
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
        uint32_t word[4] = {(uint32_t)i / 4, (uint32_t)site, (uint32_t)rng[1], 0};
        philox(word, (uint32_t)rng[0]);
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
