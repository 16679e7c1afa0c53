/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

#include "whet_dot.h"
#include "whet_threads.h"

/* Rows of the image are copied, a block of channels wide, to a ring buffer with as many rows as the
 * window is high, padded with the zero point. There, four neighbouring pixels are interleaved, so
 * that the taps of a channel are in one lane, and multiplied by as many taps at a time. Interleaved
 * data serves several outputs: each has its taps shifted accordingly. Few channels are folded:
 * neighbouring pixels fill a vector together. */

enum {
    RING = 96 << 10,    /* bytes */
    WEIGHTS = 48 << 10, /* bytes of shifted taps */
    LINES = 64,         /* rows of a window */
    MOST = 4            /* outputs computed together */
};

typedef struct {
    const whet_conv2d_t *d;
    int32_t *sums; /* the result is either int32 sums, */
    int8_t *y;     /* or their int8 values */
    uint8_t *bits;
    const int8_t *x, *w;
    const int32_t *b;
    const float *scale;
    int32_t zero;
    whet_range8_t range;
    int32_t outputs, groups; /* outputs computed together, and the groups of four pixels they
                              * read */
    int32_t fold;            /* pixels in a vector */
    int32_t high, unit;      /* rows that a window spans, and the minimum rows of y per thread */
} layer_t;

/* A block of channels, and the current columns of y. */
typedef struct {
    const layer_t *l;
    int32_t c, count;    /* first channel, and how many */
    int32_t q, q_end;    /* of y */
    int32_t left, width; /* columns of x in the ring, */
    int32_t pixel;       /* of so many bytes */
    int8_t *ring;
    int8_t *weights;
    int32_t bias[64];
    float scale[64];
} block_t;

/* Channel of lane l of vector v. */
static inline int32_t channel(int32_t v, int32_t l) { return 16 * (l / 4) + 4 * v + l % 4; }

/* What happens to sums. */
enum { KEEP, NARROW, NARROW_WITH_BITS };

#define ALONG(N, outputs, folded)                        \
    if (l->sums != NULL)                                 \
        along_##N(a, line, at, outputs, folded, KEEP);   \
    else if (l->bits == NULL)                            \
        along_##N(a, line, at, outputs, folded, NARROW); \
    else                                                 \
        along_##N(a, line, at, outputs, folded, NARROW_WITH_BITS);

#define BLOCKS(N)                                                                                  \
    /* Row of x -> ring. */                                                                        \
    static void fetch_##N(const block_t *a, int32_t image, int32_t row) {                          \
        const layer_t *l = a->l;                                                                   \
        const whet_conv2d_t *d = l->d;                                                             \
        const int32_t flip = WHET_FLIP ? (int32_t)0x80808080u : 0;                                 \
        const int32_t slot = (row + l->high * (1 + d->ph / l->high)) % l->high;                    \
        int8_t *to = a->ring + slot * a->width * a->pixel;                                         \
        const int8_t *from = l->x + (image * d->h + row) * d->w * d->c + a->c;                     \
        whet_ints_##N zero;                                                                        \
        memset(&zero, l->zero, sizeof zero);                                                       \
        zero ^= flip;                                                                              \
        const int32_t there = row >= 0 && row < d->h;                                              \
        const int32_t begin = there ? whet_min(a->left < 0 ? -a->left : 0, a->width) : a->width;   \
        const int32_t stop = whet_min(d->w - a->left, a->width);                                   \
        from += (a->left + begin) * d->c;                                                          \
        int32_t j = 0;                                                                             \
        if (l->fold > 1) {                                                                         \
            const int32_t size = a->width * d->c, first = begin * d->c, end = stop * d->c;         \
            for (; j < size; j += N) whet_store_##N(to + j, zero, whet_min(size - j, N));          \
            for (j = first; j < end; j += N, from += N) {                                          \
                const int32_t n = whet_min(end - j, N);                                            \
                whet_store_##N(to + j, whet_load_##N(from, n) ^ flip, n);                          \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        for (; j < begin; j++) memcpy(to + j * N, &zero, N);                                       \
        for (; j < stop; j++, from += d->c) {                                                      \
            const whet_ints_##N v = whet_load_##N(from, a->count) ^ flip;                          \
            memcpy(to + j * N, &v, N);                                                             \
        }                                                                                          \
        for (; j < a->width; j++) memcpy(to + j * N, &zero, N);                                    \
    }                                                                                              \
                                                                                                   \
    /* The weights of a tap, repeated for every pixel of a vector. */                              \
    static inline whet_ints_##N load_##N(const int8_t *w, int32_t count, int32_t fold) {           \
        if (fold == 1) return whet_load_##N(w, count);                                             \
        int8_t folded[N];                                                                          \
        whet_ints_##N v;                                                                           \
        for (int32_t i = 0; i < N; i += 8) memcpy(folded + i, w + (i & (count - 1)), 8);           \
        memcpy(&v, folded, N);                                                                     \
        return v;                                                                                  \
    }                                                                                              \
                                                                                                   \
    /* Shifted taps, mixed as the pixels will be; bias and scale in the order of the lanes, with \
     * what flipping and the zero point add to every sum taken from the bias. */ \
    static void prepare_##N(block_t *a) {                                                          \
        const layer_t *l = a->l;                                                                   \
        const whet_conv2d_t *d = l->d;                                                             \
        const whet_ints_##N none = {0}, ones = none + 0x01010101;                                  \
        whet_ints_##N sum[4] = {none, none, none, none};                                           \
        const int32_t count = a->count, fold = l->fold;                                            \
        int8_t *to = a->weights;                                                                   \
        for (int32_t r = 0; r < d->kh; r++)                                                        \
            for (int32_t g = 0; g < l->groups; g++)                                                \
                for (int32_t b = 0; b < l->outputs; b++, to += 4 * N) {                            \
                    whet_ints_##N tap[4], mixed[4];                                                \
                    for (int32_t e = 0; e < 4; e++) {                                              \
                        const int32_t s = 4 * g + e - b * d->sw;                                   \
                        const int8_t *w = l->w + (r * d->kw + s) * d->c + a->c;                    \
                        tap[e] = none;                                                             \
                        if (s >= 0 && s < d->kw) tap[e] = load_##N(w, count, fold);                \
                    }                                                                              \
                    whet_mix_##N(mixed, tap[0], tap[1], tap[2], tap[3]);                           \
                    memcpy(to, mixed, sizeof mixed);                                               \
                    for (int32_t v = 0; v < 4 && b == 0; v++)                                      \
                        sum[v] = whet_dot_##N(sum[v], ones, mixed[v]);                             \
                }                                                                                  \
        int32_t bias[N] = {0};                                                                     \
        float scale[N] = {0.0f};                                                                   \
        for (int32_t i = 0; i < fold * count; i += count) {                                        \
            if (l->b) memcpy(bias + i, l->b + a->c, (size_t)count * sizeof *bias);                 \
            if (l->scale) memcpy(scale + i, l->scale + a->c, (size_t)count * sizeof *scale);       \
        }                                                                                          \
        for (int32_t v = 0; v < 4; v++) {                                                          \
            for (int32_t j = 0; j < N / 16; j++) {                                                 \
                memcpy(a->bias + v * (N / 4) + 4 * j, bias + 16 * j + 4 * v, 16);                  \
                memcpy(a->scale + v * (N / 4) + 4 * j, scale + 16 * j + 4 * v, 16);                \
            }                                                                                      \
            whet_words_##N from;                                                                   \
            memcpy(&from, a->bias + v * (N / 4), N);                                               \
            from -= (whet_words_##N)sum[v] * (uint32_t)(WHET_FLIP + l->zero);                      \
            memcpy(a->bias + v * (N / 4), &from, N);                                               \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Conversion of sums, in registers. */                                                        \
    typedef struct {                                                                               \
        whet_words_##N bias[4];                                                                    \
        whet_reals_##N scale[4];                                                                   \
        whet_range8_t range;                                                                       \
        int8_t *y;                                                                                 \
        uint8_t *bits;                                                                             \
    } finish_##N##_t;                                                                              \
                                                                                                   \
    static inline finish_##N##_t ending_##N(const block_t *a) {                                    \
        finish_##N##_t f = {.range = a->l->range, .bits = a->l->bits};                             \
        f.y = a->l->y;                                                                             \
        memcpy(f.bias, a->bias, sizeof f.bias);                                                    \
        memcpy(f.scale, a->scale, sizeof f.scale);                                                 \
        return f;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static void keep_##N(const block_t *a, const whet_ints_##N *sum, int32_t at, int32_t n) {      \
        for (int32_t i = 0; i < N; i++) {                                                          \
            const int32_t v = i / (N / 4), l = i % (N / 4), c = channel(v, l);                     \
            const uint32_t total = (uint32_t)sum[v][l] + (uint32_t)a->bias[i];                     \
            if (c < n) a->l->sums[at + c] = (int32_t)total;                                        \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Four vectors of sums become n channels of a pixel, or of neighbouring ones. */              \
    static inline __attribute__((always_inline)) void finish_##N(                                  \
        const finish_##N##_t *f, const whet_ints_##N *sum, int32_t at, int32_t n,                  \
        const int32_t with_bits) {                                                                 \
        whet_ints_##N y[4], beyond[4];                                                             \
        _Pragma("GCC unroll 4") for (int32_t v = 0; v < 4; v++) {                                  \
            const whet_ints_##N total = (whet_ints_##N)((whet_words_##N)sum[v] + f->bias[v]);      \
            const whet_reals_##N real =                                                            \
                __builtin_convertvector(total, whet_reals_##N) * f->scale[v];                      \
            y[v] = with_bits ? whet_judge_##N(real, &f->range, &beyond[v])                         \
                             : whet_round_##N(real, &f->range);                                    \
        }                                                                                          \
        whet_store_##N(f->y + at, whet_join_##N(y), n);                                            \
        if (with_bits) whet_set_bits(f->bits, at, whet_zeros_##N(whet_join_##N(beyond)), n);       \
    }                                                                                              \
                                                                                                   \
    /* Row of y that begins at `at`, from lines of the ring. The last three are constants after \
     * inlining: outputs that are made together, just one if pixels are folded, and what becomes \
     * of them. */  \
    static inline __attribute__((always_inline)) void along_##N(                                   \
        const block_t *a, const int8_t *const *line, int32_t at, const int32_t outputs,            \
        const int32_t folded, const int32_t kind) {                                                \
        const whet_conv2d_t *d = a->l->d;                                                          \
        const finish_##N##_t f = ending_##N(a);                                                    \
        const int32_t step = d->dw * a->pixel, kh = d->kh, groups = a->l->groups;                  \
        const int32_t fold = folded ? a->l->fold : 1, c = fold * d->c, count = a->count;           \
        const int32_t columns = a->q_end - a->q;                                                   \
        const int32_t ahead = outputs * fold * d->sw * a->pixel;                                   \
        at += a->c;                                                                                \
        for (int32_t q = 0, from = 0; q < columns; q += outputs * fold, from += ahead) {           \
            const int8_t *w = a->weights;                                                          \
            whet_ints_##N sum[MOST][4];                                                            \
            for (int32_t b = 0; b < outputs; b++)                                                  \
                for (int32_t v = 0; v < 4; v++) sum[b][v] = (whet_ints_##N){0};                    \
            for (int32_t r = 0; r < kh; r++) {                                                     \
                const int8_t *x = line[r] + from;                                                  \
                for (int32_t g = 0; g < groups; g++, x += 4 * step) {                              \
                    whet_ints_##N pixel[4], mixed[4];                                              \
                    for (int32_t e = 0; e < 4; e++) memcpy(&pixel[e], x + e * step, N);            \
                    whet_mix_##N(mixed, pixel[0], pixel[1], pixel[2], pixel[3]);                   \
                    _Pragma("GCC unroll 4") for (int32_t b = 0; b < outputs; b++, w += 4 * N)      \
                        _Pragma("GCC unroll 4") for (int32_t v = 0; v < 4; v++) {                  \
                        whet_ints_##N tap;                                                         \
                        memcpy(&tap, w + v * N, N);                                                \
                        sum[b][v] = whet_dot_##N(sum[b][v], mixed[v], tap);                        \
                    }                                                                              \
                }                                                                                  \
            }                                                                                      \
            _Pragma("GCC unroll 4") for (int32_t b = 0; b < outputs; b++, at += c) {               \
                if (q + b >= columns) break;                                                       \
                const int32_t n = folded ? whet_min(columns - q, fold) * count : count;            \
                if (kind == KEEP)                                                                  \
                    keep_##N(a, sum[b], at, n);                                                    \
                else                                                                               \
                    finish_##N(&f, sum[b], at, n, kind == NARROW_WITH_BITS);                       \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Row p of y. */                                                                              \
    static void row_##N(const block_t *a, int32_t image, int32_t p) {                              \
        const layer_t *l = a->l;                                                                   \
        const whet_conv2d_t *d = l->d;                                                             \
        const int8_t *line[LINES];                                                                 \
        const int32_t at = ((image * d->p + p) * d->q + a->q) * d->c;                              \
        for (int32_t r = 0; r < d->kh; r++) {                                                      \
            const int32_t row = p * d->sh + r * d->dh - d->ph;                                     \
            const int32_t slot = (row + l->high * (1 + d->ph / l->high)) % l->high;                \
            line[r] = a->ring + slot * a->width * a->pixel;                                        \
        }                                                                                          \
        if (l->fold > 1) {                                                                         \
            ALONG(N, 1, 1)                                                                         \
        } else if (l->outputs == 4) {                                                              \
            ALONG(N, 4, 0)                                                                         \
        } else if (l->outputs == 3) {                                                              \
            ALONG(N, 3, 0)                                                                         \
        } else if (l->outputs == 2) {                                                              \
            ALONG(N, 2, 0)                                                                         \
        } else {                                                                                   \
            ALONG(N, 1, 0)                                                                         \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    /* Rows [first, end) of all images. */                                                         \
    static void rows_##N(block_t *a, int32_t first, int32_t end) {                                 \
        const whet_conv2d_t *d = a->l->d;                                                          \
        const int32_t reach = (4 * a->l->groups - 1) * d->dw + 1, high = a->l->high;               \
        const int32_t together = a->l->outputs * a->l->fold;                                       \
        a->pixel = N / a->l->fold;                                                                 \
        const int32_t room = (RING / (a->pixel * high) - reach) / d->sw;                           \
        const int32_t fit = room / together * together;                                            \
        prepare_##N(a);                                                                            \
        for (a->q = 0; a->q < d->q; a->q = a->q_end) {                                             \
            a->q_end = whet_min(a->q + fit, d->q);                                                 \
            a->left = a->q * d->sw - d->pw;                                                        \
            const int32_t steps = (a->q_end - a->q + together - 1) / together;                     \
            a->width = (steps * together - 1) * d->sw + reach;                                     \
            for (int32_t i = first, next = 0; i < end; i++) {                                      \
                const int32_t p = i % d->p, top = p * d->sh - d->ph;                               \
                if (i == first || p == 0 || next < top) next = top;                                \
                for (; next < top + high; next++) fetch_##N(a, i / d->p, next);                    \
                row_##N(a, i / d->p, p);                                                           \
            }                                                                                      \
        }                                                                                          \
    }

typedef uint32_t whet_words_16 __attribute__((vector_size(16)));
BLOCKS(16)
#if WHET_WIDE >= 32
typedef uint32_t whet_words_32 __attribute__((vector_size(32)));
BLOCKS(32)
#endif
#if WHET_WIDE >= 64
typedef uint32_t whet_words_64 __attribute__((vector_size(64)));
BLOCKS(64)
#endif

/* Units of rows, one block of channels at a time. */
static void run(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    const whet_conv2d_t *d = l->d;
    int8_t ring[RING], weights[WEIGHTS];
    const int32_t from = first * l->unit, to = whet_min(end * l->unit, d->n * d->p);
    for (int32_t c = 0, n; c < d->c; c += n) {
        const int32_t left = d->c - c;
        block_t a = {.l = l, .c = c, .ring = ring, .weights = weights};
        if (l->fold > 1) {
            n = a.count = d->c;
            WHET_OF_DOTS(rows)(&a, from, to);
            continue;
        }
#if WHET_WIDE >= 64
        if (left > 32) {
            n = a.count = whet_min(left, 64);
            rows_64(&a, from, to);
            continue;
        }
#endif
#if WHET_WIDE >= 32
        if (left > 16) {
            n = a.count = whet_min(left, 32);
            rows_32(&a, from, to);
            continue;
        }
#endif
        n = a.count = whet_min(left, 16);
        rows_16(&a, from, to);
    }
}

/* ---- Windows that are too large for the ring buffer, one output at a time. */

static void run_large(const layer_t *l) {
    const whet_conv2d_t *d = l->d;
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        const int8_t *image = l->x + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t c = 0; c < d->c; c++) {
            uint32_t sum = l->b ? (uint32_t)l->b[c] : 0u;
            for (int32_t k = 0; k < rows.taps * cols.taps; k++) {
                const int32_t r = k / cols.taps, s = k % cols.taps;
                const int32_t row = rows.first + r * rows.step, col = cols.first + s * cols.step;
                sum += (uint32_t)((image[(row * d->w + col) * d->c + c] - l->zero) *
                                  l->w[((rows.cut + r) * d->kw + cols.cut + s) * d->c + c]);
            }
            if (l->sums != NULL) {
                l->sums[i * d->c + c] = (int32_t)sum;
                continue;
            }
            const float rounded = whet_round8((float)(int32_t)sum * l->scale[c], l->range);
            l->y[i * d->c + c] = whet_to_i8(rounded, l->range);
            if (l->bits != NULL && whet_inside8(rounded, l->range))
                whet_set_bits(l->bits, i * d->c + c, 1, 1);
        }
    }
}

static void convolve(layer_t *l) {
    const whet_conv2d_t *d = l->d;
    l->groups = (d->kw + 3) / 4;
    const int32_t folds = d->sw == 1 && d->dw == 1 && d->c % 8 == 0 && WHET_WIDE % d->c == 0;
    l->fold = folds ? WHET_WIDE / d->c : 1;
    l->outputs =
        d->dw == 1 && l->fold == 1 ? whet_min((4 * l->groups - d->kw) / d->sw + 1, MOST) : 1;
    l->high = (d->kh - 1) * d->dh + 1;
    l->unit = l->bits != NULL && d->q * d->c % 8 != 0 ? 8 : 1;
    const int64_t room = (int64_t)l->high * WHET_WIDE * ((4 * l->groups - 1) * d->dw + 1);
    const int64_t taps = (int64_t)d->kh * l->groups * l->outputs * 4 * WHET_WIDE;
    if (l->bits != NULL) memset(l->bits, 0, (size_t)(d->n * d->p * d->q * d->c + 7) / 8);
    if (room + l->high * WHET_WIDE * 8 * d->sw > RING || taps > WEIGHTS || d->kh > LINES)
        run_large(l);
    else
        whet_share_work(run, l, (d->n * d->p + l->unit - 1) / l->unit,
                        (int64_t)d->n * d->p * d->q * d->c * d->kh * d->kw / 2);
}

/* formula    y[n,p,q,c] = b[c] + sum_{r,s} (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] - zero) *
 *            w[r,s,c], padding adds nothing
 * shapes     y[n,p,q,c], x[n,h,w,c], w[kh,kw,c], b[c] or NULL
 * aliasing   none
 * rounding   none; sums wrap around
 * workspace  150 KB of stack */
void whet_depthwise_i8(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int32_t zero,
                       const whet_conv2d_t *d) {
    layer_t l = {.d = d, .sums = y, .x = x, .w = w, .b = b, .zero = zero};
    convolve(&l);
}

/* formula    y = round(depthwise_i8(x, w, b) * scale[c]) + zero, clamped to [low, high];
 *            bit = it was in range
 * shapes     as depthwise_i8; bits[(n*p*q*c + 7) / 8] or NULL, scale[c]
 * aliasing   none
 * rounding   sums to float, one product, then to nearest, ties to even
 * workspace  150 KB of stack */
void whet_depthwise_i8_fused(int8_t *y, uint8_t *bits, const int8_t *x, const int8_t *w,
                             const int32_t *b, const float *scale, const whet_narrow_t *to,
                             const whet_conv2d_t *d) {
    layer_t l = {.d = d, .y = y, .bits = bits, .x = x, .w = w, .b = b, .scale = scale};
    l.zero = to->x_zero;
    l.range = whet_range8(to);
    convolve(&l);
}
