/* SPDX-License-Identifier: Apache-2.0 */
/* The update that a device sends: what its parameters changed by since a base. */
#ifndef WHET_DELTA_H
#define WHET_DELTA_H

#include <stddef.h>
#include <stdint.h>

typedef enum { WHET_SENT_F32, WHET_SENT_I8, WHET_SENT_I16, WHET_SENT_I32 } whet_sent_kind_t;

/* An array of parameters, its base and, of integers, the fractions that
 * rounding left out of both (or NULL): the parameter is now - carry / 2^8 or 2^16. Element i
 * is in units of step[i / inner % channels], or of 1 if that is NULL. */
typedef struct {
    const void *now, *base, *carry, *carry_base;
    const float *step;
    int32_t count, channels, inner;
    whet_sent_kind_t kind, carry_kind;
} whet_sent_t;

typedef enum {
    WHET_CODING_F32,
    WHET_CODING_F16,
    WHET_CODING_I8, /* with a scale */
    WHET_CODING_I16 /* with a scale */
} whet_coding_t;

/* How an update of n coordinates is sent: scaled down to a norm of `clip` if that is above 0; as
 * multiples of `grid` with noise of 16 of them, if that is above 0; the k largest alone. `most` is
 * the largest number of bytes that this can take. */
typedef struct {
    uint32_t model;
    int32_t n, k;
    float clip, grid;
    whet_coding_t coding;
    uint32_t most;
} whet_send_t;

/* Header, index gaps if k < n, values: see docs/gateway.md for the format. Returns the bytes
 * written; `most`, having written nothing, if the buffer is NULL or smaller than that; 0 if a
 * parameter is not finite or the key is missing. The key is secret, and may be NULL without noise.
 * The same key and round must not be used for two different updates. */
size_t whet_delta(void *buffer, size_t size, const whet_sent_t *arrays, int32_t count,
                  const whet_send_t *send, uint32_t round, const uint8_t *key);

#endif
