/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_RANDOM_H
#define WHET_RANDOM_H

#include <stdint.h>

/* Four random words from a counter and a key: Philox 4x32 with ten rounds (Salmon et al., 2011). */
static inline void whet_philox(uint32_t c[4], uint32_t key) {
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

/* word[4] = random words i .. i + 3 of a site, for i divisible by 4; rng = (seed, step). */
static inline void whet_random_words(uint32_t word[4], int32_t i, int32_t site,
                                     const int32_t *rng) {
    word[0] = (uint32_t)i / 4;
    word[1] = (uint32_t)site;
    word[2] = (uint32_t)rng[1];
    word[3] = 0;
    whet_philox(word, (uint32_t)rng[0]);
}

#endif
