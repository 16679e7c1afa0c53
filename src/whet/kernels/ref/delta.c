/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_delta.h"

#include "whet_gaussian.h"
#include "whet_inline.h"

enum { HEADER = 36, BINS = 256, MAGIC = 0x50554857, VERSION = 1 }; /* "WHUP", little-endian */

/* ---- Noise: ChaCha20 (RFC 8439), whose words the receiver cannot guess, and a table. */

static inline uint32_t rotated(uint32_t x, int32_t n) { return x << n | x >> (32 - n); }

static void quarter_round(uint32_t s[16], int32_t a, int32_t b, int32_t c, int32_t d) {
    s[a] += s[b], s[d] = rotated(s[d] ^ s[a], 16);
    s[c] += s[d], s[b] = rotated(s[b] ^ s[c], 12);
    s[a] += s[b], s[d] = rotated(s[d] ^ s[a], 8);
    s[c] += s[d], s[b] = rotated(s[b] ^ s[c], 7);
}

static uint32_t read32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void random_block(uint32_t words[16], const uint8_t *key, uint32_t block, uint32_t round) {
    uint32_t start[16] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};
    for (int32_t i = 0; i < 8; i++) start[4 + i] = read32(key + 4 * i);
    start[12] = block;
    start[13] = round;
    memcpy(words, start, sizeof start);
    for (int32_t i = 0; i < 10; i++) {
        for (int32_t k = 0; k < 4; k++) quarter_round(words, k, 4 + k, 8 + k, 12 + k);
        for (int32_t k = 0; k < 4; k++)
            quarter_round(words, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4);
    }
    for (int32_t i = 0; i < 16; i++) words[i] += start[i];
}

/* A discrete Gaussian from 64 random bits: one for the sign, the others for the magnitude. */
static int32_t gaussian(uint64_t bits) {
    int32_t low = 0, high = WHET_GAUSSIAN_COUNT;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (bits >> 1 < whet_gaussian[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return bits & 1 ? -low : low;
}

/* ---- The coordinates, one after the other. They are computed anew in every pass over them, so
 * that an update takes no memory. */

typedef struct {
    const whet_sent_t *array;
    const whet_send_t *send;
    const uint8_t *key;
    float factor;
    uint32_t round;
    int32_t i, drawn; /* in the array; in all */
    uint32_t words[16];
} walk_t;

static float number(const void *data, whet_sent_kind_t kind, int32_t i) {
    switch (kind) {
    case WHET_SENT_F32:
        return ((const float *)data)[i];
    case WHET_SENT_I8:
        return (float)((const int8_t *)data)[i];
    case WHET_SENT_I16:
        return (float)((const int16_t *)data)[i];
    default:
        return (float)((const int32_t *)data)[i];
    }
}

/* By how much a parameter differs from its base. */
static float change(const whet_sent_t *a, int32_t i) {
    float x = number(a->now, a->kind, i) - number(a->base, a->kind, i);
    if (a->carry) {
        const float part = a->carry_kind == WHET_SENT_I8 ? 1.0f / 256 : 1.0f / 65536;
        const whet_sent_kind_t kind = a->carry_kind;
        x -= (number(a->carry, kind, i) - number(a->carry_base, kind, i)) * part;
    }
    return a->step ? x * a->step[i / a->inner % a->channels] : x;
}

static int32_t noise(walk_t *w) {
    const int32_t at = w->drawn % 8 * 2;
    if (at == 0) random_block(w->words, w->key, (uint32_t)w->drawn / 8, w->round);
    w->drawn++;
    return gaussian((uint64_t)w->words[at] | (uint64_t)w->words[at + 1] << 32);
}

/* The next coordinate as it is sent, or in units of the grid if there is one. Cutting it to the
 * grid towards zero does not make it longer. */
static float next(walk_t *w) {
    while (w->i == w->array->count) w->array++, w->i = 0;
    const float x = change(w->array, w->i++) * w->factor;
    if (!(w->send->grid > 0.0f)) return x;
    const int32_t code = (int32_t)(x / w->send->grid) + noise(w);
    return whet_clip((float)code, -32767.0f, 32767.0f);
}

static uint32_t size_of(float x) { return whet_bits_of(x) & 0x7fffffffu; }

/* What to multiply an update by so that its norm is at most `clip`; NaN if it is not finite. */
static float clip_factor(const whet_sent_t *arrays, const whet_send_t *send) {
    double sum = 0.0; /* products of two floats are exact */
    walk_t w = {.array = arrays, .send = send};
    for (int32_t k = 0; k < send->n; k++) {
        while (w.i == w.array->count) w.array++, w.i = 0;
        const double x = (double)change(w.array, w.i++);
        sum += x * x;
    }
    const float norm = sqrtf((float)sum);
    if (!whet_is_finite(norm)) return NAN;
    if (!(send->clip > 0.0f) || norm <= send->clip * 0.99999f) return 1.0f;
    return send->clip * 0.99999f / norm; /* below it, whatever rounding does */
}

/* The size of the k-th largest coordinate, digit by digit, and how many of that size are sent. */
static uint32_t threshold(walk_t start, int32_t n, int32_t k, int32_t *equal) {
    uint32_t found = 0;
    for (int32_t shift = 24; shift >= 0; shift -= 8) {
        int32_t counts[BINS] = {0}, digit = BINS - 1;
        walk_t w = start;
        for (int32_t i = 0; i < n; i++) {
            const uint32_t size = size_of(next(&w));
            if (shift == 24 || size >> (shift + 8) == found >> (shift + 8))
                counts[size >> shift & (BINS - 1)]++;
        }
        while (counts[digit] < k) k -= counts[digit--];
        found |= (uint32_t)digit << shift;
    }
    *equal = k;
    return found;
}

/* ---- Bytes. */

static uint8_t *put(uint8_t *p, uint32_t x, int32_t bytes) {
    for (int32_t i = 0; i < bytes; i++) *p++ = (uint8_t)(x >> 8 * i);
    return p;
}

static uint8_t *put_gap(uint8_t *p, uint32_t x) {
    for (; x >= 128; x >>= 7) *p++ = (uint8_t)(x | 128);
    *p++ = (uint8_t)x;
    return p;
}

/* The nearest half-precision number, ties to even; what is too large becomes the largest. */
static uint32_t half(float x) {
    const uint32_t sign = whet_bits_of(x) >> 16 & 0x8000u, size = size_of(x);
    if (size >= 0x477ff000u) return sign | 0x7bffu;
    if (size < 0x38800000u) { /* subnormal: multiples of 2^-24 */
        const float up = whet_from_bits(size) * 16777216.0f + 8388608.0f;
        return sign | (whet_bits_of(up) & 0x7fffu);
    }
    return sign | ((size - 0x38000000u + 0xfffu + (size >> 13 & 1)) >> 13);
}

static uint8_t *put_value(uint8_t *p, float x, whet_coding_t coding, float scale) {
    switch (coding) {
    case WHET_CODING_F32:
        return put(p, whet_bits_of(x), 4);
    case WHET_CODING_F16:
        return put(p, half(x), 2);
    case WHET_CODING_I8: {
        const float code = x / scale;
        return put(p, (uint32_t)(int32_t)(code < 0.0f ? code - 0.5f : code + 0.5f), 1);
    }
    default:
        return put(p, (uint32_t)(int32_t)x, 2);
    }
}

static float scale_of(walk_t w, const whet_send_t *send) {
    float largest = 0.0f;
    if (send->grid > 0.0f) return send->grid;
    if (send->coding != WHET_CODING_I8) return 1.0f;
    for (int32_t i = 0; i < send->n; i++) {
        const float x = whet_from_bits(size_of(next(&w)));
        largest = x > largest ? x : largest;
    }
    const float scale = largest / 127.0f, least = 1.17549435e-38f; /* smaller ones are coarse */
    if (!(largest > 0.0f)) return 1.0f;
    return scale < least ? least : scale;
}

/* formula    buffer = the update of `arrays`, as `send` says; returns the bytes that takes
 * shapes     buffer[size], arrays[count], key[32]
 * aliasing   none
 * rounding   exact noise; the norm in double, scaled coordinates in float
 * workspace  some 1,300 bytes of stack */
size_t whet_delta(void *buffer, size_t size, const whet_sent_t *arrays, int32_t count,
                  const whet_send_t *send, uint32_t round, const uint8_t *key) {
    (void)count;
    if (!buffer || size < send->most) return send->most;
    if (send->grid > 0.0f && !key) return 0; /* address 0 of a microcontroller can be read */
    const float factor = clip_factor(arrays, send);
    if (!whet_is_finite(factor)) return 0;
    const walk_t start = {
        .array = arrays, .send = send, .key = key, .factor = factor, .round = round};
    const float scale = scale_of(start, send);
    const int32_t sparse = send->k < send->n;
    int32_t equal = send->n;
    const uint32_t least = sparse ? threshold(start, send->n, send->k, &equal) : 0;

    uint8_t *const bytes = buffer;
    uint8_t *p = bytes + HEADER;
    for (int32_t pass = sparse ? 0 : 1; pass < 2; pass++) { /* the gaps, then the values */
        walk_t w = start;
        int32_t after = 0, left = equal;
        for (int32_t i = 0; i < send->n; i++) {
            const float x = next(&w);
            const uint32_t is = size_of(x);
            if (is < least || (is == least && left-- <= 0)) continue;
            p = pass ? put_value(p, x, send->coding, scale) : put_gap(p, (uint32_t)(i - after));
            after = i + 1;
        }
    }
    const uint32_t words[] = {MAGIC,
                              VERSION,
                              send->model,
                              round,
                              0,
                              (uint32_t)send->n,
                              (uint32_t)send->k,
                              (uint32_t)send->coding | (uint32_t)sparse << 8,
                              whet_bits_of(scale)};
    for (int32_t i = 0; i < HEADER / 4; i++) put(bytes + 4 * i, words[i], 4);
    put(bytes + 16, whet_crc32(bytes + 20, (size_t)(p - bytes) - 20, 0), 4);
    return (size_t)(p - bytes);
}
