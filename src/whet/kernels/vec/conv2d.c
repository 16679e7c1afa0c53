/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

#include "whet_bits.h"

/* A convolution is a matrix product with a row for every output pixel, summed over the taps of its
 * window: see whet_product. Only pointers and panels of w are copied for it. */

/* The operands of a group of channels; pointers are to the group's first elements. */
typedef struct {
    const whet_conv2d_t *d;
    float *y;          /* result: one row per pixel */
    const float *x;    /* the image that the windows cover */
    int32_t kw;        /* separate taps along a row of the window */
    int32_t top, left; /* of dx: residues of a pixel */
} windows_t;

static int32_t is_linear(const whet_conv2d_t *d) {
    return d->kh * d->kw * d->groups * d->sh * d->sw == 1 && d->ph == 0 && d->pw == 0 &&
           d->p == d->h && d->q == d->w;
}

/* Whether the taps of a window's row are contiguous, so that they form one longer tap. */
static int32_t is_together(const whet_conv2d_t *d) {
    return d->groups == 1 && d->pw == 0 && d->dw == 1 && (d->q - 1) * d->sw + d->kw <= d->w;
}

/* Windows over few channels, as in the first layer of a network, have taps that are too short to be
 * summed one by one: the taps of a row are merged, or the whole window is copied. */
enum { WINDOW = 256, COPIED = 12288, TAPS = 1024 }; /* see whet_product for TAPS */

static int32_t is_narrow(const whet_conv2d_t *d) {
    return d->groups == 1 && d->c <= WHET_LANES && d->kh * d->kw * d->c <= WINDOW;
}

/* The last four floats are copied together; they may overlap those before. */
static inline void copy_floats(float *to, const float *from, int32_t n) {
    if (n < 4) {
        for (int32_t i = 0; i < n; i++) to[i] = from[i];
        return;
    }
    for (int32_t i = 0; i < n - 4; i += 4)
        *(whet_quad_u *)(to + i) = *(const whet_quad_u *)(from + i);
    *(whet_quad_u *)(to + n - 4) = *(const whet_quad_u *)(from + n - 4);
}

/* a[kh*kw*c] = the window of output pixel (p,q) of an image; zeros outside. */
static void copy_window(float *a, const float *image, int32_t p, int32_t q,
                        const whet_conv2d_t *d) {
    const int32_t row = d->kw * d->c, together = d->dw == 1 ? d->kw : 1;
    const whet_span_t rows = whet_span(p, d->h, d->kh, d->sh, d->ph, d->dh);
    const whet_span_t cols = whet_span(q, d->w, d->kw, d->sw, d->pw, d->dw);
    whet_fill(a, d->kh * row, 0.0f);
    for (int32_t r = 0; r < rows.taps; r++)
        for (int32_t s = 0; s < cols.taps; s += together) {
            const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
            copy_floats(a + (rows.cut + r) * row + (cols.cut + s) * d->c, image + at * d->c,
                        d->c * whet_min(together, cols.taps));
        }
}

/* a[count, kh*kw*c] = the windows of output pixels first, first + 1, ..., `step` floats apart. */
static void copy_windows(float *a, int32_t step, const float *x, int32_t first, int32_t count,
                         const whet_conv2d_t *d) {
    const int32_t row = d->kw * d->c;
    int32_t q = first % d->q, p = first / d->q % d->p;
    const float *image = x + first / d->q / d->p * d->h * d->w * d->c;
    for (; count > 0; count--, a += step) {
        const int32_t top = p * d->sh - d->ph, left = q * d->sw - d->pw;
        if (d->dw == 1 && top >= 0 && top + (d->kh - 1) * d->dh < d->h && left >= 0 &&
            left + d->kw <= d->w) {
            const float *from = image + (top * d->w + left) * d->c;
            for (int32_t r = 0; r < d->kh; r++)
                copy_floats(a + r * row, from + r * d->dh * d->w * d->c, row);
        } else {
            copy_window(a, image, p, q, d);
        }
        if (++q < d->q) continue;
        q = 0;
        if (++p < d->p) continue;
        p = 0;
        image += d->h * d->w * d->c;
    }
}

/* to[i] = from + i * step, as pointers to the middle of an array. */
static inline void point(const float **to, const float *from, int32_t step, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[i] = from + (ptrdiff_t)i * step;
}

static inline void point_nowhere(const float **to, int32_t count) {
    for (int32_t i = 0; i < count; i++) to[i] = NULL;
}

/* Output pixels and the positions of their taps: row by row, because within a row each tap advances
 * by the same step. */
static void find_windows(const void *who, const float **a, float **y, int32_t first,
                         int32_t count) {
    const windows_t *v = who;
    const whet_conv2d_t *d = v->d;
    if (y != NULL)
        for (int32_t i = 0; i < count; i++) y[i] = v->y + (first + i) * d->o;
    for (int32_t i = 0, run; i < count; i += run) {
        const int32_t at = first + i, q = at % d->q, p = at / d->q % d->p, n = at / d->q / d->p;
        run = whet_min(d->q - q, count - i);
        for (int32_t r = 0; r < d->kh; r++) {
            const int32_t row = p * d->sh + r * d->dh - d->ph;
            const int32_t inside = row >= 0 && row < d->h;
            const float *line = v->x + (inside ? (n * d->h + row) * d->w * d->c : 0);
            for (int32_t s = 0; s < v->kw; s++) {
                const float **to = a + (r * v->kw + s) * count + i;
                const int32_t offset = s * d->dw - d->pw;
                const whet_range_t in = whet_outputs(offset, d->w, d->sw, d->q);
                const int32_t from = in.first > q ? whet_min(in.first - q, run) : 0;
                const int32_t end = in.end > q + from ? whet_min(in.end - q, run) : from;
                if (!inside) {
                    point_nowhere(to, run);
                    continue;
                }
                point_nowhere(to, from);
                if (end > from)
                    point(to + from, line + ((q + from) * d->sw + offset) * d->c, d->sw * d->c,
                          end - from);
                point_nowhere(to + end, run - end);
            }
        }
    }
}

static void find_taps(const void *who, const float **b, int32_t first, int32_t count) {
    find_windows(who, b, NULL, first, count);
}

/* A window with more than TAPS taps is summed in parts: some of its rows, or part of one row. */
typedef struct {
    int32_t high, wide;
} part_t;

static part_t part_of(int32_t kw, int32_t together) {
    const int32_t wide = together ? kw : whet_min(kw, TAPS);
    const part_t v = {together ? TAPS : TAPS / wide, wide};
    return v;
}

/* The part of the window of d that starts at tap (r,s). */
static whet_conv2d_t window_part(const whet_conv2d_t *d, part_t size, int32_t r, int32_t s) {
    whet_conv2d_t v = *d;
    v.kh = whet_min(size.high, d->kh - r);
    v.kw = whet_min(size.wide, d->kw - s);
    v.ph = d->ph - r * d->dh;
    v.pw = d->pw - s * d->dw;
    return v;
}

/* y = conv(x, w) for one group, with the epilogue of p. */
static void convolve(float *y, const float *x, const float *w, const whet_conv2d_t *d,
                     whet_product_t p) {
    const int32_t ci = d->c / d->groups, together = is_together(d);
    const part_t size = part_of(d->kw, together);
    int32_t at[TAPS];
    p.depth = together ? d->kw * ci : ci;
    p.rows = d->n * d->p * d->q;
    p.columns = d->o / d->groups;
    p.find = find_windows;
    p.at = at;
    p.ldy = d->o;
    p.add_origin = y;
    for (int32_t r = 0; r < d->kh; r += size.high)
        for (int32_t s = 0; s < d->kw; s += size.wide) {
            const whet_conv2d_t part = window_part(d, size, r, s);
            const windows_t v = {.d = &part, .y = y, .x = x, .kw = together ? 1 : part.kw};
            const int32_t last = r + part.kh == d->kh && s + part.kw == d->kw;
            whet_product_t q = p;
            q.who = &v;
            q.taps = part.kh * v.kw;
            q.b = w + (r * d->kw + s) * ci * p.bl;
            for (int32_t t = 0; t < q.taps; t++) at[t] = t * p.depth * p.bl;
            if (r + s > 0) {
                q.bias = NULL;
                q.add = y;
            }
            if (!last) {
                q.low = -INFINITY;
                q.high = INFINITY;
            }
            whet_product(&q);
        }
}

/* Some rows of the result; only windows that cross the left or right edge are copied. */
typedef struct {
    const whet_conv2d_t *d;
    float *y;
    const float *image, *edges; /* edges[rows, columns that cross an edge, kh*kw*c] */
    int32_t top;                /* the first row */
    int32_t left, right;        /* first and last columns inside the image */
} inside_t;

static int32_t edges_of(const inside_t *v) { return v->left + v->d->q - v->right; }

/* The description of a result, without its arrays. */
static inside_t inside_of(const whet_conv2d_t *d) {
    const int32_t before = (d->pw + d->sw - 1) / d->sw, reach = d->w + d->pw - d->kw;
    const int32_t within = reach < 0 ? 0 : reach / d->sw + 1;
    inside_t v = {.d = d, .left = whet_min(before, d->q)};
    v.right = within < v.left ? v.left : whet_min(within, d->q);
    return v;
}

/* The number of rows of edges that fit; large if there are no edges. */
static int32_t room_for(const inside_t *v) {
    const int32_t size = v->d->kh * v->d->kw * v->d->c * edges_of(v);
    return size > 0 ? COPIED / size : INT32_MAX;
}

static void find_inside(const void *who, const float **a, float **y, int32_t first, int32_t count) {
    const inside_t *v = who;
    const whet_conv2d_t *d = v->d;
    const int32_t length = d->kw * d->c;
    for (int32_t i = 0; i < count; i++) y[i] = v->y + (first + i) * d->o;
    for (int32_t i = 0, run; i < count; i += run) {
        const int32_t q = (first + i) % d->q, p = (first + i) / d->q;
        const int32_t over = q < v->left ? q : q - v->right + v->left;
        const float *edge = v->edges + (p * edges_of(v) + over) * d->kh * length;
        const int32_t inside = q >= v->left && q < v->right;
        run = inside ? whet_min(v->right - q, count - i) : 1;
        for (int32_t r = 0; r < d->kh; r++) {
            const int32_t row = (v->top + p) * d->sh + r * d->dh - d->ph;
            const float **to = a + r * count + i;
            if (!inside)
                *to = edge + r * length;
            else if (row < 0 || row >= d->h)
                point_nowhere(to, run);
            else
                point(to, v->image + (row * d->w + q * d->sw - d->pw) * d->c, d->sw * d->c, run);
        }
    }
}

/* y = conv(x, w) for few channels: the taps of a window's row are merged. */
static __attribute__((noinline)) void narrow(float *y, const float *x, const whet_conv2d_t *d,
                                             whet_product_t p) {
    const int32_t length = d->kw * d->c, size = d->kh * length;
    const float *add = p.add;
    float edges[COPIED];
    int32_t at[WINDOW];
    inside_t v = inside_of(d);
    v.edges = edges;
    const int32_t room = room_for(&v);
    for (int32_t r = 0; r < d->kh; r++) at[r] = r * length * p.bl;
    p.taps = d->kh;
    p.depth = length;
    p.find = find_inside;
    p.who = &v;
    p.at = at;
    p.ldy = d->o;
    for (int32_t i = 0, rows; i < d->n * d->p; i += rows) {
        v.top = i % d->p;
        v.image = x + i / d->p * d->h * d->w * d->c;
        v.y = y + i * d->q * d->o;
        rows = whet_min(room, d->p - v.top);
        for (int32_t k = 0; k < rows * edges_of(&v); k++) {
            const int32_t over = k % edges_of(&v), row = v.top + k / edges_of(&v);
            const int32_t q = over < v.left ? over : over - v.left + v.right;
            copy_window(edges + k * size, v.image, row, q, d);
        }
        p.rows = rows * d->q;
        p.add = add == NULL ? NULL : add + i * d->q * d->o;
        p.add_origin = v.y;
        whet_product(&p);
    }
}

/* y = conv(x, w) with copied windows; p.rows is set here. */
static __attribute__((noinline)) void copied(float *y, const float *x, const whet_conv2d_t *d,
                                             whet_product_t p) {
    const int32_t size = p.depth, all = d->n * d->p * d->q;
    const float *add = p.add;
    float a[COPIED];
    for (int32_t i = 0; i < all; i += p.rows) {
        p.rows = whet_min(all - i, COPIED / size);
        p.add = add == NULL ? NULL : add + i * d->o;
        copy_windows(a, size, x, i, p.rows, d);
        whet_dense_product(y + i * d->o, d->o, a, size, &p);
    }
}

/* y = min(max(conv(x, w) + b + add, low), high), and its bits unless these are NULL. */
static void forward(float *y, uint8_t *bits, const float *x, const float *w, const float *b,
                    const float *add, float low, float high, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, size = d->kh * d->kw * ci;
    const int32_t all = d->n * d->p * d->q;
    whet_product_t p = {
        .b = w, .bl = 1, .bj = size, .bias = b, .add = add, .low = low, .high = high};
    p.columns = d->o;
    p.depth = size;
    if (d->packed) {
        p.bl = d->o;
        p.bj = 1;
    }
    if (is_linear(d)) {
        p.rows = all;
        p.bits = bits;
        whet_dense_product(y, d->o, x, d->c, &p);
        return;
    }
    const inside_t v = inside_of(d);
    if (is_narrow(d) && d->dw == 1 && room_for(&v) > 0) {
        narrow(y, x, d, p);
    } else if (is_narrow(d)) {
        copied(y, x, d, p);
    } else {
        for (int32_t g = 0; g < d->groups; g++) {
            p.bias = b == NULL ? NULL : b + g * co;
            p.add = add == NULL ? NULL : add + g * co;
            convolve(y + g * co, x + g * ci, w + g * co * size, d, p);
        }
    }
    if (bits != NULL) whet_take_bits(bits, y, all * d->o, low, high);
}

/* formula    y[n,p,q,o] = b[o] + sum_{r,s,i} x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] * w[o,r,s,i]
 * shapes     y[n,p,q,o], x[n,h,w,c], w[o,kh,kw,c/groups], b[o] or NULL
 * aliasing   none
 * rounding   as whet_product
 * workspace  some 130 KB of stack */
void whet_conv2d_f32(float *y, const float *x, const float *w, const float *b,
                     const whet_conv2d_t *d) {
    forward(y, NULL, x, w, b, NULL, -INFINITY, INFINITY, d);
}

/* formula    y = min(max(conv2d(x, w, b) + add, low), high)
 * shapes     as conv2d; add[n,p,q,o] or NULL
 * aliasing   y may be add
 * rounding   as conv2d, plus b, plus add
 * workspace  as conv2d */
void whet_conv2d_fused_f32(float *y, const float *x, const float *w, const float *b,
                           const float *add, float low, float high, const whet_conv2d_t *d) {
    forward(y, NULL, x, w, b, add, low, high, d);
}

/* formula    y = conv2d_fused(...);  bit i % 8 of bits[i / 8] = low < y[i] < high
 * shapes     as conv2d_fused; bits[(n*p*q*o + 7) / 8]; bits after the last element are 0
 * aliasing   as conv2d_fused
 * rounding   as conv2d_fused
 * workspace  as conv2d_fused */
void whet_conv2d_masked_f32(float *y, uint8_t *bits, const float *x, const float *w, const float *b,
                            const float *add, float low, float high, const whet_conv2d_t *d) {
    forward(y, bits, x, w, b, add, low, high, d);
}

/* ---- The gradient of x. Pixels of x whose rows and columns have the same residues, `top` and
 * `left`, modulo the strides are read by the same taps: (first + i * step) for i < count. */

typedef struct {
    int32_t first, step, count;
} taps_t;

/* The taps along an axis that meet residue `at`; after `stride` taps they repeat. */
static taps_t taps_of(int32_t at, int32_t kernel, int32_t stride, int32_t pad, int32_t dilation) {
    taps_t v = {0, 1, 0};
    for (int32_t r = kernel - 1; r >= 0; r--) {
        if ((at + pad + stride * dilation * kernel - r * dilation) % stride != 0) continue;
        v.step = v.count > 0 ? v.first - r : 1;
        v.first = r;
        v.count++;
    }
    return v;
}

/* Up to `most` of them, from number i on. */
static taps_t some_of(taps_t all, int32_t i, int32_t most) {
    const taps_t v = {all.first + i * all.step, all.step, whet_min(most, all.count - i)};
    return v;
}

typedef struct {
    windows_t v;
    taps_t rows, cols;
} readers_t;

/* The output pixels that read a pixel of x, tap by tap. */
static void find_readers(const void *who, const float **a, float **y, int32_t first,
                         int32_t count) {
    const readers_t *f = who;
    const whet_conv2d_t *d = f->v.d;
    const int32_t down = (d->h - f->v.top + d->sh - 1) / d->sh;
    const int32_t right = (d->w - f->v.left + d->sw - 1) / d->sw;
    for (int32_t i = 0; i < count; i++) {
        const int32_t at = first + i, n = at / right / down;
        const int32_t row = at / right % down * d->sh + f->v.top;
        const int32_t col = at % right * d->sw + f->v.left;
        y[i] = f->v.y + ((n * d->h + row) * d->w + col) * d->c;
        for (int32_t r = 0; r < f->rows.count; r++) {
            const int32_t from = row + d->ph - (f->rows.first + r * f->rows.step) * d->dh;
            for (int32_t s = 0; s < f->cols.count; s++) {
                const int32_t left = col + d->pw - (f->cols.first + s * f->cols.step) * d->dw;
                const int32_t p = from / d->sh, q = left / d->sw;
                const int32_t inside = from >= 0 && left >= 0 && p < d->p && q < d->q;
                a[(r * f->cols.count + s) * count + i] =
                    inside ? f->v.x + ((n * d->p + p) * d->q + q) * d->o : NULL;
            }
        }
    }
}

/* dx of one group, for pixels with the residues that are set in f. */
static void class_dx(readers_t *f, const float *w) {
    const whet_conv2d_t *d = f->v.d;
    const int32_t ci = d->c / d->groups, size = d->kh * d->kw * ci;
    const int32_t down = (d->h - f->v.top + d->sh - 1) / d->sh;
    const int32_t right = (d->w - f->v.left + d->sw - 1) / d->sw;
    const taps_t rows = taps_of(f->v.top, d->kh, d->sh, d->ph, d->dh);
    const taps_t cols = taps_of(f->v.left, d->kw, d->sw, d->pw, d->dw);
    whet_product_t p = {.b = w, .bl = size, .bj = 1, .low = -INFINITY, .high = INFINITY};
    int32_t at[TAPS];
    p.rows = d->n * down * right;
    p.columns = ci;
    p.depth = d->o / d->groups;
    p.find = find_readers;
    p.who = f;
    p.at = at;
    p.add_origin = f->v.y;
    const part_t part = part_of(cols.count > 0 ? cols.count : 1, 0);
    for (int32_t r = 0; r < rows.count; r += part.high)
        for (int32_t s = 0; s < cols.count; s += part.wide) {
            f->rows = some_of(rows, r, part.high);
            f->cols = some_of(cols, s, part.wide);
            p.taps = f->rows.count * f->cols.count;
            for (int32_t t = 0; t < p.taps; t++) {
                const int32_t row = f->rows.first + t / f->cols.count * rows.step;
                const int32_t col = f->cols.first + t % f->cols.count * cols.step;
                at[t] = (row * d->kw + col) * ci;
            }
            whet_product(&p);
            p.add = f->v.y; /* from now on */
        }
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] += sum_o dy[n,p,q,o] * w[o,r,s,i], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,o], w[o,kh,kw,c/groups]
 * aliasing   none
 * rounding   as whet_product
 * workspace  some 80 KB of stack */
void whet_conv2d_dx_f32(float *dx, const float *dy, const float *w, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, size = d->kh * d->kw * ci;
    if (is_linear(d)) {
        whet_product_t p = {.b = w, .bl = d->c, .bj = 1, .low = -INFINITY, .high = INFINITY};
        p.rows = d->n * d->p * d->q;
        p.columns = d->c;
        p.depth = d->o;
        whet_dense_product(dx, d->c, dy, d->o, &p);
        return;
    }
    if (d->kh < d->sh || d->kw < d->sw || d->dh > 1 || d->dw > 1)
        whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f); /* some pixels may have no reader */
    for (int32_t g = 0; g < d->groups; g++)
        for (int32_t top = 0; top < whet_min(d->sh, d->h); top++)
            for (int32_t left = 0; left < whet_min(d->sw, d->w); left++) {
                readers_t f = {{.d = d, .y = dx + g * ci, .x = dy + g * co}, {0, 0, 0}, {0, 0, 0}};
                f.v.top = top;
                f.v.left = left;
                class_dx(&f, w + g * co * size);
            }
}

/* ---- The gradient of w. */

/* formula    dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i]
 * shapes     dw[o,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   as whet_outer
 * workspace  some 100 KB of stack */
void whet_conv2d_dw_f32(float *dw, const float *dy, const float *x, const whet_conv2d_t *d) {
    whet_conv2d_dw_rows_f32(dw, dy, x, 0, d->o, d);
}

/* dw with copied windows. */
static __attribute__((noinline)) void narrow_dw(const float *dy, const float *x,
                                                const whet_conv2d_t *d, whet_outer_t p) {
    const int32_t all = d->n * d->p * d->q;
    float a[COPIED] = {0.0f};
    p.b = a;
    p.ldb = (p.columns + WHET_LANES - 1) / WHET_LANES * WHET_LANES; /* padded to whole vectors */
    for (int32_t i = 0; i < all; i += p.depth) {
        p.depth = whet_min(all - i, COPIED / p.ldb);
        p.a = dy + i * d->o;
        p.onto = i > 0;
        copy_windows(a, p.ldb, x, i, p.depth, d);
        whet_outer(&p);
    }
}

/* formula    as conv2d_dw, for first <= o < first + count
 * shapes     dw[count,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   as whet_outer
 * workspace  some 100 KB of stack */
void whet_conv2d_dw_rows_f32(float *dw, const float *dy, const float *x, int32_t first,
                             int32_t count, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, size = d->kh * d->kw * ci;
    const int32_t together = is_together(d);
    const part_t part = part_of(d->kw, together);
    whet_outer_t p = {.rows = count, .columns = size, .taps = 1, .lda = d->o, .y = dw, .ldy = size};
    if (is_narrow(d) && !is_linear(d)) {
        narrow_dw(dy + first, x, d, p);
        return;
    }
    p.depth = d->n * d->p * d->q;
    if (is_linear(d)) {
        p.a = dy + first;
        p.b = x;
        p.ldb = d->c;
        whet_outer(&p);
        return;
    }
    p.find = find_taps;
    p.columns = together ? d->kw * ci : ci;
    for (int32_t o = 0; o < count; o += p.rows) {
        const int32_t g = (first + o) / co;
        p.rows = whet_min((g + 1) * co - first, count) - o;
        p.a = dy + first + o;
        for (int32_t r = 0; r < d->kh; r += part.high)
            for (int32_t s = 0; s < d->kw; s += part.wide) {
                const whet_conv2d_t some = window_part(d, part, r, s);
                const windows_t v = {.d = &some, .x = x + g * ci, .kw = together ? 1 : some.kw};
                p.who = &v;
                p.taps = some.kh * v.kw;
                p.y = dw + o * size + (r * d->kw + s) * ci;
                whet_outer(&p);
            }
    }
}
