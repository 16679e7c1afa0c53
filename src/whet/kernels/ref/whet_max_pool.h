/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_MAX_POOL_H
#define WHET_MAX_POOL_H

/* Indices of `bits` bits each are packed from the low end. Both passes traverse them in order, so
 * no address is computed from a product that may overflow. */

typedef struct {
    uint32_t held; /* pending bits, the next one lowest */
    int32_t count; /* number of pending bits */
} pending_t;

static inline void put(uint8_t **to, pending_t *p, int32_t value, int32_t bits) {
    p->held |= (uint32_t)value << p->count;
    for (p->count += bits; p->count >= 8; p->count -= 8) {
        *(*to)++ = (uint8_t)p->held;
        p->held >>= 8;
    }
}

static inline int32_t get(const uint8_t **from, pending_t *p, int32_t bits) {
    for (; p->count < bits; p->count += 8) p->held |= (uint32_t)*(*from)++ << p->count;
    const uint32_t value = p->held & ((UINT32_C(1) << bits) - 1);
    p->held >>= bits;
    p->count -= bits;
    return (int32_t)value;
}

/* Defines `window`: the maxima of n <= WHET_TILE channels of a window `width` wide; x is its image.
 * NaN, which `odd` detects, wins. Also defines `pool`, which does that for every window. */
#define POOL(pool, window, T, odd)                                                             \
    static void window(T *best, int32_t *place, const T *x, const whet_pool2d_t *d,            \
                       whet_span_t rows, whet_span_t cols, int32_t width, int32_t n) {         \
        const T *first = x + (rows.first * d->w + cols.first) * d->c;                          \
        for (int32_t l = 0; l < n; l++) {                                                      \
            best[l] = first[l];                                                                \
            place[l] = rows.cut * width + cols.cut;                                            \
        }                                                                                      \
        for (int32_t r = 0; r < rows.taps; r++)                                                \
            for (int32_t s = 0; s < cols.taps; s++) {                                          \
                const int32_t row = rows.first + r * rows.step;                                \
                const int32_t here = (rows.cut + r) * width + cols.cut + s;                    \
                const T *u = x + (row * d->w + cols.first + s * cols.step) * d->c;             \
                for (int32_t l = 0; l < n; l++) {                                              \
                    const int32_t better = (u[l] > best[l]) | odd(u[l]);                       \
                    best[l] = better ? u[l] : best[l];                                         \
                    place[l] = better ? here : place[l];                                       \
                }                                                                              \
            }                                                                                  \
    }                                                                                          \
    static void pool(T *y, uint8_t *index, const T *x, int32_t bits, const whet_pool2d_t *d) { \
        pending_t pending = {0, 0};                                                            \
        for (int32_t i = 0; i < d->n * d->p * d->q; i++) {                                     \
            const whet_span_t rows = whet_pool_rows(d, i / d->q % d->p);                       \
            const whet_span_t cols = whet_pool_cols(d, i % d->q);                              \
            const int32_t width = d->adaptive ? cols.taps : d->kw;                             \
            const T *image = x + i / (d->p * d->q) * d->h * d->w * d->c;                       \
            for (int32_t c = 0; c < d->c; c += WHET_TILE) {                                    \
                const int32_t n = whet_min(d->c - c, WHET_TILE);                               \
                T best[WHET_TILE];                                                             \
                int32_t place[WHET_TILE];                                                      \
                window(best, place, image + c, d, rows, cols, width, n);                       \
                for (int32_t l = 0; l < n; l++) y[i * d->c + c + l] = best[l];                 \
                for (int32_t l = 0; l < n; l++) put(&index, &pending, place[l], bits);         \
            }                                                                                  \
        }                                                                                      \
        if (pending.count > 0) *index = (uint8_t)pending.held;                                 \
    }

enum { PLACES = 64 };

/* Offset in dx of position (r,s) of a window. */
static inline int32_t pixel(const whet_pool2d_t *d, whet_span_t rows, whet_span_t cols,
                            int32_t image, int32_t r, int32_t s) {
    const int32_t row = rows.first + (r - rows.cut) * rows.step;
    return ((image + row) * d->w + cols.first + (s - cols.cut) * cols.step) * d->c;
}

/* dx = 0, then dx at the position in index += dy, window by window. */
static inline void max_pool_dx(float *dx, const float *dy, const uint8_t *index, int32_t bits,
                               const whet_pool2d_t *d) {
    pending_t pending = {0, 0};
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_pool_rows(d, i / d->q % d->p);
        const whet_span_t cols = whet_pool_cols(d, i % d->q);
        const int32_t width = d->adaptive ? cols.taps : d->kw;
        const int32_t image = i / (d->p * d->q) * d->h;
        int32_t at[PLACES]; /* offsets for the positions of a small window, which repeat often */
        for (int32_t k = 0; k < whet_min(width * (rows.cut + rows.taps), PLACES); k++)
            at[k] = pixel(d, rows, cols, image, k / width, k % width);
        for (int32_t c = 0; c < d->c; c++) {
            const int32_t k = get(&index, &pending, bits);
            const int32_t to =
                k < PLACES ? at[k] : pixel(d, rows, cols, image, k / width, k % width);
            dx[to + c] += dy[i * d->c + c];
        }
    }
}

#endif
