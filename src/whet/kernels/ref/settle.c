/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_kernels_i8.h"
#include "whet_random.h"

/* A NaN step is ignored. */
static inline float move_of(float move) { return move == move ? move : 0.0f; }

/* q - k, clamped to the range of q. Any k beyond these limits saturates it anyway. */
static inline int8_t lower_i8(int8_t q, float k) {
    const float next = (float)q - whet_clip(k, -256.0f, 256.0f);
    return (int8_t)whet_clip(next, -128.0f, 127.0f);
}

static inline int32_t lower_i32(int32_t q, float k) {
    const int64_t next = (int64_t)q - (int64_t)whet_clip(k, -8589934592.0f, 8589934592.0f);
    if (next < -WHET_MOST) return -WHET_MOST;
    return next > WHET_MOST ? WHET_MOST : (int32_t)next;
}

/* ---- Round to nearest. */

/* formula    q' = q - round(move), clamped to the range of q
 * shapes     next[n], q[n], move[n]
 * aliasing   next = q
 * rounding   ties to even; a NaN step is ignored
 * workspace  none */
void whet_settle_nearest_i8(int8_t *next, const int8_t *q, const float *move, int32_t n) {
    for (int32_t i = 0; i < n; i++) next[i] = lower_i8(q[i], rintf(move_of(move[i])));
}

/* The same for int32. */
void whet_settle_nearest_i32(int32_t *next, const int32_t *q, const float *move, int32_t n) {
    for (int32_t i = 0; i < n; i++) next[i] = lower_i32(q[i], rintf(move_of(move[i])));
}

/* ---- Stochastic rounding. */

/* floor(move + u) for a random u in [0, 1). */
static inline float floor_with(float move, uint32_t word) {
    const float whole = floorf(move), u = (float)(word >> 8) * (1.0f / 16777216.0f);
    return (move - whole) + u >= 1.0f ? whole + 1.0f : whole;
}

/* The body of both kernels, with the arguments they have in common. */
#define SETTLE_STOCHASTIC(lower)                                                      \
    for (int32_t i = 0; i < n; i += 4) {                                              \
        uint32_t word[4];                                                             \
        whet_random_words(word, i, site, rng);                                        \
        for (int32_t l = 0; l < whet_min(4, n - i); l++)                              \
            next[i + l] = lower(q[i + l], floor_with(move_of(move[i + l]), word[l])); \
    }

/* formula    q' = q - floor(move + u), clamped to the range of q; u = the top 24 bits of word i % 4
 *            of block (i / 4, site, step), / 2^24
 * shapes     next[n], q[n], move[n], rng[2] = (seed, step)
 * aliasing   next = q
 * rounding   that of the fraction of move plus u; a NaN step is ignored
 * workspace  none */
void whet_settle_stochastic_i8(int8_t *next, const int8_t *q, const float *move, const int32_t *rng,
                               int32_t n, int32_t site) {
    SETTLE_STOCHASTIC(lower_i8)
}

/* The same for int32. */
void whet_settle_stochastic_i32(int32_t *next, const int32_t *q, const float *move,
                                const int32_t *rng, int32_t n, int32_t site) {
    SETTLE_STOCHASTIC(lower_i32)
}

/* ---- Truncate. */

/* formula    q' = q - move, cut towards 0 and clamped to the range of q
 * shapes     next[n], q[n], move[n]
 * aliasing   next = q
 * rounding   the difference to float, then towards 0; a NaN step is ignored
 * workspace  none */
void whet_settle_truncate_i8(int8_t *next, const int8_t *q, const float *move, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        next[i] = (int8_t)whet_clip((float)q[i] - move_of(move[i]), -128.0f, 127.0f);
}

/* The same for int32, which is converted to float first. */
void whet_settle_truncate_i32(int32_t *next, const int32_t *q, const float *move, int32_t n) {
    for (int32_t i = 0; i < n; i++) next[i] = lower_i32(0, -truncf((float)q[i] - move_of(move[i])));
}

/* ---- With a carry. */

/* k = round(t), t = move + carry / size; *rest = the remainder, in units of 1 / size. An infinite
 * step leaves no remainder. */
static inline float carried(float *rest, float move, float carry, float size) {
    const float t = move_of(move) + carry / size, k = rintf(t), dropped = rintf((t - k) * size);
    *rest = dropped == dropped ? whet_clip(dropped, -size / 2.0f, size / 2.0f - 1.0f) : 0.0f;
    return k;
}

/* The body of the four kernels, with the arguments they have in common. */
#define SETTLE_CARRY(lower, carry_t, size)                                 \
    for (int32_t i = 0; i < n; i++) {                                      \
        float rest;                                                        \
        next[i] = lower(q[i], carried(&rest, move[i], (float)c[i], size)); \
        c_next[i] = (carry_t)rest;                                         \
    }

/* formula    q' = q - k and c' = round((t - k) * 2^8), both clamped to their range;
 *            t = move + c / 2^8, k = round(t)
 * shapes     next[n], c_next[n], q[n], move[n], c[n]
 * aliasing   next = q, c_next = c
 * rounding   t to float; ties to even; a NaN step is ignored, and an infinite one leaves no
 *            carry
 * workspace  none */
void whet_settle_carry_i8_i8(int8_t *next, int8_t *c_next, const int8_t *q, const float *move,
                             const int8_t *c, int32_t n) {
    SETTLE_CARRY(lower_i8, int8_t, 256.0f)
}

/* The same with 2^16. */
void whet_settle_carry_i8_i16(int8_t *next, int16_t *c_next, const int8_t *q, const float *move,
                              const int16_t *c, int32_t n) {
    SETTLE_CARRY(lower_i8, int16_t, 65536.0f)
}

/* The same for int32, with 2^8. */
void whet_settle_carry_i32_i8(int32_t *next, int8_t *c_next, const int32_t *q, const float *move,
                              const int8_t *c, int32_t n) {
    SETTLE_CARRY(lower_i32, int8_t, 256.0f)
}

/* The same for int32, with 2^16. */
void whet_settle_carry_i32_i16(int32_t *next, int16_t *c_next, const int32_t *q, const float *move,
                               const int16_t *c, int32_t n) {
    SETTLE_CARRY(lower_i32, int16_t, 65536.0f)
}

/* ---- With a float copy. */

/* m - move, clamped to [low, high]; NaN becomes low. */
static inline float moved(float m, float move, float low, float high) {
    const float next = m - move_of(move), raised = next > low ? next : low;
    return raised < high ? raised : high;
}

/* formula    m' = m - move, clamped to the range of q;  q' = round(m')
 * shapes     next[n], m_next[n], move[n], m[n]; q[n] is not read
 * aliasing   next = q, m_next = m
 * rounding   float, then ties to even; a NaN step is ignored
 * workspace  none */
void whet_settle_master_i8(int8_t *next, float *m_next, const int8_t *q, const float *move,
                           const float *m, int32_t n) {
    (void)q;
    for (int32_t i = 0; i < n; i++) {
        m_next[i] = moved(m[i], move[i], -128.0f, 127.0f);
        next[i] = (int8_t)rintf(m_next[i]);
    }
}

/* The same for int32, up to the largest float within its range. */
void whet_settle_master_i32(int32_t *next, float *m_next, const int32_t *q, const float *move,
                            const float *m, int32_t n) {
    (void)q;
    for (int32_t i = 0; i < n; i++) {
        m_next[i] = moved(m[i], move[i], -(float)WHET_MOST, (float)WHET_MOST);
        next[i] = (int32_t)rintf(m_next[i]);
    }
}
