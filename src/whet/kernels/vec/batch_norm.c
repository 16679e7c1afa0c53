/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_columns.h"
#include "whet_threads.h"

/* Columns of one vector, half a vector or one channel are walked down the rows, NEAR rows at a
 * time, which are still in the cache when the next column or the second look at them comes. Sums
 * are made for each of a few parts of the rows, and then joined; how many parts there are depends
 * on the number of rows only, so that any number of threads gives the same bits. */
enum { NEAR = 32, BLOCK = 256, PARTS = 8, MANY = 512 };

/* What the kernels here are given; those that have no use for something leave it 0. */
typedef struct {
    float *y; /* y or dx */
    const float *x, *dy, *w, *b, *var, *dw, *db;
    const float *mean; /* of a block */
    int32_t rows, c;
    float eps, low, high;
    int32_t first;                                 /* channel of a block */
    float (*sums)[2][BLOCK];                       /* of every part: two sums per channel */
    float scale[BLOCK], shift[BLOCK], gain[BLOCK]; /* of a block, by channel */
    float slope[BLOCK], offset[BLOCK];
} norm_t;

static int32_t clips(const norm_t *a) { return a->low != -INFINITY || a->high != INFINITY; }
static int32_t width_of(const norm_t *a) { return whet_min(a->c - a->first, BLOCK); }
static int32_t parts_of(int32_t rows) { return rows >= MANY ? PARTS : 1; }

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

#define AT(p)   (*(const unaligned_t *)((p) + j))
#define PUT(p)  (*(unaligned_t *)((p) + j))
#define ROW(p)  (*(const unaligned_t *)((p) + r * c))
#define SOON(p) __builtin_prefetch((p) + (r + NEAR) * c) /* the same place of the next rows */

/* Does something for r = 0 .. n - 1, with k = r % 4 known to the compiler. */
#define EACH_ROW(n, ...)                           \
    do {                                           \
        int32_t r = 0;                             \
        while (r + 4 <= (n))                       \
            for (int32_t k = 0; k < 4; k++, r++) { \
                __VA_ARGS__;                       \
            }                                      \
        for (int32_t k = 0; r < (n); k++, r++) {   \
            __VA_ARGS__;                           \
        }                                          \
    } while (0)

/* For one kind of column: `t` is its letter. j counts channels from the block's first. Sums over
 * rows are four at a time, because an addition has to wait for the one before. */
#define COLUMN(t, vec, unaligned)                                                                \
    /* Mean and sum of squared differences from it: joins those of rows [first, end). */         \
    static void moments_##t(const norm_t *a, float *mean, float *sum, int32_t j, int32_t first,  \
                            int32_t end, int32_t before) {                                       \
        typedef unaligned unaligned_t;                                                           \
        const int32_t c = a->c, n = end - first;                                                 \
        const float *x = a->x + (ptrdiff_t)first * c + a->first + j;                             \
        const vec zero = {0.0f};                                                                 \
        vec s[4] = {zero, zero, zero, zero}, q[4] = {zero, zero, zero, zero};                    \
        EACH_ROW(n, SOON(x); s[k] += ROW(x));                                                    \
        const vec middle = ((s[0] + s[1]) + (s[2] + s[3])) / (float)n;                           \
        EACH_ROW(n, q[k] += (ROW(x) - middle) * (ROW(x) - middle));                              \
        const float share = (float)n / (float)(before + n);                                      \
        const vec m = AT(mean), far = middle - m;                                                \
        PUT(mean) = m + far * share;                                                             \
        PUT(sum) =                                                                               \
            AT(sum) + ((q[0] + q[1]) + (q[2] + q[3])) + far * far * ((float)before * share);     \
    }                                                                                            \
    /* Sums of dy, and of dy * (x - mean), over rows [first, end), with dy where not clipped. */ \
    static void slopes_##t(const norm_t *a, float *db, float *dw, int32_t j, int32_t first,      \
                           int32_t end) {                                                        \
        typedef unaligned unaligned_t;                                                           \
        const int32_t c = a->c, n = end - first, clip = clips(a);                                \
        const float *x = a->x + (ptrdiff_t)first * c + a->first + j;                             \
        const float *dy = a->dy + (ptrdiff_t)first * c + a->first + j;                           \
        const vec mean = AT(a->mean), scale = AT(a->scale), shift = AT(a->shift);                \
        const vec zero = {0.0f};                                                                 \
        vec s[4] = {zero, zero, zero, zero}, q[4] = {zero, zero, zero, zero};                    \
        EACH_ROW(n, SOON(x); SOON(dy); const vec far = ROW(x) - mean; vec g = ROW(dy);           \
                 if (clip) g = inside_##t(g, far * scale + shift, a->low, a->high); s[k] += g;   \
                 q[k] += g * far);                                                               \
        PUT(db) = AT(db) + ((s[0] + s[1]) + (s[2] + s[3]));                                      \
        PUT(dw) = AT(dw) + ((q[0] + q[1]) + (q[2] + q[3]));                                      \
    }                                                                                            \
    /* y = (x - mean) * scale + shift, clipped. */                                               \
    static void apply_##t(const norm_t *a, int32_t j, int32_t first, int32_t end) {              \
        typedef unaligned unaligned_t;                                                           \
        const int32_t c = a->c, n = end - first, clip = clips(a);                                \
        const float *x = a->x + (ptrdiff_t)first * c + a->first + j;                             \
        float *y = a->y + (ptrdiff_t)first * c + a->first + j;                                   \
        const vec mean = AT(a->mean), scale = AT(a->scale), shift = AT(a->shift);                \
        for (int32_t r = 0; r < n; r++) {                                                        \
            SOON(x);                                                                             \
            vec v = (ROW(x) - mean) * scale + shift;                                             \
            if (clip) v = whet_clip_##t(v, a->low, a->high);                                     \
            *(unaligned *)(y + r * c) = v;                                                       \
        }                                                                                        \
    }                                                                                            \
    /* dx = gain * (dy - offset - (x - mean) * slope), with dy where y was not clipped. */       \
    static void project_##t(const norm_t *a, int32_t j, int32_t first, int32_t end) {            \
        typedef unaligned unaligned_t;                                                           \
        const int32_t c = a->c, n = end - first, clip = clips(a);                                \
        const float *x = a->x + (ptrdiff_t)first * c + a->first + j;                             \
        const float *dy = a->dy + (ptrdiff_t)first * c + a->first + j;                           \
        float *dx = a->y + (ptrdiff_t)first * c + a->first + j;                                  \
        const vec mean = AT(a->mean), scale = AT(a->scale), shift = AT(a->shift);                \
        const vec gain = AT(a->gain), slope = AT(a->slope), offset = AT(a->offset);              \
        for (int32_t r = 0; r < n; r++) {                                                        \
            const vec far = ROW(x) - mean;                                                       \
            vec g = ROW(dy);                                                                     \
            if (clip) g = inside_##t(g, far * scale + shift, a->low, a->high);                   \
            *(unaligned *)(dx + r * c) = gain * (g - offset - far * slope);                      \
        }                                                                                        \
    }

COLUMN(v, whet_vec_t, whet_vec_u)
COLUMN(h, whet_half_t, whet_half_u)
COLUMN(s, whet_one_t, whet_one_t)

/* ---- Sums over rows, by part. */

static void moments(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    const int32_t parts = parts_of(a->rows);
    for (int32_t p = first; p < end; p++) {
        const int32_t top = (int32_t)((int64_t)a->rows * p / parts);
        const int32_t bottom = (int32_t)((int64_t)a->rows * (p + 1) / parts);
        float *mean = a->sums[p][0], *sum = a->sums[p][1];
        whet_fill(mean, BLOCK, 0.0f);
        whet_fill(sum, BLOCK, 0.0f);
        for (int32_t r = top; r < bottom; r += NEAR) {
            const int32_t stop = whet_min(r + NEAR, bottom);
            WHET_COLUMNS(width_of(a), moments, a, mean, sum, j, r, stop, r - top);
        }
    }
}

static void slopes(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    const int32_t parts = parts_of(a->rows);
    for (int32_t p = first; p < end; p++) {
        const int32_t top = (int32_t)((int64_t)a->rows * p / parts);
        const int32_t bottom = (int32_t)((int64_t)a->rows * (p + 1) / parts);
        whet_fill(a->sums[p][0], 2 * BLOCK, 0.0f);
        for (int32_t r = top; r < bottom; r += NEAR) {
            const int32_t stop = whet_min(r + NEAR, bottom);
            WHET_COLUMNS(width_of(a), slopes, a, a->sums[p][0], a->sums[p][1], j, r, stop);
        }
    }
}

/* Mean and variance of a block, from those of its parts. */
static void join_moments(const norm_t *a, float *mean, float *var) {
    const int32_t parts = parts_of(a->rows);
    for (int32_t j = 0; j < width_of(a); j++) {
        float m = 0.0f, sum = 0.0f;
        for (int32_t p = 0, n = 0; p < parts; p++) {
            const int32_t top = (int32_t)((int64_t)a->rows * p / parts);
            const int32_t more = (int32_t)((int64_t)a->rows * (p + 1) / parts) - top;
            const float far = a->sums[p][0][j] - m, share = (float)more / (float)(n + more);
            m += far * share;
            sum += a->sums[p][1][j] + far * far * ((float)n * share);
            n += more;
        }
        mean[j] = m;
        var[j] = sum / (float)a->rows;
    }
}

static void join_slopes(const norm_t *a, float *dw, float *db) {
    for (int32_t j = 0; j < width_of(a); j++) {
        whet_sum_t s = {0.0f, 0.0f}, q = {0.0f, 0.0f};
        for (int32_t p = 0; p < parts_of(a->rows); p++) {
            whet_add(&s, a->sums[p][0][j]);
            whet_add(&q, a->sums[p][1][j]);
        }
        if (db != NULL) db[j] = s.sum;
        dw[j] = q.sum * whet_rsqrt(a->var[a->first + j] + a->eps);
    }
}

/* ---- Element by element. */

static void apply(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    for (int32_t r = first * NEAR; r < whet_min(end * NEAR, a->rows); r += NEAR) {
        const int32_t stop = whet_min(r + NEAR, a->rows);
        WHET_COLUMNS(width_of(a), apply, a, j, r, stop);
    }
}

static void project(const void *args, int32_t first, int32_t end) {
    const norm_t *a = args;
    for (int32_t r = first * NEAR; r < whet_min(end * NEAR, a->rows); r += NEAR) {
        const int32_t stop = whet_min(r + NEAR, a->rows);
        WHET_COLUMNS(width_of(a), project, a, j, r, stop);
    }
}

/* Scale and shift of a block, from w, b and var. */
static void set_scale(norm_t *a) {
    for (int32_t j = 0; j < width_of(a); j++) {
        const int32_t i = a->first + j;
        a->scale[j] = (a->w ? a->w[i] : 1.0f) * whet_rsqrt(a->var[i] + a->eps);
        a->shift[j] = a->b ? a->b[i] : 0.0f;
    }
}

static int64_t work_of(const norm_t *a, int32_t cost) {
    return (int64_t)a->rows * width_of(a) * cost;
}
static int32_t chunks_of(const norm_t *a) { return (a->rows + NEAR - 1) / NEAR; }

/* formula    y = (x - mean) / sqrt(var + eps) * w + b
 * shapes     y[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  22 KB of stack */
void whet_batch_norm_f32(float *y, const float *x, const float *w, const float *b,
                         const float *mean, const float *var, int32_t rows, int32_t c, float eps) {
    whet_batch_norm_clipped_f32(y, x, w, b, mean, var, rows, c, eps, -INFINITY, INFINITY);
}

/* formula    y = min(max((x - mean) / sqrt(var + eps) * w + b, low), high)
 * shapes     y[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  22 KB of stack */
void whet_batch_norm_clipped_f32(float *y, const float *x, const float *w, const float *b,
                                 const float *mean, const float *var, int32_t rows, int32_t c,
                                 float eps, float low, float high) {
    norm_t a = {.y = y, .x = x, .w = w, .b = b, .var = var};
    a.rows = rows, a.c = c, a.eps = eps, a.low = low, a.high = high;
    for (; a.first < c; a.first += BLOCK) {
        a.mean = mean + a.first;
        set_scale(&a);
        whet_share_work(apply, &a, chunks_of(&a), work_of(&a, 8));
    }
}

/* formula    dx = dy * w / sqrt(var + eps)
 * shapes     dx[rows,c], dy[rows,c], w[c], var[c]
 * aliasing   dx = dy
 * rounding   float, element by element
 * workspace  22 KB of stack */
void whet_batch_norm_dx_f32(float *dx, const float *dy, const float *w, const float *var,
                            int32_t rows, int32_t c, float eps) {
    const float zero[BLOCK] = {0.0f};
    norm_t a = {.y = dx, .x = dy, .w = w, .var = var};
    a.rows = rows, a.c = c, a.eps = eps, a.low = -INFINITY, a.high = INFINITY;
    for (; a.first < c; a.first += BLOCK) {
        a.mean = zero;
        set_scale(&a);
        whet_share_work(apply, &a, chunks_of(&a), work_of(&a, 8));
    }
}

/* formula    dw[c] = sum_r dy[r,c] * (x[r,c] - mean[c]) / sqrt(var[c] + eps)
 * shapes     dw[c], dy[rows,c], x[rows,c], mean[c], var[c]
 * aliasing   none
 * rounding   sums of NEAR products, added up by part; parts with compensation
 * workspace  22 KB of stack */
void whet_batch_norm_dw_f32(float *dw, const float *dy, const float *x, const float *mean,
                            const float *var, int32_t rows, int32_t c, float eps) {
    float sums[PARTS][2][BLOCK];
    norm_t a = {.dy = dy, .x = x, .var = var, .sums = sums};
    a.rows = rows, a.c = c, a.eps = eps, a.low = -INFINITY, a.high = INFINITY;
    for (; a.first < c; a.first += BLOCK) {
        a.mean = mean + a.first;
        whet_share_work(slopes, &a, parts_of(rows), work_of(&a, 16));
        join_slopes(&a, dw + a.first, NULL);
    }
}

/* formula    mean = mean_r x;  var = mean_r (x - mean)^2;
 *            y = min(max((x - mean) / sqrt(var + eps) * w + b, low), high)
 * shapes     y[rows,c], mean[c], var[c], x[rows,c], w[c], b[c]
 * aliasing   none
 * rounding   moments of NEAR rows in two passes, joined one after the other
 * workspace  22 KB of stack */
void whet_batch_norm_train_f32(float *y, float *mean, float *var, const float *x, const float *w,
                               const float *b, int32_t rows, int32_t c, float eps, float low,
                               float high) {
    float sums[PARTS][2][BLOCK];
    norm_t a = {.y = y, .x = x, .w = w, .b = b, .var = var, .sums = sums};
    a.rows = rows, a.c = c, a.eps = eps, a.low = low, a.high = high;
    for (; a.first < c; a.first += BLOCK) {
        a.mean = mean + a.first;
        whet_share_work(moments, &a, parts_of(rows), work_of(&a, 16));
        join_moments(&a, mean + a.first, var + a.first);
        set_scale(&a);
        whet_share_work(apply, &a, chunks_of(&a), work_of(&a, 8));
    }
}

/* formula    dw = sum_r g * (x - mean) / sqrt(var + eps);  db = sum_r g;
 *            g = dy where low < (x - mean) / sqrt(var + eps) * w + b < high, else 0
 * shapes     dw[c], db[c], dy[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   none
 * rounding   sums of NEAR terms, added up by part; parts with compensation
 * workspace  22 KB of stack */
void whet_batch_norm_train_dw_f32(float *dw, float *db, const float *dy, const float *x,
                                  const float *w, const float *b, const float *mean,
                                  const float *var, int32_t rows, int32_t c, float eps, float low,
                                  float high) {
    float sums[PARTS][2][BLOCK];
    norm_t a = {.dy = dy, .x = x, .w = w, .b = b, .var = var, .sums = sums};
    a.rows = rows, a.c = c, a.eps = eps, a.low = low, a.high = high;
    for (; a.first < c; a.first += BLOCK) {
        a.mean = mean + a.first;
        set_scale(&a);
        whet_share_work(slopes, &a, parts_of(rows), work_of(&a, 16));
        join_slopes(&a, dw + a.first, db + a.first);
    }
}

/* formula    dx = w / sqrt(var + eps) * (g - db / rows - (x - mean) / sqrt(var + eps) * dw / rows),
 *            with g as in batch_norm_train_dw
 * shapes     dx[rows,c], dy[rows,c], x[rows,c], w[c], b[c], mean[c], var[c], dw[c], db[c]
 * aliasing   dx = dy or dx = x
 * rounding   float, element by element
 * workspace  6 KB of stack */
void whet_batch_norm_train_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                                  const float *b, const float *mean, const float *var,
                                  const float *dw, const float *db, int32_t rows, int32_t c,
                                  float eps, float low, float high) {
    const float count = (float)rows;
    norm_t a = {.y = dx, .dy = dy, .x = x, .w = w, .b = b, .var = var};
    a.rows = rows, a.c = c, a.eps = eps, a.low = low, a.high = high;
    for (; a.first < c; a.first += BLOCK) {
        a.mean = mean + a.first;
        set_scale(&a);
        for (int32_t j = 0; j < width_of(&a); j++) {
            const int32_t i = a.first + j;
            const float scale = whet_rsqrt(var[i] + eps);
            a.gain[j] = w[i] * scale;
            a.offset[j] = db[i] / count;
            a.slope[j] = scale * dw[i] / count;
        }
        whet_share_work(project, &a, chunks_of(&a), work_of(&a, 16));
    }
}
