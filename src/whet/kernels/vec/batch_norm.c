/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_columns.h"
#include "whet_threads.h"

/* The data is read in memory order, GROUP lines at a time, so that the processor prefetches it and
 * per-channel constants are loaded once for all of them. If there are few channels, a line is
 * several rows side by side. Sums are computed separately for a few parts of the lines and then
 * combined; the number of parts depends only on the sizes, so that any number of threads gives the
 * same bits. */
enum {
    GROUP = 4,
    NEAR = 64,
    BLOCK = 256,
    LINE = 48,
    PARTS = 8,
    MANY = 16384,
    SOME = 16,
    FAR = 1 << 18
};

/* Arguments of the kernels here; unused ones are 0. */
typedef struct {
    float *y; /* y or dx */
    const float *x, *dy, *w, *b, *mean, *var;
    int32_t rows, c;
    float eps, low, high;
    int32_t fold;                                    /* rows per line */
    int32_t first;                                   /* first channel of the block */
    float (*sums)[2][BLOCK];                         /* for every part: two sums per column */
    float middle[BLOCK], scale[BLOCK], shift[BLOCK]; /* of the block, by column of a line */
    float gain[BLOCK], slope[BLOCK], offset[BLOCK];
} norm_t;

static int32_t clips(const norm_t *a) { return a->low != -INFINITY || a->high != INFINITY; }
static int32_t lines_of(const norm_t *a) { return a->rows / a->fold; }
static int32_t step_of(const norm_t *a) { return a->c * a->fold; }
static int32_t width_of(const norm_t *a) { return whet_min((a->c - a->first) * a->fold, BLOCK); }
static int32_t channels_of(const norm_t *a) { return width_of(a) / a->fold; }
static int32_t parts_of(const norm_t *a) {
    return (int64_t)a->rows * a->c >= MANY && lines_of(a) >= PARTS * SOME ? PARTS : 1;
}

/* Rows per line: the fewest that fill vectors, or enough to make it long. */
static int32_t fold_of(int32_t rows, int32_t c) {
    int32_t fold = 1;
    while (rows % (2 * fold) == 0 && fold * c * 2 <= BLOCK &&
           (fold * c < LINE || fold * c % WHET_LANES != 0))
        fold *= 2;
    return fold;
}

/* Common setup of the kernels. */
static norm_t norm_of(const float *x, const float *mean, const float *var, int32_t rows, int32_t c,
                      float eps, float low, float high) {
    const norm_t a = {.x = x,
                      .mean = mean,
                      .var = var,
                      .rows = rows,
                      .c = c,
                      .eps = eps,
                      .low = low,
                      .high = high,
                      .fold = fold_of(rows, c)};
    return a;
}

/* dy where low < x < high, else 0. */
static inline whet_vec_t inside_v(whet_vec_t dy, whet_vec_t x, float low, float high) {
    return (whet_vec_t)((whet_bits_t)dy & (x > low) & (x < high));
}
static inline whet_half_t inside_h(whet_half_t dy, whet_half_t x, float low, float high) {
    return (whet_half_t)((whet_half_bits_t)dy & (x > low) & (x < high));
}
static inline float inside_s(float dy, float x, float low, float high) {
    return x > low && x < high ? dy : 0.0f;
}

#define AT(p)  (*(const unaligned_t *)((p) + j))
#define PUT(p) (*(unaligned_t *)((p) + j))

/* For one kind of column: `t` is its letter, j counts columns of a line from the block's first. x,
 * dy and y are at the first of n lines; n and `clip` are constants after inlining. */
#define COLUMN(t, vec, unaligned)                                                                 \
    /* sum += x - middle;  square += (x - middle)^2 */                                            \
    static inline __attribute__((always_inline)) void moments_##t(                                \
        const norm_t *a, const float *x, float *sum, float *square, int32_t j, const int32_t n) { \
        typedef unaligned unaligned_t;                                                            \
        const vec middle = AT(a->middle);                                                         \
        const int32_t step = step_of(a);                                                          \
        vec s = AT(sum), q = AT(square);                                                          \
        for (int32_t r = 0; r < n; r++) {                                                         \
            const vec far = AT(x + r * step) - middle;                                            \
            s += far;                                                                             \
            q += far * far;                                                                       \
        }                                                                                         \
        PUT(sum) = s;                                                                             \
        PUT(square) = q;                                                                          \
    }                                                                                             \
    /* db += dy;  dw += dy * (x - mean), with dy where y was not clipped */                       \
    static inline __attribute__((always_inline)) void slopes_##t(                                 \
        const norm_t *a, const float *x, const float *dy, float *db, float *dw, int32_t j,        \
        const int32_t n, const int32_t clip) {                                                    \
        typedef unaligned unaligned_t;                                                            \
        const vec mean = AT(a->middle), scale = AT(a->scale), shift = AT(a->shift);               \
        const int32_t step = step_of(a);                                                          \
        vec s = AT(db), q = AT(dw);                                                               \
        for (int32_t r = 0; r < n; r++) {                                                         \
            const vec far = AT(x + r * step) - mean;                                              \
            vec g = AT(dy + r * step);                                                            \
            if (clip) g = inside_##t(g, far * scale + shift, a->low, a->high);                    \
            s += g;                                                                               \
            q += g * far;                                                                         \
        }                                                                                         \
        PUT(db) = s;                                                                              \
        PUT(dw) = q;                                                                              \
    }                                                                                             \
    /* y = (x - mean) * scale + shift, clipped */                                                 \
    static inline __attribute__((always_inline)) void apply_##t(                                  \
        const norm_t *a, const float *x, float *y, int32_t j, const int32_t n,                    \
        const int32_t clip) {                                                                     \
        typedef unaligned unaligned_t;                                                            \
        const vec mean = AT(a->middle), scale = AT(a->scale), shift = AT(a->shift);               \
        const int32_t step = step_of(a);                                                          \
        for (int32_t r = 0; r < n; r++) {                                                         \
            vec v = (AT(x + r * step) - mean) * scale + shift;                                    \
            if (clip) v = whet_clip_##t(v, a->low, a->high);                                      \
            PUT(y + r * step) = v;                                                                \
        }                                                                                         \
    }                                                                                             \
    /* dx = gain * (dy - offset - (x - mean) * slope), with dy where y was not clipped */         \
    static inline __attribute__((always_inline)) void project_##t(                                \
        const norm_t *a, const float *x, const float *dy, float *dx, int32_t j, const int32_t n,  \
        const int32_t clip) {                                                                     \
        typedef unaligned unaligned_t;                                                            \
        const vec mean = AT(a->middle), scale = AT(a->scale), shift = AT(a->shift);               \
        const vec gain = AT(a->gain), slope = AT(a->slope), offset = AT(a->offset);               \
        const int32_t step = step_of(a);                                                          \
        for (int32_t r = 0; r < n; r++) {                                                         \
            const vec far = AT(x + r * step) - mean;                                              \
            vec g = AT(dy + r * step);                                                            \
            if (clip) g = inside_##t(g, far * scale + shift, a->low, a->high);                    \
            PUT(dx + r * step) = gain * (g - offset - far * slope);                               \
        }                                                                                         \
    }

COLUMN(v, whet_vec_t, whet_vec_u)
COLUMN(h, whet_half_t, whet_half_u)
COLUMN(s, whet_one_t, whet_one_t)

/* Does work(...) for all columns of lines [from, to), `lines` at a time; `at` is their offset in
 * the arrays. */
#define LINES(a, from, to, group, work, ...)                                 \
    do {                                                                     \
        const int32_t step_ = step_of(a), width_ = width_of(a), end_ = (to); \
        int32_t line_ = (from);                                              \
        for (; line_ + (group) <= end_; line_ += (group)) {                  \
            const ptrdiff_t at = (ptrdiff_t)line_ * step_ + (a)->first;      \
            const int32_t lines = (group);                                   \
            WHET_COLUMNS(width_, work, __VA_ARGS__);                         \
        }                                                                    \
        for (; line_ < end_; line_++) {                                      \
            const ptrdiff_t at = (ptrdiff_t)line_ * step_ + (a)->first;      \
            const int32_t lines = 1;                                         \
            WHET_COLUMNS(width_, work, __VA_ARGS__);                         \
        }                                                                    \
    } while (0)

/* ---- Sums over lines, by part. */

static int32_t part_top(const norm_t *a, int32_t part) {
    return (int32_t)((int64_t)lines_of(a) * part / parts_of(a));
}

/* Adds the sums of NEAR lines to those of their part. */
static void add_near(float *sums, const float *near, int32_t width) {
    for (int32_t j = 0; j < width; j++) sums[j] += near[j];
}

static void moments(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    float sum[BLOCK], square[BLOCK];
    for (int32_t p = first; p < end; p++) {
        const int32_t bottom = part_top(a, p + 1);
        whet_fill(a->sums[p][0], 2 * BLOCK, 0.0f);
        for (int32_t i = part_top(a, p); i < bottom; i += NEAR) {
            whet_fill(sum, BLOCK, 0.0f);
            whet_fill(square, BLOCK, 0.0f);
            LINES(a, i, whet_min(i + NEAR, bottom), GROUP, moments, a, a->x + at, sum, square, j,
                  lines);
            add_near(a->sums[p][0], sum, width_of(a));
            add_near(a->sums[p][1], square, width_of(a));
        }
    }
}

static void slopes(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    float db[BLOCK], dw[BLOCK];
    for (int32_t p = first; p < end; p++) {
        const int32_t bottom = part_top(a, p + 1);
        whet_fill(a->sums[p][0], 2 * BLOCK, 0.0f);
        for (int32_t i = part_top(a, p); i < bottom; i += NEAR) {
            const int32_t stop = whet_min(i + NEAR, bottom);
            whet_fill(db, BLOCK, 0.0f);
            whet_fill(dw, BLOCK, 0.0f);
            if (clips(a))
                LINES(a, i, stop, GROUP, slopes, a, a->x + at, a->dy + at, db, dw, j, lines, 1);
            else
                LINES(a, i, stop, GROUP, slopes, a, a->x + at, a->dy + at, db, dw, j, lines, 0);
            add_near(a->sums[p][0], db, width_of(a));
            add_near(a->sums[p][1], dw, width_of(a));
        }
    }
}

/* middle = the mean of SOME lines, spread over the data. Sums of x - middle are accurate enough: it
 * is close to the mean, never further from it than sqrt(lines / SOME) deviations. */
static void set_middle(norm_t *a) {
    const int32_t n = whet_min(lines_of(a), SOME), width = width_of(a);
    whet_fill(a->middle, width, 0.0f);
    for (int32_t r = 0; r < n; r++) {
        const int64_t line = (int64_t)lines_of(a) * r / n;
        const float *x = a->x + line * step_of(a) + a->first;
        for (int32_t j = 0; j < width; j++) a->middle[j] += x[j];
    }
    for (int32_t j = 0; j < width; j++) a->middle[j] /= (float)n;
}

/* Mean and variance of a block, from the sums of its parts. */
static void join_moments(const norm_t *a, float *mean, float *var) {
    const int32_t c = channels_of(a), parts = parts_of(a);
    whet_fill(mean, c, 0.0f);
    whet_fill(var, c, 0.0f);
    for (int32_t f = 0, before = 0; f < a->fold; f++)
        for (int32_t p = 0; p < parts; p++) {
            const int32_t more = part_top(a, p + 1) - part_top(a, p);
            const float n = (float)more, share = n / (float)(before + more);
            const float *sum = a->sums[p][0] + f * c, *square = a->sums[p][1] + f * c;
            for (int32_t j = 0; j < c; j++) {
                const float off = sum[j] / n, far = a->middle[f * c + j] + off - mean[j];
                mean[j] += far * share;
                var[j] += square[j] - sum[j] * off + far * far * ((float)before * share);
            }
            before += more;
        }
    for (int32_t j = 0; j < c; j++) {
        const float mean_square = var[j] / (float)a->rows;
        var[j] = mean_square > 0.0f ? mean_square : mean_square * 0.0f; /* NaN stays NaN */
    }
}

static void join_slopes(const norm_t *a, float *dw, float *db) {
    const int32_t c = channels_of(a);
    for (int32_t j = 0; j < c; j++) {
        whet_sum_t s = {0.0f, 0.0f}, q = {0.0f, 0.0f};
        for (int32_t f = 0; f < a->fold; f++)
            for (int32_t p = 0; p < parts_of(a); p++) {
                whet_add(&s, a->sums[p][0][f * c + j]);
                whet_add(&q, a->sums[p][1][f * c + j]);
            }
        if (db != NULL) db[j] = s.sum;
        dw[j] = q.sum * whet_rsqrt(a->var[a->first + j] + a->eps);
    }
}

/* ---- Element by element. */

/* Large data is probably not in the cache, and is then fetched faster in one row. */
static void apply(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    const int32_t from = first * NEAR, to = whet_min(end * NEAR, lines_of(a));
    if ((int64_t)a->rows * a->c >= FAR) {
        if (clips(a))
            LINES(a, from, to, 1, apply, a, a->x + at, a->y + at, j, lines, 1);
        else
            LINES(a, from, to, 1, apply, a, a->x + at, a->y + at, j, lines, 0);
    } else {
        if (clips(a))
            LINES(a, from, to, GROUP, apply, a, a->x + at, a->y + at, j, lines, 1);
        else
            LINES(a, from, to, GROUP, apply, a, a->x + at, a->y + at, j, lines, 0);
    }
}

static void project(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    const int32_t stop = whet_min(end * NEAR, lines_of(a));
    if (clips(a))
        LINES(a, first * NEAR, stop, GROUP, project, a, a->x + at, a->dy + at, a->y + at, j, lines,
              1);
    else
        LINES(a, first * NEAR, stop, GROUP, project, a, a->x + at, a->dy + at, a->y + at, j, lines,
              0);
}

/* to[width] = from[c], repeated. */
static void repeat(const norm_t *a, float *to, const float *from) {
    const int32_t c = channels_of(a);
    for (int32_t f = 0; f < a->fold; f++)
        for (int32_t j = 0; j < c; j++) to[f * c + j] = from[j];
}

/* Middle, scale and shift of a block, from mean, w, b and var; mean and b default to 0. */
static void set_scale(norm_t *a) {
    float middle[BLOCK], scale[BLOCK], shift[BLOCK];
    for (int32_t j = 0; j < channels_of(a); j++) {
        const int32_t i = a->first + j;
        middle[j] = a->mean ? a->mean[i] : 0.0f;
        scale[j] = (a->w ? a->w[i] : 1.0f) * whet_rsqrt(a->var[i] + a->eps);
        shift[j] = a->b ? a->b[i] : 0.0f;
    }
    repeat(a, a->middle, middle);
    repeat(a, a->scale, scale);
    repeat(a, a->shift, shift);
}

/* Another thread pays off if the data does not fit into this one's own cache. */
static int64_t work_of(const norm_t *a) { return (int64_t)lines_of(a) * width_of(a) * 3; }
static int32_t chunks_of(const norm_t *a) { return (lines_of(a) + NEAR - 1) / NEAR; }

/* dw and, unless it is NULL, db of all channels. */
static void all_slopes(norm_t *a, float *dw, float *db) {
    for (; a->first < a->c; a->first += BLOCK) {
        set_scale(a);
        whet_share_work(slopes, a, parts_of(a), work_of(a));
        join_slopes(a, dw + a->first, db == NULL ? NULL : db + a->first);
    }
}

/* formula    y = (x - mean) / sqrt(var + eps) * w + b
 * shapes     y[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  10 KB of stack */
void whet_batch_norm_f32(float *y, const float *x, const float *w, const float *b,
                         const float *mean, const float *var, int32_t rows, int32_t c, float eps) {
    whet_batch_norm_clipped_f32(y, x, w, b, mean, var, rows, c, eps, -INFINITY, INFINITY);
}

/* formula    y = min(max((x - mean) / sqrt(var + eps) * w + b, low), high)
 * shapes     y[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  10 KB of stack */
void whet_batch_norm_clipped_f32(float *y, const float *x, const float *w, const float *b,
                                 const float *mean, const float *var, int32_t rows, int32_t c,
                                 float eps, float low, float high) {
    norm_t a = norm_of(x, mean, var, rows, c, eps, low, high);
    a.y = y, a.w = w, a.b = b;
    for (; a.first < c; a.first += BLOCK) {
        set_scale(&a);
        whet_share_work(apply, &a, chunks_of(&a), work_of(&a));
    }
}

/* formula    dx = dy * w / sqrt(var + eps)
 * shapes     dx[rows,c], dy[rows,c], w[c], var[c]
 * aliasing   dx = dy
 * rounding   float, element by element
 * workspace  10 KB of stack */
void whet_batch_norm_dx_f32(float *dx, const float *dy, const float *w, const float *var,
                            int32_t rows, int32_t c, float eps) {
    whet_batch_norm_clipped_f32(dx, dy, w, NULL, NULL, var, rows, c, eps, -INFINITY, INFINITY);
}

/* formula    dw[c] = sum_r dy[r,c] * (x[r,c] - mean[c]) / sqrt(var[c] + eps)
 * shapes     dw[c], dy[rows,c], x[rows,c], mean[c], var[c]
 * aliasing   none
 * rounding   sums of NEAR terms, added up by part; parts with compensation
 * workspace  30 KB of stack */
void whet_batch_norm_dw_f32(float *dw, const float *dy, const float *x, const float *mean,
                            const float *var, int32_t rows, int32_t c, float eps) {
    float sums[PARTS][2][BLOCK];
    norm_t a = norm_of(x, mean, var, rows, c, eps, -INFINITY, INFINITY);
    a.dy = dy, a.sums = sums;
    all_slopes(&a, dw, NULL);
}

/* formula    mean = mean_r x;  var = mean_r (x - mean)^2;
 *            y = min(max((x - mean) / sqrt(var + eps) * w + b, low), high)
 * shapes     y[rows,c], mean[c], var[c], x[rows,c], w[c], b[c]
 * aliasing   none
 * rounding   sums of NEAR terms without the mean of SOME, joined part by part
 * workspace  30 KB of stack */
void whet_batch_norm_train_f32(float *y, float *mean, float *var, const float *x, const float *w,
                               const float *b, int32_t rows, int32_t c, float eps, float low,
                               float high) {
    float sums[PARTS][2][BLOCK];
    norm_t a = norm_of(x, mean, var, rows, c, eps, low, high);
    a.y = y, a.w = w, a.b = b, a.sums = sums;
    for (; a.first < c; a.first += BLOCK) {
        set_middle(&a);
        whet_share_work(moments, &a, parts_of(&a), work_of(&a));
        join_moments(&a, mean + a.first, var + a.first);
        set_scale(&a);
        whet_share_work(apply, &a, chunks_of(&a), work_of(&a));
    }
}

/* formula    dw = sum_r g * (x - mean) / sqrt(var + eps);  db = sum_r g;
 *            g = dy where low < (x - mean) / sqrt(var + eps) * w + b < high, else 0
 * shapes     dw[c], db[c], dy[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   none
 * rounding   sums of NEAR terms, added up by part; parts with compensation
 * workspace  30 KB of stack */
void whet_batch_norm_train_dw_f32(float *dw, float *db, const float *dy, const float *x,
                                  const float *w, const float *b, const float *mean,
                                  const float *var, int32_t rows, int32_t c, float eps, float low,
                                  float high) {
    float sums[PARTS][2][BLOCK];
    norm_t a = norm_of(x, mean, var, rows, c, eps, low, high);
    a.dy = dy, a.w = w, a.b = b, a.sums = sums;
    all_slopes(&a, dw, db);
}

/* formula    dx = w / sqrt(var + eps) * (g - db / rows - (x - mean) / sqrt(var + eps) * dw / rows),
 *            with g as in batch_norm_train_dw
 * shapes     dx[rows,c], dy[rows,c], x[rows,c], w[c], b[c], mean[c], var[c], dw[c], db[c]
 * aliasing   dx = dy or dx = x
 * rounding   float, element by element
 * workspace  12 KB of stack */
void whet_batch_norm_train_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                                  const float *b, const float *mean, const float *var,
                                  const float *dw, const float *db, int32_t rows, int32_t c,
                                  float eps, float low, float high) {
    const float count = (float)rows;
    norm_t a = norm_of(x, mean, var, rows, c, eps, low, high);
    a.y = dx, a.dy = dy, a.w = w, a.b = b;
    for (; a.first < c; a.first += BLOCK) {
        float gain[BLOCK], slope[BLOCK], offset[BLOCK];
        set_scale(&a);
        for (int32_t j = 0; j < channels_of(&a); j++) {
            const int32_t i = a.first + j;
            const float scale = whet_rsqrt(var[i] + eps);
            gain[j] = w[i] * scale;
            offset[j] = db[i] / count;
            slope[j] = scale * dw[i] / count;
        }
        repeat(&a, a.gain, gain);
        repeat(&a, a.slope, slope);
        repeat(&a, a.offset, offset);
        whet_share_work(project, &a, chunks_of(&a), work_of(&a));
    }
}
