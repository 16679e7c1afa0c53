/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_dsp.h"

/* The windows of two pixels are copied as pairs of 16 bits, minus the zero point: a column of four
 * words for four numbers of each. Two rows of w are then multiplied with them at a time. Long
 * windows are processed in pieces, and the sums of some outputs are kept. */

enum { DEPTH = 360, OUTPUTS = 32 }; /* numbers of a window, outputs at a time; a multiple of 4 */

typedef struct {
    const int8_t *x, *w;
    int32_t c; /* channels of x */
} part_t;

typedef struct {
    const whet_conv2d_t *d;
    part_t part[2];
    int32_t parts, whole; /* length of a window if it fits into one column, else 0 */
    int32_t plain;        /* whether a window is a pixel of x, and all are in order */
    int32_t zero;
    const int32_t *b;
} layer_t;

static int32_t is_plain(const whet_conv2d_t *d) {
    return d->kh * d->kw * d->sh * d->sw == 1 && (d->ph | d->pw) == 0 && d->p == d->h &&
           d->q == d->w;
}

typedef struct {
    uint32_t column[DEPTH];
    uint32_t sum[2 * OUTPUTS]; /* two pixels of each output */
    int8_t bytes[DEPTH];
} work_t;

/* A piece of a window: some taps, or channels of one tap. */
typedef struct {
    int32_t tap, taps, first, channels;
} piece_t;

/* ---- Columns. */

static inline void expand_word(uint32_t *to, const int8_t *x, uint32_t less) {
    const uint32_t v = whet_word(x);
    to[0] = whet_add_even(less, v);
    to[1] = whet_add_odd(less, v);
}

/* to[..] = n numbers; if n is not a multiple of 4, the last word holds the last four numbers, with
 * 0 for those that are also in the previous word. */
static void expand(uint32_t *to, const int8_t *x, int32_t n, uint32_t less) {
    int32_t i = n;
    for (; i >= 16; i -= 16, x += 16, to += 16) {
        expand_word(to, x, less);
        expand_word(to + 4, x + 4, less);
        expand_word(to + 8, x + 8, less);
        expand_word(to + 12, x + 12, less);
    }
    for (; i >= 4; i -= 4, x += 4, to += 4) expand_word(to, x, less);
    if (i == 0) return;
    const uint32_t v = n < 4 ? whet_part_word(x, i) : whet_word(x + i - 4);
    const uint32_t even = whet_add_even(less, v), odd = whet_add_odd(less, v);
    to[0] = n < 4 ? even : i == 1 ? 0u : even & 0xffff0000u;
    to[1] = n < 4 || i == 3 ? odd : odd & 0xffff0000u;
}

static void clear(uint32_t *to, int32_t n) {
    for (const uint32_t *const end = to + n; to < end; to += 4) to[0] = to[1] = 0u;
}

static inline void copy(int8_t *to, const int8_t *x, int32_t n) {
    if (n < 4) {
        for (; n > 0; n--) *to++ = *x++;
        return;
    }
    const int32_t last = n - 4; /* may overlap the previous word */
    for (int32_t i = 0; i < last; i += 4) whet_put_word(to + i, whet_word(x + i));
    whet_put_word(to + last, whet_word(x + last));
}

/* The window of pixel i of y. */
typedef struct {
    const int8_t *image;
    int32_t top, left;
    int32_t joined; /* whether the taps of a row are contiguous in x */
} place_t;

static inline place_t place(const whet_conv2d_t *d, const int8_t *x, int32_t c, int32_t n,
                            int32_t i) {
    const int32_t line = i / d->q, image = line / d->p;
    const int32_t top = (line - image * d->p) * d->sh - d->ph;
    const int32_t left = (i - line * d->q) * d->sw - d->pw;
    const int32_t inside = left >= 0 && left + d->kw <= d->w;
    const place_t v = {x + image * d->h * d->w * c, top, left, inside && d->dw == 1 && n == c};
    return v;
}

/* The next n numbers of a window: to the column, or first to the byte buffer, which is filled word
 * by word; NULL is padding. */
static inline void put_run(uint32_t *column, int8_t *bytes, const int8_t *x, int32_t n,
                           int32_t direct, uint32_t less, int32_t zero) {
    if (direct && x != NULL)
        expand(column, x, n, less);
    else if (direct)
        clear(column, n);
    else if (x != NULL)
        copy(bytes, x, n);
    else
        memset(bytes, zero, (size_t)n);
}

/* A piece of the window of pixel i, through `bytes` if taps do not fill words. */
static void fill(uint32_t *column, int8_t *bytes, const layer_t *l, const part_t *part,
                 const piece_t *piece, int32_t i, int32_t group) {
    const whet_conv2d_t *d = l->d;
    const int32_t n = piece->channels, direct = piece->taps == 1 || n % 4 == 0;
    const int32_t first = group * (part->c / d->groups) + piece->first;
    const place_t at = place(d, part->x + first, part->c, n, i);
    const uint32_t less = whet_less(l->zero);
    for (int32_t k = 0; k < piece->taps; k++) {
        const int32_t tap = piece->tap + k, r = tap / d->kw, s = tap - r * d->kw;
        const int32_t row = at.top + r * d->dh, col = at.left + s * d->dw;
        const int32_t inside = (uint32_t)row < (uint32_t)d->h && (uint32_t)col < (uint32_t)d->w;
        const int8_t *x = inside ? at.image + (row * d->w + col) * part->c : NULL;
        put_run(column + k * n, bytes + k * n, x, n, direct, less, l->zero);
    }
    if (!direct) expand(column, bytes, piece->taps * n, less);
}

/* Consecutive lines of n numbers of x at a fixed distance. */
static void copy_lines(int8_t *to, const int8_t *x, int32_t step, int32_t n, int32_t lines) {
    for (; lines > 0; lines--, x += step, to += n) copy(to, x, n);
}

static void expand_lines(uint32_t *to, const int8_t *x, int32_t step, int32_t n, int32_t lines,
                         uint32_t less) {
    for (; lines > 0; lines--, x += step, to += n) expand(to, x, n, less);
}

/* The whole window of pixel i. */
static void fill_whole(uint32_t *column, int8_t *bytes, const layer_t *l, int32_t i,
                       int32_t group) {
    const whet_conv2d_t *d = l->d;
    const part_t *part = &l->part[0];
    const int32_t c = part->c, n = c / d->groups, line = d->kw * n;
    const uint32_t less = whet_less(l->zero);
    if (l->plain) {
        expand(column, part->x + i * c + group * n, n, less);
        return;
    }
    const place_t at = place(d, part->x + group * n, c, n, i);
    const int32_t direct = n % 4 == 0 || l->whole == n;
    if (at.joined && at.top >= 0 && at.top + (d->kh - 1) * d->dh < d->h) {
        const int8_t *x = at.image + (at.top * d->w + at.left) * c;
        const int32_t step = d->dh * d->w * c;
        if (direct) {
            expand_lines(column, x, step, line, d->kh, less);
        } else {
            copy_lines(bytes, x, step, line, d->kh);
            expand(column, bytes, l->whole, less);
        }
        return;
    }
    int32_t k = 0, row = at.top;
    for (int32_t r = d->kh; r > 0; r--, row += d->dh) {
        const int32_t inside = (uint32_t)row < (uint32_t)d->h;
        if (at.joined || !inside) {
            const int8_t *x = inside ? at.image + (row * d->w + at.left) * c : NULL;
            put_run(column + k, bytes + k, x, line, direct, less, l->zero);
            k += line;
            continue;
        }
        int32_t col = at.left;
        for (int32_t s = d->kw; s > 0; s--, col += d->dw, k += n) {
            const int8_t *x =
                (uint32_t)col < (uint32_t)d->w ? at.image + (row * d->w + col) * c : NULL;
            put_run(column + k, bytes + k, x, n, direct, less, l->zero);
        }
    }
    if (!direct) expand(column, bytes, k, less);
}

/* ---- Products. */

/* The last n % 4 numbers of a row of w, in the order of `expand`. */
static inline uint32_t rest(const int8_t *w, int32_t n) {
    return n < 4 ? whet_part_word(w, n) : whet_word(w + (n & 3) - 4);
}

/* Four numbers of two pixels, at r6, and of two rows of w, at r0 and r1. */
#define QUAD                          \
    "ldmia r6!, {r8, r9, r10, r11}\n" \
    "ldr lr, [r0], #4\n"              \
    "sxtb16 r12, lr\n"                \
    "sxtb16 lr, lr, ror #8\n"         \
    "smlad r2, r8, r12, r2\n"         \
    "smlad r3, r10, r12, r3\n"        \
    "smlad r2, r9, lr, r2\n"          \
    "smlad r3, r11, lr, r3\n"         \
    "ldr lr, [r1], #4\n"              \
    "sxtb16 r12, lr\n"                \
    "sxtb16 lr, lr, ror #8\n"         \
    "smlad r4, r8, r12, r4\n"         \
    "smlad r5, r10, r12, r5\n"        \
    "smlad r4, r9, lr, r4\n"          \
    "smlad r5, r11, lr, r5\n"

/* The stack frame of add_pairs, at sp. */
typedef struct {
    const int8_t *w;
    int32_t ldw;
    uint32_t *sum;
    const uint32_t *x, *fours; /* the column, and the end of its groups of 16 */
    int32_t n, back;           /* how far w moves back for the last word */
    const uint32_t *end;       /* of the sums */
} pairs_t;

/* sum += the products of n >= 4 numbers of two pixels with rows of w, two at a time. */
static void add_pairs(const pairs_t *pairs) {
    register const pairs_t *p __asm__("r0") = pairs;
    __asm__ volatile("ldmia r0, {r1, r2, r3, r4, r5, r6, r8, r9}\n"
                     "push {r1, r2, r3, r4, r5, r6, r8, r9}\n"
                     "1: ldrd r0, lr, [sp]\n"
                     "add r1, r0, lr\n"
                     "ldr r12, [sp, #8]\n"
                     "add lr, lr, r1\n"
                     "ldmia r12, {r2, r3, r4, r5}\n"
                     "str lr, [sp]\n"
                     "ldrd r6, lr, [sp, #12]\n"
                     "cmp r6, lr\n"
                     "beq 3f\n"
                     "2:\n" QUAD QUAD QUAD QUAD "ldr lr, [sp, #16]\n"
                     "cmp r6, lr\n"
                     "bne 2b\n"
                     "3: ldr lr, [sp, #20]\n"
                     "lsls lr, lr, #28\n" /* zero: none left; negative: 8 or more */
                     "beq 6f\n"
                     "bpl 4f\n" QUAD QUAD "4: ldr lr, [sp, #20]\n"
                     "lsls lr, lr, #29\n" /* negative: 4 or more */
                     "bpl 5f\n" QUAD "5: ldr lr, [sp, #24]\n"
                     "cmp lr, #0\n"
                     "beq 6f\n"
                     "add r0, r0, lr\n"
                     "add r1, r1, lr\n" QUAD "6: ldr r12, [sp, #8]\n"
                     "ldr lr, [sp, #28]\n"
                     "stmia r12!, {r2, r3, r4, r5}\n"
                     "cmp r12, lr\n"
                     "str r12, [sp, #8]\n"
                     "bne 1b\n"
                     "add sp, sp, #32\n"
                     : "+r"(p)
                     :
                     : WHET_REGISTERS);
}

/* sum += the products of few pixels and rows; both are constants after inlining. */
static inline void few(uint32_t *sum, const uint32_t *x, const int8_t *w, int32_t ldw, int32_t n,
                       const int32_t pixels, const int32_t rows) {
    uint32_t s[2][2] = {{0}};
    const uint32_t *const end = x + (n & ~3);
    for (; x < end; x += 4, w += 4)
        for (int32_t k = 0; k < rows; k++) {
            const uint32_t v = whet_word(w + k * ldw), even = whet_even(v), odd = whet_odd(v);
            for (int32_t p = 0; p < pixels; p++)
                s[k][p] = whet_dot2(whet_dot2(s[k][p], x[2 * p], even), x[2 * p + 1], odd);
        }
    for (int32_t k = 0; k < rows; k++)
        for (int32_t p = 0; p < pixels; p++) {
            if (n & 3) {
                const uint32_t v = rest(w + k * ldw, n);
                s[k][p] = whet_dot2(s[k][p], x[2 * p], whet_even(v));
                s[k][p] = whet_dot2(s[k][p], x[2 * p + 1], whet_odd(v));
            }
            sum[2 * k + p] += s[k][p];
        }
}

static void add_pair(uint32_t *sum, const uint32_t *x, const int8_t *w, int32_t ldw, int32_t n,
                     int32_t outputs) {
    const int32_t pairs = n < 4 ? 0 : outputs & ~1;
    const pairs_t p = {w, ldw, sum, x, x + (n & ~15), n, n & 3 ? (n & 3) - 4 : 0, sum + 2 * pairs};
    if (pairs) add_pairs(&p);
    for (int32_t k = pairs; k < outputs; k++) few(sum + 2 * k, x, w + k * ldw, ldw, n, 2, 1);
}

static void add_single(uint32_t *sum, const uint32_t *x, const int8_t *w, int32_t ldw, int32_t n,
                       int32_t outputs) {
    for (; outputs >= 2; outputs -= 2, sum += 4, w += 2 * ldw) few(sum, x, w, ldw, n, 1, 2);
    if (outputs) few(sum, x, w, ldw, n, 1, 1);
}

/* ---- Sums. */

static inline void start(uint32_t *sum, const int32_t *b, int32_t count) {
    if (b == NULL) {
        memset(sum, 0, (size_t)count * 2 * sizeof *sum);
        return;
    }
    for (; count >= 4; count -= 4, sum += 8, b += 4) {
        const uint32_t b0 = (uint32_t)b[0], b1 = (uint32_t)b[1], b2 = (uint32_t)b[2];
        const uint32_t b3 = (uint32_t)b[3];
        sum[0] = b0, sum[1] = b0, sum[2] = b1, sum[3] = b1;
        sum[4] = b2, sum[5] = b2, sum[6] = b3, sum[7] = b3;
    }
    for (; count > 0; count--, sum += 2) sum[0] = sum[1] = (uint32_t)*b++;
}

static void add(uint32_t *sum, const uint32_t *x, const int8_t *w, int32_t ldw, int32_t n,
                int32_t outputs, int32_t pixels) {
    if (pixels == 2)
        add_pair(sum, x, w, ldw, n, outputs);
    else
        add_single(sum, x, w, ldw, n, outputs);
}

/* work->sum += outputs o .. o + count, of one group, for pixel i and, if there are two, the
 * next. */
static void add_pieces(work_t *work, const layer_t *l, int32_t i, int32_t pixels, int32_t o,
                       int32_t count) {
    const whet_conv2d_t *d = l->d;
    const int32_t group = o / (d->o / d->groups), taps = d->kh * d->kw;
    for (int32_t k = 0; k < l->parts; k++) {
        const part_t *part = &l->part[k];
        const int32_t ci = part->c / d->groups, n = whet_min(ci, DEPTH), ldw = taps * ci;
        const int32_t most = n < ci ? 1 : DEPTH / n;
        for (int32_t t = 0; t < taps; t += most)
            for (int32_t c = 0; c < ci; c += n) {
                const piece_t piece = {t, whet_min(most, taps - t), c, whet_min(n, ci - c)};
                const int8_t *w = part->w + o * ldw + t * ci + c;
                for (int32_t p = 0; p < pixels; p++)
                    fill(work->column + 2 * p, work->bytes, l, part, &piece, i + p, group);
                add(work->sum, work->column, w, ldw, piece.taps * piece.channels, count, pixels);
            }
    }
}

/* As above, starting from 0; a whole column serves all outputs of its group. */
static void sum_up(work_t *work, const layer_t *l, int32_t i, int32_t pixels, int32_t o,
                   int32_t count) {
    const int32_t n = l->whole;
    start(work->sum, l->b ? l->b + o : NULL, count);
    if (n == 0) {
        add_pieces(work, l, i, pixels, o, count);
        return;
    }
    const int32_t co = l->d->o / l->d->groups, group = o / co;
    if (o == group * co)
        for (int32_t p = 0; p < pixels; p++)
            fill_whole(work->column + 2 * p, work->bytes, l, i + p, group);
    add(work->sum, work->column, l->part[0].w + o * n, n, n, count, pixels);
}

/* The number of outputs from o on that are summed together: up to OUTPUTS of one group. */
static int32_t together(const whet_conv2d_t *d, int32_t o) {
    const int32_t co = d->o / d->groups;
    return whet_min(OUTPUTS, co - o % co);
}

/* formula    y[n,p,q,o] = b[o] + sum_{r,s,i} (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero) *
 *            w[o,r,s,i], padding adds nothing
 * shapes     y[n,p,q,o], x[n,h,w,c], w[o,kh,kw,c/groups], b[o] or NULL
 * aliasing   none
 * rounding   none; sums wrap around
 * workspace  none */
void whet_conv2d_i8(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int32_t zero,
                    const whet_conv2d_t *d) {
    const int32_t size = d->kh * d->kw * (d->c / d->groups), all = d->n * d->p * d->q;
    const layer_t l = {
        d, {{x, w, d->c}, {NULL, NULL, 0}}, 1, size <= DEPTH ? size : 0, is_plain(d), zero, b};
    work_t work;
    for (int32_t i = 0; i < all; i += 2) {
        const int32_t pixels = whet_min(2, all - i);
        for (int32_t o = 0, count; o < d->o; o += count) {
            count = together(d, o);
            sum_up(&work, &l, i, pixels, o, count);
            for (int32_t k = 0; k < count; k++)
                for (int32_t p = 0; p < pixels; p++)
                    y[(i + p) * d->o + o + k] = (int32_t)work.sum[2 * k + p];
        }
    }
}

/* ---- Conversion to int8. */

/* y[k] and y[k + next] = the sums of two pixels, converted to the full int8 range; count is
 * even. */
static void put_full(int8_t *y, int32_t next, const uint32_t *sum, const float *scale,
                     int32_t count, int32_t zero) {
    int8_t *y2 = y + next;
    const float *const end = scale + count;
    uint32_t a, b, c, d;
    __asm__ volatile("1: vldmia %[sum]!, {s0, s1, s2, s3}\n"
                     "vldmia %[scale]!, {s4, s5}\n"
                     "vcvt.f32.s32 s0, s0\n"
                     "vcvt.f32.s32 s1, s1\n"
                     "vcvt.f32.s32 s2, s2\n"
                     "vcvt.f32.s32 s3, s3\n"
                     "vmul.f32 s0, s0, s4\n"
                     "vmul.f32 s1, s1, s4\n"
                     "vmul.f32 s2, s2, s5\n"
                     "vmul.f32 s3, s3, s5\n"
                     "vcvtr.s32.f32 s0, s0\n"
                     "vcvtr.s32.f32 s1, s1\n"
                     "vcvtr.s32.f32 s2, s2\n"
                     "vcvtr.s32.f32 s3, s3\n"
                     "vmov %[a], %[b], s0, s1\n"
                     "vmov %[c], %[d], s2, s3\n"
                     "qadd %[a], %[a], %[zero]\n"
                     "qadd %[b], %[b], %[zero]\n"
                     "qadd %[c], %[c], %[zero]\n"
                     "qadd %[d], %[d], %[zero]\n"
                     "ssat %[a], #8, %[a]\n"
                     "ssat %[b], #8, %[b]\n"
                     "ssat %[c], #8, %[c]\n"
                     "ssat %[d], #8, %[d]\n"
                     "strb %[a], [%[y]], #1\n"
                     "strb %[b], [%[y2]], #1\n"
                     "strb %[c], [%[y]], #1\n"
                     "strb %[d], [%[y2]], #1\n"
                     "cmp %[scale], %[end]\n"
                     "bne 1b\n"
                     : [sum] "+r"(sum), [scale] "+r"(scale), [y] "+r"(y), [y2] "+r"(y2),
                       [a] "=&r"(a), [b] "=&r"(b), [c] "=&r"(c), [d] "=&r"(d)
                     : [zero] "r"(zero), [end] "r"(end)
                     : "s0", "s1", "s2", "s3", "s4", "s5", "cc", "memory");
}

static void put_pair(int8_t *y, int32_t next, const uint32_t *sum, const float *scale,
                     int32_t count, const whet_narrow_t *to) {
    const int32_t fast = whet_is_full(to) ? count & ~1 : 0;
    if (fast) put_full(y, next, sum, scale, fast, to->zero);
    for (int32_t k = fast; k < count; k++) {
        y[k] = (int8_t)whet_hold(whet_scaled(sum[2 * k], scale[k], to->zero), to, 0);
        y[k + next] = (int8_t)whet_hold(whet_scaled(sum[2 * k + 1], scale[k], to->zero), to, 0);
    }
}

/* y[k] = the sums of one pixel, converted to int8, and the bits from index on, if needed. */
static inline void put_bits(int8_t *y, uint8_t *bits, int32_t index, const uint32_t *sum,
                            const float *scale, int32_t count, const whet_narrow_t *to,
                            const int32_t full) {
    int32_t k = 0;
#define ONE(l) whet_narrow(y + k + l, sum[2 * (k + l)], scale[k + l], to, full) << l
    for (; k + 4 <= count; k += 4) {
        const uint32_t inside = ONE(0) | ONE(1) | ONE(2) | ONE(3);
        if (bits != NULL) whet_or_bits(bits, index + k, inside);
    }
    for (; k < count; k++) {
        const uint32_t inside = ONE(0);
        if (bits != NULL) whet_or_bits(bits, index + k, inside);
    }
#undef ONE
}

static void put_single(int8_t *y, uint8_t *bits, int32_t index, const uint32_t *sum,
                       const float *scale, int32_t count, const whet_narrow_t *to) {
    if (whet_is_full(to))
        put_bits(y, bits, index, sum, scale, count, to, 1);
    else
        put_bits(y, bits, index, sum, scale, count, to, 0);
}

/* formula    y = round((conv2d_i8(x, w, b) + conv2d_i8(x2, w2)) * scale[o]) + zero, clamped to
 *            [low, high];  bit = it was in range
 * shapes     as conv2d_i8; bits[(n*p*q*o + 7) / 8] or NULL, scale[o]; x2[n,h,w,part] and
 *            w2[o,kh,kw,part/groups], or both NULL
 * aliasing   none
 * rounding   sums to float, one product, then to nearest, ties to even
 * workspace  none */
void whet_conv2d_i8_fused(int8_t *y, uint8_t *bits, const int8_t *x, const int8_t *w,
                          const int32_t *b, const float *scale, const int8_t *x2, const int8_t *w2,
                          const whet_narrow_t *to, const whet_conv2d_t *d) {
    const int32_t size = d->kh * d->kw * (d->c / d->groups), all = d->n * d->p * d->q;
    const layer_t l = {d,
                       {{x, w, d->c}, {x2, w2, to->part}},
                       x2 ? 2 : 1,
                       size <= DEPTH && x2 == NULL ? size : 0,
                       is_plain(d),
                       to->x_zero,
                       b};
    work_t work;
    if (bits != NULL) memset(bits, 0, (size_t)(all * d->o + 7) / 8);
    for (int32_t i = 0; i < all; i += 2) {
        const int32_t pixels = whet_min(2, all - i);
        for (int32_t o = 0, count; o < d->o; o += count) {
            const int32_t first = i * d->o + o;
            count = together(d, o);
            sum_up(&work, &l, i, pixels, o, count);
            if (pixels == 2 && bits == NULL) {
                put_pair(y + first, d->o, work.sum, scale + o, count, to);
                continue;
            }
            for (int32_t p = 0; p < pixels; p++) {
                const int32_t index = first + p * d->o;
                put_single(y + index, bits, index, work.sum + p, scale + o, count, to);
            }
        }
    }
}
