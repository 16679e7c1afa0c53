/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_max_pool.h"
#include "whet_threads.h"

/* A window is a list of pixels, processed for a vector of channels at a time. This is for small
 * windows and for indices of which a vector fills whole bytes; others are processed one by one. */

typedef struct {
    int32_t at[PLACES], place[PLACES]; /* of a pixel: its offset in the image, and its number */
    int32_t count;
} list_t;

static list_t list_of(const whet_pool2d_t *d, int32_t p, int32_t q) {
    const whet_span_t rows = whet_pool_rows(d, p), cols = whet_pool_cols(d, q);
    const int32_t width = d->adaptive ? cols.taps : d->kw;
    list_t v = {.count = rows.taps * cols.taps};
    for (int32_t k = 0; k < v.count; k++) {
        const int32_t r = rows.cut + k / cols.taps, s = cols.cut + k % cols.taps;
        v.at[k] = pixel(d, rows, cols, 0, r, s);
        v.place[k] = r * width + s;
    }
    return v;
}

static int32_t is_fast(int32_t bits, const whet_pool2d_t *d) {
    return (bits == 2 || bits == 4) && d->c % WHET_LANES == 0 &&
           __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__;
}

/* The indices of a vector, PIECE at a time: as the bytes of a word, then packed. */
enum { PIECE = WHET_LANES < 8 ? WHET_LANES : 8 };

typedef uint8_t bytes_t __attribute__((vector_size(WHET_LANES)));

static inline uint64_t together(uint64_t v, const int32_t bits) {
    if (bits == 2) {
        v = (v | v >> 6) & UINT64_C(0x000f000f000f000f);
        v = (v | v >> 12) & UINT64_C(0x000000ff000000ff);
        return v | v >> 24;
    }
    v = (v | v >> 4) & UINT64_C(0x00ff00ff00ff00ff);
    v = (v | v >> 8) & UINT64_C(0x0000ffff0000ffff);
    return v | v >> 16;
}

static inline uint64_t apart(uint64_t v, const int32_t bits) {
    if (bits == 2) {
        v = (v | v << 24) & UINT64_C(0x000000ff000000ff);
        v = (v | v << 12) & UINT64_C(0x000f000f000f000f);
        return (v | v << 6) & UINT64_C(0x0303030303030303);
    }
    v = (v | v << 16) & UINT64_C(0x0000ffff0000ffff);
    v = (v | v << 8) & UINT64_C(0x00ff00ff00ff00ff);
    return (v | v << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
}

static inline void pack(uint8_t *index, whet_bits_t places, const int32_t bits) {
    const bytes_t narrow = __builtin_convertvector(places, bytes_t);
    uint8_t bytes[WHET_LANES];
    memcpy(bytes, &narrow, sizeof bytes);
    for (int32_t l = 0; l < WHET_LANES; l += PIECE) {
        uint64_t word = 0;
        memcpy(&word, bytes + l, PIECE);
        word = together(word, bits);
        memcpy(index + l * bits / 8, &word, (size_t)(PIECE * bits / 8));
    }
}

static inline whet_bits_t unpack(const uint8_t *index, const int32_t bits) {
    uint8_t bytes[WHET_LANES];
    bytes_t narrow;
    for (int32_t l = 0; l < WHET_LANES; l += PIECE) {
        uint64_t word = 0;
        memcpy(&word, index + l * bits / 8, (size_t)(PIECE * bits / 8));
        word = apart(word, bits);
        memcpy(bytes + l, &word, PIECE);
    }
    memcpy(&narrow, bytes, sizeof narrow);
    return __builtin_convertvector(narrow, whet_bits_t);
}

typedef struct {
    const whet_pool2d_t *d;
    float *y;
    uint8_t *index;
    const float *x;
    int32_t bits;
} pool_t;

#define IS_NAN(v) ((v) != (v))
POOL(pool_f32, window_f32, float, IS_NAN)

/* Output pixel i: NaN, which is not equal to itself, wins. */
static inline void largest(const pool_t *a, const list_t *v, int32_t i, const int32_t bits) {
    const int32_t c = a->d->c;
    const float *image = a->x + i / (a->d->p * a->d->q) * a->d->h * a->d->w * c;
    for (int32_t j = 0; j < c; j += WHET_LANES) {
        whet_vec_t best = whet_load(image + v->at[0] + j);
        whet_bits_t place = (whet_bits_t){0} + v->place[0];
        for (int32_t k = 1; k < v->count; k++) {
            const whet_vec_t u = whet_load(image + v->at[k] + j);
            const whet_bits_t better = (u > best) | (u != u);
            best = (whet_vec_t)(((whet_bits_t)u & better) | ((whet_bits_t)best & ~better));
            place = (v->place[k] & better) | (place & ~better);
        }
        whet_store(a->y + i * c + j, best);
        pack(a->index + (i * c + j) / (8 / bits), place, bits);
    }
}

/* Rows [first, end) of the result. */
static void some_rows(const void *args, int32_t first, int32_t end) {
    const pool_t *a = args;
    const whet_pool2d_t *d = a->d;
    for (int32_t i = first * d->q; i < end * d->q; i++) {
        const list_t v = list_of(d, i / d->q % d->p, i % d->q);
        if (a->bits == 2)
            largest(a, &v, i, 2);
        else
            largest(a, &v, i, 4);
    }
}

/* formula    y = max of x over the window;  index = the place of the first maximum in it
 * shapes     y[n,p,q,c], x[n,h,w,c], index[(n*p*q*c * bits + 7) / 8]; its last bits, if left over,
 *            are 0
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_max_pool2d_f32(float *y, uint8_t *index, const float *x, int32_t bits,
                         const whet_pool2d_t *d) {
    const pool_t a = {d, y, index, x, bits};
    if (is_fast(bits, d))
        whet_share_work(some_rows, &a, d->n * d->p, (int64_t)d->n * d->p * d->q * d->c << bits);
    else
        pool_f32(y, index, x, bits, d);
}

/* ---- The gradient. */

typedef struct {
    const whet_pool2d_t *d;
    float *dx;
    const float *dy;
    const uint8_t *index;
    int32_t bits;
} spread_t;

/* Adds output pixel i, channels from j on, to the pixels of its window. */
static inline void spread(const spread_t *a, const list_t *v, int32_t i, int32_t j,
                          const int32_t bits) {
    const int32_t c = a->d->c, at = i * c + j;
    float *image = a->dx + i / (a->d->p * a->d->q) * a->d->h * a->d->w * c + j;
    const whet_vec_t dy = whet_load(a->dy + at);
    const whet_bits_t place = unpack(a->index + at / (8 / bits), bits);
    for (int32_t k = 0; k < v->count; k++) {
        float *to = image + v->at[k];
        whet_store(to, whet_load(to) + (whet_vec_t)((whet_bits_t)dy & (place == v->place[k])));
    }
}

/* Channels [first, end), in vectors: windows overlap in pixels, but not in channels. */
static void some_channels(const void *args, int32_t first, int32_t end) {
    const spread_t *a = args;
    const whet_pool2d_t *d = a->d;
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const list_t v = list_of(d, i / d->q % d->p, i % d->q);
        for (int32_t j = first * WHET_LANES; j < end * WHET_LANES; j += WHET_LANES)
            if (a->bits == 2)
                spread(a, &v, i, j, 2);
            else
                spread(a, &v, i, j, 4);
    }
}

/* formula    dx = 0, then dx at the place named by index += dy
 * shapes     dx[n,h,w,c], dy[n,p,q,c], index[(n*p*q*c * bits + 7) / 8]
 * aliasing   none
 * rounding   added window by window
 * workspace  none */
void whet_max_pool2d_dx_f32(float *dx, const float *dy, const uint8_t *index, int32_t bits,
                            const whet_pool2d_t *d) {
    const spread_t a = {d, dx, dy, index, bits};
    if (is_fast(bits, d)) {
        whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
        whet_share_work(some_channels, &a, d->c / WHET_LANES,
                        (int64_t)d->n * d->p * d->q * d->c << bits);
    } else {
        max_pool_dx(dx, dy, index, bits, d);
    }
}
