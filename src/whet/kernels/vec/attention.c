/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_attention.h"

#include "whet_inline.h"

#include "whet_classes.h"
#include "whet_panels.h"
#include "whet_threads.h"

/* Blocks of queries and keys. Their scores are stored with a row for each key, so that a vector
 * holds neighbouring queries: what is computed for each query needs no sum across lanes, and no
 * operand but a panel of queries is transposed. */
enum { QUERIES = 32, KEYS = 128, WIDEST = 256 };

typedef struct {
    const whet_attention_t *a;
    const float *q, *k, *v, *mask;
    float scale;
    float *to_y, *to_top, *to_share;   /* the forward pass writes these */
    const float *y, *top, *share, *dy; /* and the backward pass reads them */
    float *dq, *dk, *dv, *workspace;
} job_t;

/* Some queries of a head. */
typedef struct {
    int32_t count, wide; /* and rounded up to whole vectors */
    int32_t first, keys; /* the first of them, and keys that some of them sees */
    int32_t q, y, row;   /* where its numbers begin in q, y and top */
    int32_t k, v;        /* where those of the head begin in k and v */
    const float *mask;
} some_t;

static int32_t blocks_of(const whet_attention_t *a) { return (a->l + QUERIES - 1) / QUERIES; }

static some_t some_of(const job_t *job, int32_t b, int32_t h, int32_t block) {
    const whet_attention_t *a = job->a;
    const int32_t first = block * QUERIES, count = whet_min(a->l - first, QUERIES);
    const int32_t at = (b * a->l + first) * a->h + h, group = h / (a->h / a->g);
    const some_t s = {
        .count = count,
        .wide = (count + WHET_LANES - 1) / WHET_LANES * WHET_LANES,
        .first = first,
        .keys = a->causal ? whet_min(first + count, a->s) : a->s,
        .q = at * a->d,
        .y = at * a->e,
        .row = (b * a->h + h) * a->l + first,
        .k = (b * a->s * a->g + group) * a->d,
        .v = (b * a->s * a->g + group) * a->e,
        .mask = job->mask ? job->mask + b * a->mask_b + h * a->mask_h + first * a->mask_l : NULL,
    };
    return s;
}

/* ---- Products. */

/* A panel of width numbers of each query for every tile of queries, one behind the other. */
static void pack(float *panel, const float *x, int32_t ldx, const some_t *s, int32_t width,
                 float scale) {
    for (int32_t i = 0; i < s->wide; i += WHET_TILE) {
        const int32_t wide = whet_min(s->wide - i, WHET_TILE);
        const int32_t count = whet_min(s->count - i, WHET_TILE);
        pack_columns(panel + i * width, wide, wide, x + i * ldx, ldx, count, width);
    }
    for (int32_t i = 0; i < s->wide * width && scale != 1.0f; i++) panel[i] *= scale;
}

/* tile[n,wide] = x[n,width] panel */
static void multiply(float *tile, const float *x, int32_t ldx, const float *panel, const some_t *s,
                     int32_t n, int32_t width) {
    whet_product_t p = {.rows = n, .depth = width, .bj = 1, .low = -INFINITY, .high = INFINITY};
    for (int32_t i = 0; i < s->wide; i += WHET_TILE) {
        p.columns = p.bl = whet_min(s->wide - i, WHET_TILE);
        p.b = panel + i * width;
        whet_dense_product(tile + i, QUERIES, x, ldx, &p);
    }
}

/* y[n,width] += tile[n,count] x[count,width], for what belongs to keys. */
static void add_to_keys(float *y, int32_t ldy, const float *tile, const float *x, int32_t ldx,
                        int32_t n, int32_t count, int32_t width) {
    whet_product_t p = {.rows = n, .columns = width, .depth = count, .b = x, .bl = ldx, .bj = 1};
    p.low = -INFINITY;
    p.high = INFINITY;
    p.add = y;
    whet_dense_product(y, ldy, tile, QUERIES, &p);
}

typedef struct {
    const float *x;
    int32_t ld;
} rows_t;

static void find_rows(const void *who, const float **b, int32_t first, int32_t count) {
    const rows_t *r = who;
    for (int32_t i = 0; i < count; i++) b[i] = r->x + (first + i) * r->ld;
}

/* y[count,width] = tile[n,count]' x[n,width], or y += that if `onto`, for what belongs to queries.
 * Only rows of whole vectors are read in place: others would be read beyond their end. */
static void add_to_queries(float *y, int32_t ldy, const float *tile, const float *x, int32_t ldx,
                           int32_t n, int32_t count, int32_t width, int32_t onto) {
    const rows_t r = {x, ldx};
    const whet_outer_t p = {.rows = count,
                            .columns = width,
                            .taps = 1,
                            .depth = n,
                            .a = tile,
                            .lda = QUERIES,
                            .find = find_rows,
                            .who = &r,
                            .b = width % (WHET_LANES / 2) == 0 ? x : NULL,
                            .ldb = ldx,
                            .y = y,
                            .ldy = ldy,
                            .onto = onto};
    whet_outer(&p);
}

/* ---- Scores. */

/* Adds the mask, and hides what is later than its query, for keys [j, j + n). */
static void hide(float *tile, const some_t *s, const whet_attention_t *a, int32_t j, int32_t n) {
    for (int32_t m = 0; m < n; m++) {
        float *row = tile + m * QUERIES;
        if (s->mask && a->mask_l > 0) {
            for (int32_t i = 0; i < s->count; i++) row[i] += s->mask[i * a->mask_l + j + m];
        } else if (s->mask && s->mask[j + m] != 0.0f) {
            for (int32_t i = 0; i < s->wide; i++) row[i] += s->mask[j + m];
        }
        if (a->causal) whet_fill(row, whet_min(j + m - s->first, s->count), -INFINITY);
    }
}

static void scores(float *tile, const float *panel, const some_t *s, const job_t *job, int32_t j,
                   int32_t n) {
    const whet_attention_t *a = job->a;
    const int32_t ldk = a->g * a->d;
    multiply(tile, job->k + s->k + j * ldk, ldk, panel, s, n, a->d);
    hide(tile, s, a, j, n);
}

/* x, and 0 where it is -inf */
static whet_vec_t without_lowest(whet_vec_t x) {
    const whet_bits_t lowest = x == -INFINITY;
    return (whet_vec_t)((whet_bits_t)x & ~lowest);
}

/* ---- Forward. */

/* For each query: the highest score so far, the sum of the exponentials relative to it, and what
 * the last keys have multiplied that by. */
typedef struct {
    float top[QUERIES], sum[QUERIES], fade[QUERIES];
} softmax_t;

/* The highest of n scores of each query, and of `top`. Four at a time, as comparing takes long. */
static whet_vec_t highest(const float *at, int32_t n, whet_vec_t top) {
    whet_vec_t some[4] = {top, top, top, top};
    int32_t m = 0;
    for (; m + 4 <= n; m += 4)
        for (int32_t i = 0; i < 4; i++)
            some[i] = whet_larger(whet_load(at + (m + i) * QUERIES), some[i]);
    for (; m < n; m++) some[0] = whet_larger(whet_load(at + m * QUERIES), some[0]);
    return whet_larger(whet_larger(some[0], some[1]), whet_larger(some[2], some[3]));
}

/* The scores of n more keys become exponentials. */
static void more_keys(softmax_t *x, float *tile, int32_t n, int32_t wide) {
    for (int32_t i = 0; i < wide; i += WHET_LANES) {
        const whet_vec_t before = whet_load(x->top + i);
        const whet_vec_t top = highest(tile + i, n, before);
        const whet_vec_t base = without_lowest(top), fade = whet_exp_share(before - base);
        whet_vec_t sum = whet_load(x->sum + i) * fade;
        for (int32_t m = 0; m < n; m++) {
            float *at = tile + m * QUERIES + i;
            const whet_vec_t e = whet_exp_share(whet_load(at) - base);
            sum += e;
            whet_store(at, e);
        }
        whet_store(x->top + i, top);
        whet_store(x->sum + i, sum);
        whet_store(x->fade + i, fade);
    }
}

static void scale_rows(float *y, int32_t ldy, const float *scale, int32_t rows, int32_t n) {
    for (int32_t r = 0; r < rows; r++, y += ldy)
        for (int32_t i = 0; i < n && scale[r] != 1.0f; i++) y[i] *= scale[r];
}

static void forward_some(const job_t *job, const some_t *s) {
    const whet_attention_t *a = job->a;
    const int32_t ldy = a->h * a->e, ldv = a->g * a->e;
    float panel[QUERIES * WIDEST], tile[KEYS * QUERIES], *y = job->to_y + s->y;
    softmax_t x = {.sum = {0.0f}};
    whet_fill(x.top, QUERIES, -INFINITY);
    pack(panel, job->q + s->q, a->h * a->d, s, a->d, job->scale);
    for (int32_t j = 0, n; j < s->keys; j += n) {
        n = whet_min(s->keys - j, KEYS);
        scores(tile, panel, s, job, j, n);
        more_keys(&x, tile, n, s->wide);
        if (j > 0) scale_rows(y, ldy, x.fade, s->count, a->e);
        add_to_queries(y, ldy, tile, job->v + s->v + j * ldv, ldv, n, s->count, a->e, j > 0);
    }
    for (int32_t i = 0; i < s->count; i++) {
        x.fade[i] = x.sum[i] == 0.0f ? 0.0f : 1.0f / x.sum[i];
        job->to_top[s->row + i] = x.sum[i] == 0.0f ? 0.0f : x.top[i];
        job->to_share[s->row + i] = x.fade[i];
    }
    scale_rows(y, ldy, x.fade, s->count, a->e);
}

static void forward(const void *args, int32_t first, int32_t end) {
    const job_t *job = args;
    const int32_t blocks = blocks_of(job->a), h = job->a->h;
    for (int32_t u = first; u < end; u++) {
        const some_t s = some_of(job, u / blocks / h, u / blocks % h, u % blocks);
        forward_some(job, &s);
    }
}

static int64_t work_of(const whet_attention_t *a) {
    return (int64_t)a->b * a->h * a->l * a->s * (a->d + a->e) / (1 + a->causal);
}

/* formula    y = sum_j exp(x_j - top) * share * v_j, x_j = scale * q . k_j + mask_j, top = max x_j,
 *            share = 1 / sum_j exp(x_j - top), for every query and head; all are 0 if every x_j
 *            is -inf
 * shapes     y[b,l,h,e], top[b,h,l], share[b,h,l], q[b,l,h,d], k[b,s,g,d], v[b,s,g,e], mask as
 *            its steps say or NULL; d, e <= WIDEST
 * aliasing   none
 * rounding   as whet_dense_product and whet_outer; sums over blocks of keys one after the other
 * workspace  some 120 KB of stack */
void whet_attention_f32(float *y, float *top, float *share, const float *q, const float *k,
                        const float *v, const float *mask, float scale, const whet_attention_t *a) {
    const job_t job = {.a = a,
                       .q = q,
                       .k = k,
                       .v = v,
                       .mask = mask,
                       .scale = scale,
                       .to_y = y,
                       .to_top = top,
                       .to_share = share};
    whet_share_work(forward, &job, a->b * a->h * blocks_of(a), work_of(a));
}

/* ---- Backward. */

/* What a block of queries is multiplied with: themselves times the scale and dy, in panels, and
 * numbers for each query. */
typedef struct {
    float queries[QUERIES * WIDEST], dy[QUERIES * WIDEST];
    float top[QUERIES], share[QUERIES], slope[QUERIES];
} gradient_t;

static float dot(const float *a, const float *b, int32_t n) {
    whet_vec_t lanes = whet_all(0.0f);
    int32_t i = 0;
    for (; i + WHET_LANES <= n; i += WHET_LANES) lanes += whet_load(a + i) * whet_load(b + i);
    float sum = whet_sum_lanes(lanes);
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void prepare(gradient_t *x, const job_t *job, const some_t *s) {
    const whet_attention_t *a = job->a;
    const int32_t ldy = a->h * a->e;
    pack(x->queries, job->q + s->q, a->h * a->d, s, a->d, job->scale);
    if (job->dq || job->dk) pack(x->dy, job->dy + s->y, ldy, s, a->e, 1.0f);
    for (int32_t i = 0; i < s->wide; i++) {
        const int32_t real = i < s->count, y = s->y + i * ldy;
        x->top[i] = real ? job->top[s->row + i] : 0.0f;
        x->share[i] = real ? job->share[s->row + i] : 0.0f;
        x->slope[i] = real ? dot(job->dy + y, job->y + y, a->e) : 0.0f;
    }
}

/* Scores become weights. */
static void weigh(float *tile, const gradient_t *x, int32_t n, int32_t wide) {
    for (int32_t i = 0; i < wide; i += WHET_LANES) {
        const whet_vec_t top = whet_load(x->top + i), share = whet_load(x->share + i);
        for (int32_t m = 0; m < n; m++) {
            float *at = tile + m * QUERIES + i;
            whet_store(at, whet_exp_share(whet_load(at) - top) * share);
        }
    }
}

/* tile = weights * (tile - slope) * scale */
static void differentiate(float *tile, const float *weights, const gradient_t *x, int32_t n,
                          int32_t wide, float scale) {
    for (int32_t i = 0; i < wide; i += WHET_LANES) {
        const whet_vec_t slope = whet_load(x->slope + i);
        for (int32_t m = 0; m < n; m++) {
            float *at = tile + m * QUERIES + i;
            const whet_vec_t weight = whet_load(weights + m * QUERIES + i) * scale;
            whet_store(at, weight * (whet_load(at) - slope));
        }
    }
}

/* All of dq for some queries of a head; adds what they contribute to dk and dv, which may be
 * NULL. */
static void backward_some(const job_t *job, const some_t *s, float *dk, float *dv) {
    const whet_attention_t *a = job->a;
    const int32_t ldq = a->h * a->d, ldy = a->h * a->e, ldk = a->g * a->d, ldv = a->g * a->e;
    float weights[KEYS * QUERIES], tile[KEYS * QUERIES];
    gradient_t x;
    prepare(&x, job, s);
    for (int32_t j = 0, n; j < s->keys; j += n) {
        const int32_t key = s->k + j * ldk, value = s->v + j * ldv;
        n = whet_min(s->keys - j, KEYS);
        scores(weights, x.queries, s, job, j, n);
        weigh(weights, &x, n, s->wide);
        if (dv) add_to_keys(dv + value, ldv, weights, job->dy + s->y, ldy, n, s->count, a->e);
        if (!job->dq && !dk) continue;
        multiply(tile, job->v + value, ldv, x.dy, s, n, a->e);
        differentiate(tile, weights, &x, n, s->wide, job->scale);
        if (dk) add_to_keys(dk + key, ldk, tile, job->q + s->q, ldq, n, s->count, a->d);
        if (job->dq)
            add_to_queries(job->dq + s->q, ldq, tile, job->k + key, ldk, n, s->count, a->d, j > 0);
    }
}

static int32_t all_keys(const whet_attention_t *a) { return a->b * a->s * a->g * a->d; }
static int32_t all_values(const whet_attention_t *a) { return a->b * a->s * a->g * a->e; }

/* Where a part's sums are: those of the first are the results. NULL if they are not wanted. */
static float *keys_of(const job_t *job, int32_t part) {
    if (!job->dk || part == 0) return job->dk;
    return job->workspace + (part - 1) * (all_keys(job->a) + (job->dv ? all_values(job->a) : 0));
}

static float *values_of(const job_t *job, int32_t part) {
    if (!job->dv || part == 0) return job->dv;
    const int32_t keys = job->dk ? all_keys(job->a) : 0;
    return job->workspace + (part - 1) * (keys + all_values(job->a)) + keys;
}

/* Each unit is a part of the queries of all heads that share keys. */
static void backward(const void *args, int32_t first, int32_t end) {
    const job_t *job = args;
    const whet_attention_t *a = job->a;
    const int32_t blocks = blocks_of(a), heads = a->h / a->g;
    for (int32_t u = first; u < end; u++) {
        const int32_t part = u % a->parts, group = u / a->parts % a->g, b = u / a->parts / a->g;
        float *dk = keys_of(job, part), *dv = values_of(job, part);
        for (int32_t j = b * a->s; j < (b + 1) * a->s; j++) {
            if (dk) whet_fill(dk + (j * a->g + group) * a->d, a->d, 0.0f);
            if (dv) whet_fill(dv + (j * a->g + group) * a->e, a->e, 0.0f);
        }
        for (int32_t i = part; i < heads * blocks; i += a->parts) {
            const some_t s = some_of(job, b, group * heads + i / blocks, i % blocks);
            backward_some(job, &s, dk, dv);
        }
    }
}

/* Adds the other parts to the first, for some samples and keys. */
static void add_parts(const void *args, int32_t first, int32_t end) {
    const job_t *job = args;
    const int32_t keys = job->a->g * job->a->d, values = job->a->g * job->a->e;
    for (int32_t part = 1; part < job->a->parts; part++) {
        const float *dk = keys_of(job, part), *dv = values_of(job, part);
        for (int32_t i = first * keys; dk && i < end * keys; i++) job->dk[i] += dk[i];
        for (int32_t i = first * values; dv && i < end * values; i++) job->dv[i] += dv[i];
    }
}

/* formula    dq_i = sum_j ds_ij * k_j; dk_j = sum_i ds_ij * q_i; dv_j = sum_i w_ij * dy_i; w =
 *            exp(x - top) * share, ds = w * (dy_i . v_j - dy_i . y_i) * scale; sums over i run over
 *            the heads of a group, too
 * shapes     as attention; dq as q, dk as k, dv as v, each of which may be NULL; dy as y
 * aliasing   none
 * rounding   as whet_dense_product and whet_outer; sums over blocks one after the other
 * workspace  [parts - 1] of dk and dv; some 180 KB of stack */
void whet_attention_dx_f32(float *dq, float *dk, float *dv, const float *dy, const float *q,
                           const float *k, const float *v, const float *y, const float *top,
                           const float *share, const float *mask, float scale,
                           const whet_attention_t *a, float *workspace) {
    const job_t job = {.a = a,
                       .q = q,
                       .k = k,
                       .v = v,
                       .mask = mask,
                       .y = y,
                       .top = top,
                       .share = share,
                       .dq = dq,
                       .dk = dk,
                       .dv = dv,
                       .dy = dy,
                       .scale = scale,
                       .workspace = workspace};
    whet_share_work(backward, &job, a->b * a->g * a->parts, 3 * work_of(a));
    if (a->parts > 1)
        whet_share_work(add_parts, &job, a->b * a->s, (int64_t)a->parts * all_keys(a));
}
