/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_columns.h"
#include "whet_threads.h"

/* Narrow groups are side by side in a vector: every channel of a block of groups is summed
 * separately, down the pixels of an image, and the sums of a group are then added. If there are few
 * channels, a line is several pixels. A wide group fills vectors by itself and is summed along its
 * channels, as are groups of few pixels. Each image is processed by one thread, in one order. */
enum { NEAR = 64, BLOCK = 256, LINE = 48, FEW = 4, WIDE = 2 * WHET_LANES };

/* Arguments of the kernels; unused ones are 0. */
typedef struct {
    float *y, *means, *vars; /* y or dx; means and vars are results, mean and var operands */
    const float *x, *dy, *w, *b, *mean, *var;
    int32_t images, pixels, c, groups;
    float eps;
} norm_t;

/* Some groups of an image: constants and sums, by column of a line. */
typedef struct {
    const float *x, *dy;
    float *y;
    int32_t lines, step, width, fold; /* a line is `fold` pixels */
    float middle[BLOCK], gain[BLOCK], offset[BLOCK], slope[BLOCK];
    float sum[BLOCK], dot[BLOCK], sum_lost[BLOCK], dot_lost[BLOCK];
} block_t;

static int32_t size_of(const norm_t *a) { return a->c / a->groups; }

/* Whether sums run down the pixels: there are several, and a group does not fill vectors. */
static int32_t down(int32_t size, int32_t pixels) { return size < WIDE && pixels >= FEW; }

#define AT(p)  (*(const unaligned_t *)((p) + j))
#define PUT(p) (*(unaligned_t *)((p) + j))

/* sum += x, with compensation, as whet_add does */
#define JOIN(vec, sum, lost, x)                           \
    do {                                                  \
        const vec old_ = AT(sum), term_ = (x) - AT(lost); \
        const vec new_ = old_ + term_;                    \
        PUT(lost) = (new_ - old_) - term_;                \
        PUT(sum) = new_;                                  \
    } while (0)

/* For one kind of column of a block: `t` is its letter, j its first channel. */
#define COLUMN(t, vec, unaligned)                                                               \
    /* sum += x */                                                                              \
    static inline void sum_##t(block_t *a, int32_t j, int32_t first, int32_t end) {             \
        typedef unaligned unaligned_t;                                                          \
        vec s = {0.0f};                                                                         \
        for (int32_t r = first; r < end; r++) s += AT(a->x + (ptrdiff_t)r * a->step);           \
        JOIN(vec, a->sum, a->sum_lost, s);                                                      \
    }                                                                                           \
    /* dot += (x - middle)^2 */                                                                 \
    static inline void squares_##t(block_t *a, int32_t j, int32_t first, int32_t end) {         \
        typedef unaligned unaligned_t;                                                          \
        const vec middle = AT(a->middle);                                                       \
        vec s = {0.0f};                                                                         \
        for (int32_t r = first; r < end; r++) {                                                 \
            const vec far = AT(a->x + (ptrdiff_t)r * a->step) - middle;                         \
            s += far * far;                                                                     \
        }                                                                                       \
        JOIN(vec, a->dot, a->dot_lost, s);                                                      \
    }                                                                                           \
    /* sum += dy;  dot += dy * (x - middle) */                                                  \
    static inline void slopes_##t(block_t *a, int32_t j, int32_t first, int32_t end) {          \
        typedef unaligned unaligned_t;                                                          \
        const vec middle = AT(a->middle);                                                       \
        vec s = {0.0f}, q = {0.0f};                                                             \
        for (int32_t r = first; r < end; r++) {                                                 \
            const ptrdiff_t at = (ptrdiff_t)r * a->step;                                        \
            s += AT(a->dy + at);                                                                \
            q += AT(a->dy + at) * (AT(a->x + at) - middle);                                     \
        }                                                                                       \
        JOIN(vec, a->sum, a->sum_lost, s);                                                      \
        JOIN(vec, a->dot, a->dot_lost, q);                                                      \
    }                                                                                           \
    /* y = (x - middle) * gain + offset */                                                      \
    static inline void apply_##t(block_t *a, int32_t j, int32_t first, int32_t end) {           \
        typedef unaligned unaligned_t;                                                          \
        const vec middle = AT(a->middle), gain = AT(a->gain), offset = AT(a->offset);           \
        for (int32_t r = first; r < end; r++) {                                                 \
            const ptrdiff_t at = (ptrdiff_t)r * a->step;                                        \
            PUT(a->y + at) = (AT(a->x + at) - middle) * gain + offset;                          \
        }                                                                                       \
    }                                                                                           \
    /* dx = dy * gain - offset - (x - middle) * slope */                                        \
    static inline void project_##t(block_t *a, int32_t j, int32_t first, int32_t end) {         \
        typedef unaligned unaligned_t;                                                          \
        const vec middle = AT(a->middle), gain = AT(a->gain);                                   \
        const vec offset = AT(a->offset), slope = AT(a->slope);                                 \
        for (int32_t r = first; r < end; r++) {                                                 \
            const ptrdiff_t at = (ptrdiff_t)r * a->step;                                        \
            PUT(a->y + at) = AT(a->dy + at) * gain - offset - (AT(a->x + at) - middle) * slope; \
        }                                                                                       \
    }

COLUMN(v, whet_vec_t, whet_vec_u)
COLUMN(h, whet_half_t, whet_half_u)
COLUMN(s, whet_one_t, whet_one_t)

/* Does work(block) for all columns of all lines, NEAR lines at a time. */
#define LINES(a, work)                                              \
    for (int32_t first_ = 0; first_ < (a)->lines; first_ += NEAR) { \
        const int32_t end_ = whet_min(first_ + NEAR, (a)->lines);   \
        WHET_COLUMNS((a)->width, work, a, j, first_, end_);         \
    }

/* Pixels per line: the fewest that fill vectors. */
static int32_t fold_of(int32_t pixels, int32_t c) {
    int32_t fold = 1;
    while (pixels % (2 * fold) == 0 && 2 * fold * c <= BLOCK &&
           (fold * c < LINE || fold * c % WHET_LANES != 0))
        fold *= 2;
    return fold;
}

/* The groups of image k from channel `first` on, as many as fit; returns the number of channels. */
static int32_t set_block(block_t *to, const norm_t *a, int32_t k, int32_t first) {
    const ptrdiff_t at = (ptrdiff_t)k * a->pixels * a->c + first;
    const int32_t fold = fold_of(a->pixels, a->c), size = size_of(a);
    const int32_t channels = whet_min(a->c - first, BLOCK / size * size);
    to->x = a->x + at;
    to->dy = a->dy == NULL ? NULL : a->dy + at;
    to->y = a->y == NULL ? NULL : a->y + at;
    to->fold = fold;
    to->lines = a->pixels / fold;
    to->step = a->c * fold;
    to->width = channels * fold;
    whet_fill(to->sum, to->width, 0.0f);
    whet_fill(to->dot, to->width, 0.0f);
    whet_fill(to->sum_lost, to->width, 0.0f);
    whet_fill(to->dot_lost, to->width, 0.0f);
    return channels;
}

/* The sum of column j over all pixels in a line. */
static float column(const block_t *a, const float *sums, int32_t j) {
    const int32_t c = a->width / a->fold;
    float all = 0.0f;
    for (int32_t f = 0; f < a->fold; f++) all += sums[f * c + j];
    return all;
}

static void set_column(const block_t *a, float *to, int32_t j, float value) {
    const int32_t c = a->width / a->fold;
    for (int32_t f = 0; f < a->fold; f++) to[f * c + j] = value;
}

/* The sum of group g of a block, weighted if there are weights. */
static float group(const block_t *a, const float *sums, int32_t g, int32_t size, const float *w) {
    whet_sum_t all = {0.0f, 0.0f};
    for (int32_t j = g * size; j < (g + 1) * size; j++)
        whet_add(&all, column(a, sums, j) * (w == NULL ? 1.0f : w[j]));
    return all.sum;
}

/* ---- Narrow groups of image k. */

static void narrow(const norm_t *a, int32_t k) {
    const int32_t size = size_of(a);
    const float count = (float)(a->pixels * size);
    block_t block;
    for (int32_t first = 0, channels; first < a->c; first += channels) {
        channels = set_block(&block, a, k, first);
        float *mean = a->means + k * a->groups + first / size;
        float *var = a->vars + k * a->groups + first / size;
        LINES(&block, sum);
        for (int32_t g = 0; g < channels / size; g++) {
            mean[g] = group(&block, block.sum, g, size, NULL) / count;
            for (int32_t j = g * size; j < (g + 1) * size; j++)
                set_column(&block, block.middle, j, mean[g]);
        }
        LINES(&block, squares);
        for (int32_t g = 0; g < channels / size; g++) {
            var[g] = group(&block, block.dot, g, size, NULL) / count;
            const float scale = whet_rsqrt(var[g] + a->eps);
            for (int32_t j = g * size; j < (g + 1) * size; j++) {
                set_column(&block, block.gain, j, scale * a->w[first + j]);
                set_column(&block, block.offset, j, a->b[first + j]);
            }
        }
        LINES(&block, apply);
    }
}

static void set_means(block_t *to, const norm_t *a, const float *mean, int32_t channels) {
    const int32_t size = size_of(a);
    for (int32_t j = 0; j < channels; j++) set_column(to, to->middle, j, mean[j / size]);
}

static void narrow_dx(const norm_t *a, int32_t k) {
    const int32_t size = size_of(a);
    const float count = (float)(a->pixels * size);
    block_t block;
    for (int32_t first = 0, channels; first < a->c; first += channels) {
        channels = set_block(&block, a, k, first);
        const float *mean = a->mean + k * a->groups + first / size;
        const float *var = a->var + k * a->groups + first / size;
        set_means(&block, a, mean, channels);
        LINES(&block, slopes);
        for (int32_t g = 0; g < channels / size; g++) {
            const float scale = whet_rsqrt(var[g] + a->eps), *w = a->w + first;
            const float g1 = group(&block, block.sum, g, size, w) / count;
            const float g2 = group(&block, block.dot, g, size, w) * scale * scale / count;
            for (int32_t j = g * size; j < (g + 1) * size; j++) {
                set_column(&block, block.gain, j, scale * w[j]);
                set_column(&block, block.offset, j, scale * g1);
                set_column(&block, block.slope, j, scale * g2);
            }
        }
        LINES(&block, project);
    }
}

/* ---- Wide groups of image k: `term`, an expression in u, v and w at i, for every i of a row. */

#define ACROSS(total, rows, c, size, term_v, term_s)                            \
    for (int32_t r = 0; r < (rows); r++)                                        \
        for (int32_t i = 0; i < (size);) {                                      \
            const int32_t end_ = whet_min(i + WHET_CHUNK * WHET_LANES, (size)); \
            const ptrdiff_t at = (ptrdiff_t)r * (c);                            \
            whet_vec_t one_ = whet_all(0.0f), two_ = whet_all(0.0f);            \
            float rest_ = 0.0f;                                                 \
            for (; i + 2 * WHET_LANES <= end_; i += WHET_LANES) {               \
                one_ += term_v;                                                 \
                i += WHET_LANES;                                                \
                two_ += term_v;                                                 \
            }                                                                   \
            for (; i + WHET_LANES <= end_; i += WHET_LANES) one_ += term_v;     \
            for (; i < end_; i++) rest_ += term_s;                              \
            whet_add(total, across(one_ + two_) + rest_);                       \
        }
#define WITH(p) (*(const whet_vec_u *)((p) + i))

static float across(whet_vec_t v) {
    float lanes[WHET_LANES];
    *(whet_vec_u *)lanes = v;
    return whet_fold(lanes, WHET_LANES);
}

static void wide(const norm_t *a, int32_t k) {
    const int32_t size = size_of(a), c = a->c;
    const float count = (float)(a->pixels * size);
    for (int32_t g = 0; g < a->groups; g++) {
        const ptrdiff_t start = (ptrdiff_t)k * a->pixels * c + g * size;
        const float *u = a->x + start, *w = a->w + g * size, *b = a->b + g * size;
        whet_sum_t sum = {0.0f, 0.0f}, squares = {0.0f, 0.0f};
        ACROSS(&sum, a->pixels, c, size, WITH(u + at), u[at + i]);
        const float m = sum.sum / count;
        ACROSS(&squares, a->pixels, c, size, (WITH(u + at) - m) * (WITH(u + at) - m),
               (u[at + i] - m) * (u[at + i] - m));
        const float var = squares.sum / count, scale = whet_rsqrt(var + a->eps);
        a->means[k * a->groups + g] = m;
        a->vars[k * a->groups + g] = var;
        for (int32_t r = 0; r < a->pixels; r++) {
            const float *in = u + (ptrdiff_t)r * c;
            float *out = a->y + start + (ptrdiff_t)r * c;
            int32_t i = 0;
            for (; i + WHET_LANES <= size; i += WHET_LANES)
                *(whet_vec_u *)(out + i) = (WITH(in) - m) * scale * WITH(w) + WITH(b);
            for (; i < size; i++) out[i] = (in[i] - m) * scale * w[i] + b[i];
        }
    }
}

static void wide_dx(const norm_t *a, int32_t k) {
    const int32_t size = size_of(a), c = a->c;
    const float count = (float)(a->pixels * size);
    for (int32_t g = 0; g < a->groups; g++) {
        const ptrdiff_t start = (ptrdiff_t)k * a->pixels * c + g * size;
        const float *u = a->dy + start, *v = a->x + start, *w = a->w + g * size;
        const float m = a->mean[k * a->groups + g];
        const float scale = whet_rsqrt(a->var[k * a->groups + g] + a->eps);
        whet_sum_t sum = {0.0f, 0.0f}, dot = {0.0f, 0.0f};
        ACROSS(&sum, a->pixels, c, size, WITH(u + at) * WITH(w), u[at + i] * w[i]);
        ACROSS(&dot, a->pixels, c, size, WITH(u + at) * WITH(w) * (WITH(v + at) - m),
               u[at + i] * w[i] * (v[at + i] - m));
        const float g1 = sum.sum / count, g2 = dot.sum * scale * scale / count;
        for (int32_t r = 0; r < a->pixels; r++) {
            const float *dy = u + (ptrdiff_t)r * c, *x = v + (ptrdiff_t)r * c;
            float *out = a->y + start + (ptrdiff_t)r * c;
            int32_t i = 0;
            for (; i + WHET_LANES <= size; i += WHET_LANES)
                *(whet_vec_u *)(out + i) = (WITH(dy) * WITH(w) - g1 - (WITH(x) - m) * g2) * scale;
            for (; i < size; i++) out[i] = (dy[i] * w[i] - g1 - (x[i] - m) * g2) * scale;
        }
    }
}

/* ---- */

static void forward(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    for (int32_t k = first; k < end; k++)
        if (down(size_of(a), a->pixels))
            narrow(a, k);
        else
            wide(a, k);
}

static void backward(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    for (int32_t k = first; k < end; k++)
        if (down(size_of(a), a->pixels))
            narrow_dx(a, k);
        else
            wide_dx(a, k);
}

/* formula    mean, var of each image and group;  y = (x - mean) / sqrt(var + eps) * w + b
 * shapes     y[n,pixels,c], mean[n,groups], var[n,groups], x[n,pixels,c], w[c], b[c]
 * aliasing   none
 * rounding   sums of NEAR or WHET_CHUNK terms, added with compensation; the variance in a second
 *            pass
 * workspace  8 KB of stack */
void whet_group_norm_f32(float *y, float *mean, float *var, const float *x, const float *w,
                         const float *b, int32_t n, int32_t pixels, int32_t c, int32_t groups,
                         float eps) {
    const norm_t a = {.y = y,
                      .means = mean,
                      .vars = var,
                      .x = x,
                      .w = w,
                      .b = b,
                      .pixels = pixels,
                      .c = c,
                      .groups = groups,
                      .eps = eps};
    whet_share_work(forward, &a, n, (int64_t)n * pixels * c * 4);
}

/* formula    dx = (g - mean(g) - xhat * mean(g * xhat)) / sqrt(var + eps), g = dy * w
 * shapes     dx[n,pixels,c], dy[n,pixels,c], x[n,pixels,c], w[c], mean[n,groups], var[n,groups]
 * aliasing   dx = dy or dx = x
 * rounding   sums of NEAR or WHET_CHUNK terms, added with compensation
 * workspace  8 KB of stack */
void whet_group_norm_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                            const float *mean, const float *var, int32_t n, int32_t pixels,
                            int32_t c, int32_t groups, float eps) {
    const norm_t a = {.y = dx,
                      .mean = mean,
                      .var = var,
                      .x = x,
                      .dy = dy,
                      .w = w,
                      .pixels = pixels,
                      .c = c,
                      .groups = groups,
                      .eps = eps};
    whet_share_work(backward, &a, n, (int64_t)n * pixels * c * 6);
}

/* Sums of the weights down the columns of a block, for all images. */
static void narrow_dw(const norm_t *a, float *dw, int32_t groups) {
    const int32_t size = a->c / groups;
    block_t block;
    for (int32_t first = 0, channels; first < a->c; first += channels) {
        whet_sum_t total[BLOCK] = {{0.0f, 0.0f}};
        channels = 0;
        for (int32_t k = 0; k < a->images; k++) {
            const float *mean = a->mean + k * groups, *var = a->var + k * groups;
            channels = set_block(&block, a, k, first);
            for (int32_t j = 0; j < channels; j++)
                set_column(&block, block.middle, j, mean[(first + j) / size]);
            LINES(&block, slopes);
            for (int32_t j = 0; j < channels; j++) {
                const float scale = whet_rsqrt(var[(first + j) / size] + a->eps);
                whet_add(&total[j], column(&block, block.dot, j) * scale);
            }
        }
        for (int32_t j = 0; j < channels; j++) dw[first + j] = total[j].sum;
    }
}

/* part += dy * (x - m) * scale, for n channels */
static void add_row(float *part, const float *dy, const float *x, float m, float scale, int32_t n) {
    int32_t i = 0;
    for (; i + WHET_LANES <= n; i += WHET_LANES)
        *(whet_vec_u *)(part + i) = WITH(part) + WITH(dy) * ((WITH(x) - m) * scale);
    for (; i < n; i++) part[i] += dy[i] * ((x[i] - m) * scale);
}

/* Along the channels of wide groups, row by row. */
static void wide_dw(const norm_t *a, float *dw, int32_t groups) {
    const int32_t size = a->c / groups, rows = a->images * a->pixels;
    for (int32_t first = 0, n; first < a->c; first += n) {
        const int32_t g = first / size;
        whet_sum_t total[BLOCK] = {{0.0f, 0.0f}};
        n = whet_min((g + 1) * size - first, BLOCK);
        for (int32_t top = 0; top < rows; top += NEAR) {
            float part[BLOCK] = {0.0f};
            for (int32_t r = top; r < whet_min(top + NEAR, rows); r++) {
                const int32_t k = r / a->pixels * groups + g;
                const ptrdiff_t at = (ptrdiff_t)r * a->c + first;
                add_row(part, a->dy + at, a->x + at, a->mean[k], whet_rsqrt(a->var[k] + a->eps), n);
            }
            for (int32_t j = 0; j < n; j++) whet_add(&total[j], part[j]);
        }
        for (int32_t j = 0; j < n; j++) dw[first + j] = total[j].sum;
    }
}

/* formula    dw[c] = sum over images and pixels of dy * (x - mean) / sqrt(var + eps)
 * shapes     dw[c], dy[n,pixels,c], x[n,pixels,c], mean[n,groups], var[n,groups]
 * aliasing   none
 * rounding   sums over an image, or of NEAR rows, added with compensation
 * workspace  10 KB of stack */
void whet_group_norm_dw_f32(float *dw, const float *dy, const float *x, const float *mean,
                            const float *var, int32_t n, int32_t pixels, int32_t c, int32_t groups,
                            float eps) {
    const norm_t a = {.x = x,
                      .dy = dy,
                      .mean = mean,
                      .var = var,
                      .images = n,
                      .pixels = pixels,
                      .c = c,
                      .groups = c, /* here a channel serves as a group */
                      .eps = eps};
    if (down(c / groups, pixels))
        narrow_dw(&a, dw, groups);
    else
        wide_dw(&a, dw, groups);
}
