/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

#include "whet_dot.h"
#include "whet_threads.h"

/* A convolution is a matrix product with a row for every output pixel and a column for every output
 * channel. Four bytes of a row are multiplied at a time: columns of w are copied to panels of
 * interleaved quads. A row has a stretch for every row of the window, in whole quads: bytes after
 * the window's last one are multiplied by 0. Stretches are read in place, or copied where the
 * window crosses an edge. */

#if WHET_WIDE == 64 || defined(__aarch64__)
enum { ROWS = 8, VECTORS = 3 }; /* of a block that is summed in registers */
#else
enum { ROWS = 4, VECTORS = 2 };
#endif
enum {
    WIDTH = VECTORS * WHET_DOTS,
    DEPTH = 256, /* quads summed at a time */
    PIXELS = 64, /* minimum that share a panel; a multiple of 8, so that bytes of bits are whole */
    PANEL = 1 << 14,          /* words of all cached panels */
    COPIES = ROWS * DEPTH * 4 /* bytes of windows */
};

/* One of the input images, and its weights. */
typedef struct {
    const int8_t *x, *w;
    int32_t c, ci;          /* channels, and those of a group */
    int32_t stretch, quads; /* bytes of a row of the window, and the quads that hold them */
    int32_t direct, dense;  /* its bytes are contiguous; windows are pixels, in order */
} source_t;

/* A step of the sum: quads [first, first + quads) of stretches [row, row + rows). */
typedef struct {
    const source_t *source;
    int32_t row, rows, first, quads;
} step_t;

typedef struct {
    const whet_conv2d_t *d;
    int32_t *sums; /* the result is either int32 sums, */
    int8_t *y;     /* or their int8 values */
    uint8_t *bits;
    const int32_t *b;
    const float *scale;
    int32_t zero;
    whet_range8_t range;
    source_t source[2];
    int32_t sources;
    int32_t vectors, panels; /* of a panel's width, and in a group */
    int32_t chunks;          /* of PIXELS pixels */
} layer_t;

/* Some outputs of one group, with precomputed data. */
typedef struct {
    const layer_t *l;
    int32_t group, o, count, width;
    int32_t bias[WIDTH];
    float scale[WIDTH];
} columns_t;

/* ---- Panels. */

static const int8_t nothing[4 * DEPTH];

/* The quads of four rows, which become the next words of a panel's rows. */
static void pack_rows(uint32_t *panel, int32_t width, const int8_t *const *w, int32_t quads) {
    int32_t k = 0;
    for (; k + 4 <= quads; k += 4) {
        whet_ints_16 from[4], to[4];
        for (int32_t r = 0; r < 4; r++) memcpy(&from[r], w[r] + 4 * k, 16);
        whet_turn(to, from[0], from[1], from[2], from[3]);
        for (int32_t r = 0; r < 4; r++) memcpy(panel + (k + r) * width, &to[r], 16);
    }
    for (; k < quads; k++)
        for (int32_t r = 0; r < 4; r++) memcpy(panel + k * width + r, w[r] + 4 * k, 4);
}

/* panel[rows * quads, width] = the data of a step for `count` rows of w, padded with zeros.
 * Subtracts from the bias what the flip and the zero point add to every sum. */
static void pack(uint32_t *panel, columns_t *v, const step_t *t) {
    const source_t *s = t->source;
    const int32_t size = v->l->d->kh * s->stretch, quads = t->rows * t->quads;
    const int32_t whole = whet_min(t->quads, s->stretch / 4 - t->first);
    const int32_t rest = s->stretch - 4 * (t->first + whole);
    for (int32_t k = 0; k < t->rows; k++)
        for (int32_t j = 0; j < v->width; j += 4) {
            const int32_t at = (t->row + k) * s->stretch + 4 * t->first;
            uint32_t *to = panel + k * t->quads * v->width + j;
            const int8_t *w[4];
            for (int32_t r = 0; r < 4; r++) {
                w[r] = j + r < v->count ? s->w + (v->o + j + r) * size + at : nothing;
                if (whole == t->quads) continue;
                uint32_t *last = to + whole * v->width + r;
                *last = 0;
                memcpy(last, w[r] + 4 * whole, (size_t)rest);
            }
            pack_rows(to, v->width, w, whole);
        }
    for (int32_t j = 0; j < v->width; j += WHET_DOTS) {
        const whet_dots_t none = {0}, ones = none + 0x01010101;
        whet_dots_t sum = none;
        for (int32_t k = 0; k < quads; k++) {
            const void *words = panel + k * v->width + j;
            sum = WHET_OF_DOTS(whet_dot)(sum, ones, *(const whet_dots_u *)words);
        }
        whet_sums_u *bias = (whet_sums_u *)(void *)(v->bias + j);
        *bias -= (whet_sums_t)sum * (uint32_t)(WHET_FLIP + v->l->zero);
    }
}

/* ---- Rows. */

/* Short rows are copied by two overlapping moves. */
static inline void copy_bytes(int8_t *to, const int8_t *from, int32_t n) {
    if (n >= 16) {
        for (int32_t i = 0; i < n - 16; i += 16) memcpy(to + i, from + i, 16);
        memcpy(to + n - 16, from + n - 16, 16);
    } else if (n >= 8) {
        memcpy(to, from, 8);
        memcpy(to + n - 8, from + n - 8, 8);
    } else if (n >= 4) {
        memcpy(to, from, 4);
        memcpy(to + n - 4, from + n - 4, 4);
    } else {
        for (int32_t i = 0; i < n; i++) to[i] = from[i];
    }
}

typedef struct {
    int32_t image, p, q;
} pixel_t;

/* Advance by n pixels. */
static inline pixel_t next_pixel(const whet_conv2d_t *d, pixel_t i, int32_t n) {
    for (i.q += n; i.q >= d->q; i.q -= d->q) {
        if (++i.p < d->p) continue;
        i.p = 0;
        i.image++;
    }
    return i;
}

/* The start of a pixel's window, or NULL if a step would read outside the image. */
static inline const int8_t *find_window(const columns_t *v, const step_t *t, pixel_t i) {
    const source_t *s = t->source;
    const whet_conv2d_t *d = v->l->d;
    const int32_t top = i.p * d->sh - d->ph, left = i.q * d->sw - d->pw;
    const int32_t last = top + (t->row + t->rows - 1) * d->dh;
    if (top + t->row * d->dh < 0 || last >= d->h || left < 0 || left + (d->kw - 1) * d->dw >= d->w)
        return NULL;
    const int32_t line = i.image * d->h * d->w;
    const int32_t at = v->group * s->ci + 4 * t->first;
    const int32_t end = (line + last * d->w + left) * s->c + at + 4 * t->quads;
    if (end > d->n * d->h * d->w * s->c) return NULL; /* the last quad is partial */
    return s->x + (line + (top + t->row * d->dh) * d->w + left) * s->c + at;
}

/* to[4 * quads], and what is `apart` from it for every stretch, = what a step reads of the window
 * of a pixel; outside is the zero point. */
static void copy_window(int8_t *to, int32_t apart, const columns_t *v, const step_t *t, pixel_t i) {
    const source_t *s = t->source;
    const whet_conv2d_t *d = v->l->d;
    const int32_t top = i.p * d->sh - d->ph, left = i.q * d->sw - d->pw;
    const int8_t *image = s->x + i.image * d->h * d->w * s->c + v->group * s->ci;
    const int32_t end = whet_min(4 * (t->first + t->quads), s->stretch);
    const int32_t whole = s->direct && d->dw == 1 && t->quads == s->quads;
    for (int32_t r = t->row; r < t->row + t->rows; r++, to += apart - 4 * t->quads) {
        const int32_t row = top + r * d->dh, there = row >= 0 && row < d->h;
        if (there && whole && left >= 0 && left + d->kw <= d->w) {
            copy_bytes(to, image + (row * d->w + left) * s->c, s->stretch);
            to += s->stretch;
            for (int32_t k = 4 * s->quads - s->stretch; k > 0; k--) *to++ = 0;
            continue;
        }
        for (int32_t at = 4 * t->first, n; at < end; at += n, to += n) {
            const int32_t col = left + at / s->ci * d->dw, skip = at % s->ci;
            n = whet_min(s->ci - skip, end - at);
            if (there && col >= 0 && col < d->w)
                copy_bytes(to, image + (row * d->w + col) * s->c + skip, n);
            else
                for (int32_t k = 0; k < n; k++) to[k] = (int8_t)v->l->zero;
        }
        for (int32_t k = 4 * (t->first + t->quads) - end; k > 0; k--) *to++ = 0;
    }
}

/* ---- Blocks. */

/* n <= WHET_DOTS sums, converted to int8; `at` is their position in the result. */
static inline __attribute__((always_inline)) void narrow(const layer_t *l, whet_dots_t sums,
                                                         const float *scale, whet_range8_t range,
                                                         int32_t at, int32_t n,
                                                         const int32_t with_bits) {
    typedef WHET_OF_DOTS(whet_reals) reals_t;
    const reals_t real =
        __builtin_convertvector(sums, reals_t) * *(const WHET_OF_DOTS(whet_reals_u) *)scale;
    if (with_bits) {
        whet_dots_t beyond;
        whet_store_lanes(l->y + at, WHET_OF_DOTS(whet_judge)(real, &range, &beyond), n);
        whet_set_bits(l->bits, at, whet_lane_zeros(beyond), n);
    } else {
        whet_store_lanes(l->y + at, WHET_OF_DOTS(whet_round)(real, &range), n);
    }
}

/* What happens to a block: more products are added later, or it is converted while in registers. */
enum { TILE, NARROW, NARROW_WITH_BITS };

/* tile[rows, width], or pixels of y from i on, = rows times panel, added to `from`, whose rows are
 * `next` apart; stretches of a row are `step` apart. The last three are constants after
 * inlining. */
static inline __attribute__((always_inline)) void block(const columns_t *c, int32_t *tile,
                                                        int32_t i, const int8_t *const *at,
                                                        int32_t step, const uint32_t *panel,
                                                        const step_t *t, const int32_t *from,
                                                        int32_t next, const int32_t rows,
                                                        const int32_t vectors, const int32_t kind) {
    const int32_t width = vectors * WHET_DOTS, quads = t->quads, stretches = t->rows;
    const whet_dots_t none = {0}, flips = whet_flips();
    const int8_t *row[ROWS];
    whet_dots_t sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int32_t r = 0; r < rows; r++) {
        row[r] = at[r];
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            sum[r][v] = *(const whet_dots_u *)(from + r * next + v * WHET_DOTS);
        }
    }
    for (int32_t s = 0; s < stretches; s++) {
        for (int32_t k = 0; k < quads; k++, panel += width) {
            whet_dots_t w[VECTORS];
#pragma GCC unroll 3
            for (int32_t v = 0; v < vectors; v++)
                w[v] = *(const whet_dots_u *)(const void *)(panel + v * WHET_DOTS);
#pragma GCC unroll 8
            for (int32_t r = 0; r < rows; r++) {
                int32_t quad;
                memcpy(&quad, row[r] + 4 * k, 4);
                const whet_dots_t x = WHET_FLIP ? (none + quad) ^ flips : none + quad;
#pragma GCC unroll 3
                for (int32_t v = 0; v < vectors; v++)
                    sum[r][v] = WHET_OF_DOTS(whet_dot)(sum[r][v], x, w[v]);
            }
        }
#pragma GCC unroll 8
        for (int32_t r = 0; r < rows; r++) row[r] += step;
    }
    const layer_t *l = c->l;
    const whet_range8_t range = l->range;
    const int32_t rest = c->count - (vectors - 1) * WHET_DOTS, o = l->d->o;
#pragma GCC unroll 8
    for (int32_t r = 0; r < rows; r++)
#pragma GCC unroll 3
        for (int32_t v = 0; v < vectors; v++) {
            const int32_t j = v * WHET_DOTS;
            if (kind == TILE)
                *(whet_dots_u *)(tile + r * width + j) = sum[r][v];
            else
                narrow(l, sum[r][v], c->scale + j, range, (i + r) * o + c->o + j,
                       v + 1 < vectors ? WHET_DOTS : rest, kind == NARROW_WITH_BITS);
        }
}

/* Blocks of ROWS, half as many, 2 or 1 rows that go to a tile, and whole ones that go to y. */
#define BLOCKS(name, vectors)                                                                     \
    static void name(int32_t *tile, const int8_t *const *at, int32_t step, const uint32_t *panel, \
                     const columns_t *c, const step_t *t, const int32_t *from, int32_t next,      \
                     int32_t rows) {                                                              \
        if (rows > ROWS / 2)                                                                      \
            block(c, tile, 0, at, step, panel, t, from, next, ROWS, vectors, TILE);               \
        else if (rows > 2)                                                                        \
            block(c, tile, 0, at, step, panel, t, from, next, ROWS / 2, vectors, TILE);           \
        else if (rows == 2)                                                                       \
            block(c, tile, 0, at, step, panel, t, from, next, 2, vectors, TILE);                  \
        else                                                                                      \
            block(c, tile, 0, at, step, panel, t, from, next, 1, vectors, TILE);                  \
    }                                                                                             \
    static void name##_narrow(int32_t i, const int8_t *const *at, int32_t step,                   \
                              const uint32_t *panel, const columns_t *c, const step_t *t) {       \
        if (c->l->bits == NULL)                                                                   \
            block(c, NULL, i, at, step, panel, t, c->bias, 0, ROWS, vectors, NARROW);             \
        else                                                                                      \
            block(c, NULL, i, at, step, panel, t, c->bias, 0, ROWS, vectors, NARROW_WITH_BITS);   \
    }
BLOCKS(blocks_1, 1)
BLOCKS(blocks_2, 2)
#if WHET_WIDE == 64 || defined(__aarch64__)
BLOCKS(blocks_3, 3)
#else
#define blocks_3        blocks_2
#define blocks_3_narrow blocks_2_narrow
#endif

/* row[rows] = the windows of pixels from i on, in place, or copies of those that cross an edge.
 * Returns the distance between their stretches. */
static int32_t find_rows(const int8_t **row, int8_t *copies, const columns_t *v, const step_t *t,
                         int32_t i, pixel_t at, int32_t rows) {
    const source_t *s = t->source;
    const whet_conv2d_t *d = v->l->d;
    const int32_t apart = d->dh * d->w * s->c;
    if (s->dense) {
        const int8_t *x = s->x + i * s->c + v->group * s->ci + 4 * t->first;
        for (int32_t k = 0; k < rows; k++) row[k] = x + k * s->c;
        return apart;
    }
    const pixel_t last = {at.image, at.p, at.q + rows - 1};
    if (s->direct && last.q < d->q) {
        row[0] = find_window(v, t, at);
        if (row[0] != NULL && find_window(v, t, last) != NULL) {
            for (int32_t k = 1; k < rows; k++) row[k] = row[0] + k * d->sw * s->c;
            return apart;
        }
    }
    /* Copies use the image's distance between stretches if they fit. */
    const int32_t size = 4 * t->quads;
    const int32_t mixed =
        s->direct && (t->rows == 1 || (ROWS * size <= apart && t->rows * apart <= COPIES));
    for (int32_t k = 0; k < rows; k++, at = next_pixel(d, at, 1)) {
        row[k] = mixed ? find_window(v, t, at) : NULL;
        if (row[k] != NULL) continue;
        int8_t *to = copies + k * (mixed ? size : t->rows * size);
        row[k] = to;
        copy_window(to, mixed ? apart : size, v, t, at);
    }
    return mixed ? apart : size;
}

/* tile[count, width] = `count` pixels from i on, times the panel of a step; added to what is there,
 * or to the bias if it is the only step, or to 0. Returns how many of them were converted instead:
 * whole blocks of the only step. */
static int32_t multiply(int32_t *tile, const columns_t *v, const step_t *t, const uint32_t *panel,
                        int32_t i, int32_t count, int32_t onto, int32_t only) {
    static const int32_t none[WIDTH];
    const whet_conv2d_t *d = v->l->d;
    const int32_t filled = v->count > v->width - WHET_DOTS; /* no vector is empty */
    const int32_t narrows = only && filled && v->l->sums == NULL ? count / ROWS * ROWS : 0;
    pixel_t at = {i / (d->p * d->q), i / d->q % d->p, i % d->q};
    int8_t copies[COPIES];
    for (int32_t r = 0; r < count; r += ROWS) {
        const int32_t rows = whet_min(count - r, ROWS);
        const int8_t *row[ROWS];
        const int32_t step = find_rows(row, copies, v, t, i + r, at, rows);
        if (!t->source->dense) at = next_pixel(d, at, rows);
        for (int32_t k = rows; k < ROWS; k++) row[k] = row[rows - 1];
        if (r < narrows) {
            if (v->width == WHET_DOTS)
                blocks_1_narrow(i + r, row, step, panel, v, t);
            else if (v->width == 2 * WHET_DOTS)
                blocks_2_narrow(i + r, row, step, panel, v, t);
            else
                blocks_3_narrow(i + r, row, step, panel, v, t);
            continue;
        }
        const int32_t *from = onto ? tile + r * v->width : only ? v->bias : none;
        const int32_t next = onto ? v->width : 0;
        if (v->width == WHET_DOTS)
            blocks_1(tile + r * v->width, row, step, panel, v, t, from, next, rows);
        else if (v->width == 2 * WHET_DOTS)
            blocks_2(tile + r * v->width, row, step, panel, v, t, from, next, rows);
        else
            blocks_3(tile + r * v->width, row, step, panel, v, t, from, next, rows);
    }
    return narrows;
}

/* ---- Results. */

/* Unscaled sums. */
static void keep(const columns_t *v, const int32_t *tile, int32_t i, int32_t count) {
    int32_t *to = v->l->sums + i * v->l->d->o + v->o;
    for (int32_t r = 0; r < count; r++, tile += v->width, to += v->l->d->o)
        for (int32_t j = 0; j < v->count; j++) to[j] = tile[j];
}

/* The last two are constants after inlining: whether bits are needed, and vectors per row. */
static inline __attribute__((always_inline)) void narrow_rows(const columns_t *v,
                                                              const int32_t *tile, int32_t i,
                                                              int32_t count,
                                                              const int32_t with_bits,
                                                              const int32_t vectors) {
    const layer_t *l = v->l;
    const whet_range8_t range = l->range;
    int32_t at = i * l->d->o + v->o;
    const int32_t rest = v->count - (vectors - 1) * WHET_DOTS;
    for (int32_t r = 0; r < count; r++, at += l->d->o, tile += v->width)
#pragma GCC unroll 3
        for (int32_t k = 0; k < vectors; k++) {
            const int32_t j = k * WHET_DOTS;
            narrow(l, *(const whet_dots_u *)(tile + j), v->scale + j, range, at + j,
                   k + 1 < vectors ? WHET_DOTS : rest, with_bits);
        }
}

static void finish(const columns_t *v, const int32_t *tile, int32_t i, int32_t count) {
    const int32_t vectors = (v->count + WHET_DOTS - 1) / WHET_DOTS;
    if (v->l->sums != NULL)
        keep(v, tile, i, count);
    else if (v->l->bits != NULL && vectors == 1)
        narrow_rows(v, tile, i, count, 1, 1);
    else if (v->l->bits != NULL)
        narrow_rows(v, tile, i, count, 1, vectors);
    else if (vectors == 1)
        narrow_rows(v, tile, i, count, 0, 1);
    else if (vectors == 2)
        narrow_rows(v, tile, i, count, 0, 2);
    else
        narrow_rows(v, tile, i, count, 0, vectors);
}

/* ---- Layers. */

/* The next quads of a source that are summed at a time: all stretches, or a part of one. */
static step_t step_from(const layer_t *l, const source_t *s, int32_t row, int32_t first) {
    step_t t = {s, row, 1, first, whet_min(s->quads - first, DEPTH)};
    if (l->d->kh * s->quads <= DEPTH) t.rows = l->d->kh;
    return t;
}

static step_t first_step(const layer_t *l) { return step_from(l, l->source, 0, 0); }

static step_t next_step(const layer_t *l, step_t t) {
    const source_t *s = t.source;
    if (t.first + t.quads < s->quads) return step_from(l, s, t.row, t.first + t.quads);
    if (t.row + t.rows < l->d->kh) return step_from(l, s, t.row + t.rows, 0);
    if (s + 1 < l->source + l->sources) return step_from(l, s + 1, 0, 0);
    t.source = NULL;
    return t;
}

/* Chunks [first, end) of some outputs. */
static void run(const layer_t *l, int32_t columns, int32_t first, int32_t end) {
    const whet_conv2d_t *d = l->d;
    const int32_t co = d->o / d->groups, pixels = d->n * d->p * d->q;
    uint32_t panel[PANEL];
    int32_t tile[(PIXELS + ROWS) * WIDTH];
    columns_t v = {.l = l, .group = columns / l->panels, .width = l->vectors * WHET_DOTS};
    v.o = v.group * co + columns % l->panels * v.width;
    v.count = whet_min(v.width, (v.group + 1) * co - v.o);
    for (int32_t j = 0; j < v.count; j++) {
        v.bias[j] = l->b ? l->b[v.o + j] : 0;
        v.scale[j] = l->scale ? l->scale[v.o + j] : 0.0f;
    }
    int32_t words = 0;
    for (int32_t k = 0; k < l->sources; k++) words += d->kh * l->source[k].quads * v.width;
    const int32_t once = words <= PANEL; /* then panels are packed once for all chunks */
    const columns_t fresh = v;
    for (int32_t i = first * PIXELS; i < whet_min(end * PIXELS, pixels); i += PIXELS) {
        const int32_t count = whet_min(pixels - i, PIXELS), new = !once || i == first * PIXELS;
        uint32_t *at = panel;
        int32_t done = 0;
        if (new) v = fresh;
        step_t t = first_step(l);
        const int32_t only = next_step(l, t).source == NULL;
        for (int32_t onto = 0; t.source != NULL; onto = 1, t = next_step(l, t)) {
            if (new) pack(at, &v, &t);
            done = multiply(tile, &v, &t, at, i, count, onto, only);
            if (once) at += t.rows * t.quads * v.width;
        }
        for (int32_t r = 0; r < count && !only; r++)
            for (int32_t j = 0; j < v.width; j++)
                tile[r * v.width + j] =
                    (int32_t)((uint32_t)tile[r * v.width + j] + (uint32_t)v.bias[j]);
        if (done < count) finish(&v, tile + done * v.width, i + done, count - done);
    }
}

/* Units are chunks of some outputs; those of the same outputs are adjacent. */
static void run_units(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    while (first < end) {
        const int32_t columns = first / l->chunks, next = (columns + 1) * l->chunks;
        run(l, columns, first % l->chunks, whet_min(next, end) - columns * l->chunks);
        first = whet_min(next, end);
    }
}

/* Units are chunks of all outputs, for results whose bytes of bits span several panels. */
static void run_chunks(const void *args, int32_t first, int32_t end) {
    const layer_t *l = args;
    for (int32_t k = 0; k < l->d->groups * l->panels; k++) run(l, k, first, end);
}

static void convolve(layer_t *l) {
    const whet_conv2d_t *d = l->d;
    const int32_t co = d->o / d->groups, vectors = (co + WHET_DOTS - 1) / WHET_DOTS;
    const int32_t pixels = d->n * d->p * d->q;
    int64_t work = 0;
    for (int32_t k = 0; k < l->sources; k++) {
        source_t *s = &l->source[k];
        s->ci = s->c / d->groups;
        s->stretch = d->kw * s->ci;
        s->quads = (s->stretch + 3) / 4;
        s->direct = d->kw == 1 || (d->dw == 1 && d->groups == 1);
        s->dense = d->kh * d->kw * d->sh * d->sw == 1 && s->ci % 4 == 0 && d->ph == 0 &&
                   d->pw == 0 && d->p == d->h && d->q == d->w;
        work += (int64_t)pixels * d->o * d->kh * s->stretch;
    }
    l->panels = (vectors + VECTORS - 1) / VECTORS;
    l->vectors = (vectors + l->panels - 1) / l->panels;
    l->chunks = (pixels + PIXELS - 1) / PIXELS;
    if (l->bits != NULL) memset(l->bits, 0, (size_t)(pixels * d->o + 7) / 8);
    if (l->bits != NULL && (co % 8 != 0 || WHET_DOTS % 8 != 0))
        whet_share_work(run_chunks, l, l->chunks, work / 4);
    else
        whet_share_work(run_units, l, l->chunks * l->panels * d->groups, work / 4);
}

/* formula    y[n,p,q,o] = b[o] + sum_{r,s,i} (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero) *
 *            w[o,r,s,i], padding adds nothing
 * shapes     y[n,p,q,o], x[n,h,w,c], w[o,kh,kw,c/groups], b[o] or NULL
 * aliasing   none
 * rounding   none; sums wrap around
 * workspace  100 KB of stack */
void whet_conv2d_i8(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int32_t zero,
                    const whet_conv2d_t *d) {
    layer_t l = {.d = d, .sums = y, .b = b, .zero = zero, .sources = 1};
    l.source[0] = (source_t){.x = x, .w = w, .c = d->c};
    convolve(&l);
}

/* formula    y = round((conv2d_i8(x, w, b) + conv2d_i8(x2, w2)) * scale[o]) + zero, clamped to
 *            [low, high];  bit = it was in range
 * shapes     as conv2d_i8; bits[(n*p*q*o + 7) / 8] or NULL, scale[o]; x2[n,h,w,part] and
 *            w2[o,kh,kw,part/groups], or both NULL
 * aliasing   none
 * rounding   sums to float, one product, then to nearest, ties to even
 * workspace  100 KB of stack */
void whet_conv2d_i8_fused(int8_t *y, uint8_t *bits, const int8_t *x, const int8_t *w,
                          const int32_t *b, const float *scale, const int8_t *x2, const int8_t *w2,
                          const whet_narrow_t *to, const whet_conv2d_t *d) {
    layer_t l = {.d = d, .y = y, .bits = bits, .b = b, .scale = scale, .zero = to->x_zero};
    l.range = whet_range8(to);
    l.sources = x2 ? 2 : 1;
    l.source[0] = (source_t){.x = x, .w = w, .c = d->c};
    l.source[1] = (source_t){.x = x2, .w = w2, .c = to->part};
    convolve(&l);
}
