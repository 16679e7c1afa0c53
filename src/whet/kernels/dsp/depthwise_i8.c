/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_dsp.h"

/* Four channels of a row of pixels at a time, w as pairs of 16 bits: channels 0 and 2, 1 and 3. If
 * c is not a multiple of 4, the last four overlap the previous ones, with the same results. */

enum { TAPS = 128, RUN = 32 }; /* maximum taps of a window; pixels whose sums are kept */

typedef struct {
    const whet_conv2d_t *d;
    const int8_t *x;
    const int8_t *w;
    const int32_t *b;
    int32_t zero;
    /* int32 results, or int8 ones and their parameters */
    int32_t *wide;
    int8_t *y;
    uint8_t *bits;
    const float *scale;
    const whet_narrow_t *to;
} layer_t;

typedef struct {
    int32_t channel, step, line; /* the first of four; bytes between taps, and between rows of x */
    uint32_t less;
    uint32_t b[4];
    uint32_t w[2 * TAPS];
    uint32_t sum[4 * RUN];
} work_t;

/* One tap of four channels: x is at r6 plus an offset, w at an offset from r1; sums are in r2 to
 * r5. */
#define TAP(offset, bytes)            \
    "ldr lr, [r6" offset "]\n"        \
    "ldrd r8, r9, [r1, #" bytes "]\n" \
    "sxtab16 r12, r0, lr\n"           \
    "sxtab16 lr, r0, lr, ror #8\n"    \
    "smlabb r2, r12, r8, r2\n"        \
    "smlatt r4, r12, r8, r4\n"        \
    "smlabb r3, lr, r9, r3\n"         \
    "smlatt r5, lr, r9, r5\n"
#define MOVE "add r6, r6, r10\n" /* to the next tap */
#define DOWN "add r6, r6, r11\n" /* to the next row */

/* Taps of a row; from the fourth on, each advances x. */
#define ROW2 TAP("", "0") TAP(", r10", "8")
#define ROW3 ROW2 TAP(", r10, lsl #1", "16")
#define ROW4 ROW3 MOVE TAP(", r10, lsl #1", "24")
#define ROW5 ROW4 MOVE TAP(", r10, lsl #1", "32")
#define ROW6 ROW5 MOVE TAP(", r10, lsl #1", "40")
#define ROW7 ROW6 MOVE TAP(", r10, lsl #1", "48")

/* Rows until the end of w. */
#define ROWS(row)                           \
    "2:\n" row "ldrd lr, r12, [sp, #28]\n"  \
    "add r1, r1, lr\n" DOWN "cmp r1, r12\n" \
    "bne 2b\n"

/* A whole 3x3 window. */
#define NINE                                                                                 \
    ROW3 DOWN TAP("", "24") TAP(", r10", "32") TAP(", r10, lsl #1", "40") DOWN TAP("", "48") \
        TAP(", r10", "56") TAP(", r10, lsl #1", "64")

/* Pixels with the same taps; all but the last three members are on the stack, at sp. */
typedef struct {
    const int8_t *x;
    int32_t next; /* bytes between pixels of x */
    uint32_t b[4];
    const uint32_t *w;
    int32_t kw; /* bytes of w in a row */
    const uint32_t *end;
    uint32_t *sum, *last;
    int32_t step, line; /* bytes between taps, and from the last tap of a row to the next row of
                         * x */
    uint32_t less;
} pixels_t;

#define WINDOWS(window)                                                                 \
    do {                                                                                \
        register const pixels_t *p_ __asm__("r0") = &pixels;                            \
        __asm__ volatile("ldmia r0!, {r1, r2, r3, r4, r5, r6, r8, r9, r10, r11, r12}\n" \
                         "push {r1, r2, r3, r4, r5, r6, r8, r9, r10, r11, r12}\n"       \
                         "ldmia r0, {r10, r11, r12}\n"                                  \
                         "mov r0, r12\n"                                                \
                         "1: ldrd r6, lr, [sp]\n"                                       \
                         "ldrd r2, r3, [sp, #8]\n"                                      \
                         "ldrd r4, r5, [sp, #16]\n"                                     \
                         "add lr, lr, r6\n"                                             \
                         "ldr r1, [sp, #24]\n"                                          \
                         "str lr, [sp]\n" window "ldrd lr, r12, [sp, #36]\n"            \
                         "stmia lr!, {r2, r3, r4, r5}\n"                                \
                         "cmp lr, r12\n"                                                \
                         "str lr, [sp, #36]\n"                                          \
                         "bne 1b\n"                                                     \
                         "add sp, sp, #44\n"                                            \
                         : "+r"(p_)                                                     \
                         :                                                              \
                         : WHET_REGISTERS);                                             \
    } while (0)

/* As above, for any window; a row of w has kw taps. */
static void any_window(uint32_t *sum, const work_t *work, const int8_t *x, const uint32_t *w,
                       int32_t rows, int32_t taps, int32_t kw) {
    uint32_t s0 = work->b[0], s1 = work->b[1], s2 = work->b[2], s3 = work->b[3];
    for (; rows > 0; rows--, x += work->line, w += 2 * kw) {
        const int8_t *from = x;
        const uint32_t *by = w;
        for (int32_t s = taps; s > 0; s--, from += work->step, by += 2) {
            const uint32_t v = whet_word(from);
            const uint32_t even = whet_add_even(work->less, v), odd = whet_add_odd(work->less, v);
            s0 = whet_low_dot(s0, even, by[0]);
            s2 = whet_high_dot(s2, even, by[0]);
            s1 = whet_low_dot(s1, odd, by[1]);
            s3 = whet_high_dot(s3, odd, by[1]);
        }
    }
    sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
}

/* sum = the windows of `count` > 0 pixels, `next` bytes apart: `rows` > 0 rows of `taps`; a row of
 * w has `kw`. */
static void windows(uint32_t *sum, const work_t *work, const int8_t *x, int32_t next,
                    const uint32_t *w, int32_t rows, int32_t taps, int32_t kw, int32_t count) {
    const int32_t moves = taps > 3 ? taps - 3 : 0;
    const uint32_t *b = work->b;
    const pixels_t pixels = {x,
                             next,
                             {b[0], b[1], b[2], b[3]},
                             w,
                             8 * kw,
                             w + 2 * rows * kw,
                             sum,
                             sum + 4 * count,
                             work->step,
                             work->line - moves * work->step,
                             work->less};
    if (taps == 3 && kw == 3 && rows == 3)
        WINDOWS(NINE);
    else if (taps == 2)
        WINDOWS(ROWS(ROW2));
    else if (taps == 3)
        WINDOWS(ROWS(ROW3));
    else if (taps == 4)
        WINDOWS(ROWS(ROW4));
    else if (taps == 5)
        WINDOWS(ROWS(ROW5));
    else if (taps == 6)
        WINDOWS(ROWS(ROW6));
    else if (taps == 7)
        WINDOWS(ROWS(ROW7));
    else
        for (int32_t k = 0; k < count; k++)
            any_window(sum + 4 * k, work, x + k * next, w, rows, taps, kw);
}

/* ---- Results. */

/* y = `count` pixels, c bytes apart, converted to the full int8 range. */
static void put_full(int8_t *y, const uint32_t *sum, const float *scale, int32_t count, int32_t c,
                     int32_t zero) {
    const uint32_t *const end = sum + 4 * count;
    uint32_t u, v, a, b;
    __asm__ volatile(
        "vldmia %[scale], {s4, s5, s6, s7}\n"
        "1: vldmia %[sum]!, {s0, s1, s2, s3}\n"
        "vcvt.f32.s32 s0, s0\n"
        "vcvt.f32.s32 s1, s1\n"
        "vcvt.f32.s32 s2, s2\n"
        "vcvt.f32.s32 s3, s3\n"
        "vmul.f32 s0, s0, s4\n"
        "vmul.f32 s1, s1, s5\n"
        "vmul.f32 s2, s2, s6\n"
        "vmul.f32 s3, s3, s7\n"
        "vcvtr.s32.f32 s0, s0\n"
        "vcvtr.s32.f32 s1, s1\n"
        "vcvtr.s32.f32 s2, s2\n"
        "vcvtr.s32.f32 s3, s3\n"
        "vmov %[u], %[v], s0, s1\n"
        "vmov %[a], %[b], s2, s3\n"
        "qadd %[u], %[u], %[zero]\n"
        "qadd %[v], %[v], %[zero]\n"
        "qadd %[a], %[a], %[zero]\n"
        "qadd %[b], %[b], %[zero]\n"
        "ssat %[u], #8, %[u]\n"
        "ssat %[v], #8, %[v]\n"
        "ssat %[a], #8, %[a]\n"
        "ssat %[b], #8, %[b]\n"
        "strb %[v], [%[y], #1]\n"
        "strb %[a], [%[y], #2]\n"
        "strb %[b], [%[y], #3]\n"
        "strb %[u], [%[y]]\n"
        "add %[y], %[y], %[c]\n"
        "cmp %[sum], %[end]\n"
        "bne 1b\n"
        : [sum] "+r"(sum), [y] "+r"(y), [u] "=&r"(u), [v] "=&r"(v), [a] "=&r"(a), [b] "=&r"(b)
        : [scale] "r"(scale), [zero] "r"(zero), [c] "r"(c), [end] "r"(end)
        : "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7", "cc", "memory");
}

/* As above, with any limits, and with bits, if needed. */
static inline void put_bits(int8_t *y, uint8_t *bits, int32_t first, const uint32_t *sum,
                            const float *scale, int32_t count, int32_t c, const whet_narrow_t *to,
                            const int32_t full) {
    for (; count > 0; count--, sum += 4, first += c) {
        const uint32_t inside = whet_narrow(y + first, sum[0], scale[0], to, full) |
                                whet_narrow(y + first + 1, sum[1], scale[1], to, full) << 1 |
                                whet_narrow(y + first + 2, sum[2], scale[2], to, full) << 2 |
                                whet_narrow(y + first + 3, sum[3], scale[3], to, full) << 3;
        if (bits != NULL) whet_or_bits(bits, first, inside);
    }
}

/* Four channels of `count` pixels from i on, from work->sum. */
static void put(const layer_t *l, const work_t *work, int32_t i, int32_t count) {
    const int32_t c = l->d->c, first = i * c + work->channel;
    if (l->wide != NULL) {
        for (int32_t k = 0; k < 4 * count; k++)
            l->wide[first + (k >> 2) * c + (k & 3)] = (int32_t)work->sum[k];
        return;
    }
    const float *scale = l->scale + work->channel;
    if (!whet_is_full(l->to))
        put_bits(l->y, l->bits, first, work->sum, scale, count, c, l->to, 0);
    else if (l->bits != NULL)
        put_bits(l->y, l->bits, first, work->sum, scale, count, c, l->to, 1);
    else
        put_full(l->y + first, work->sum, scale, count, c, l->to->zero);
}

/* ---- Pixels. */

/* A row of y: where its windows start in x and w, how many of their rows are inside the image, and
 * which pixels have all columns inside. */
typedef struct {
    const int8_t *x;
    const uint32_t *w;
    int32_t rows, first, end;
} line_t;

/* sum = pixel q, whose window crosses an edge. */
static void edge(uint32_t *sum, const layer_t *l, const work_t *work, const line_t *line,
                 int32_t q) {
    const whet_conv2d_t *d = l->d;
    const whet_span_t cols = whet_span(q, d->w, d->kw, d->sw, d->pw, d->dw);
    if (line->rows > 0 && cols.taps > 0)
        windows(sum, work, line->x + cols.first * d->c, 0, line->w + 2 * cols.cut, line->rows,
                cols.taps, d->kw, 1);
    else
        for (int32_t k = 0; k < 4; k++) sum[k] = work->b[k];
}

/* All pixels of the row, the first of which is pixel i of y. */
static void put_line(const layer_t *l, work_t *work, const line_t *line, int32_t i) {
    const whet_conv2d_t *d = l->d;
    const int32_t next = d->sw * d->c;
    for (int32_t begin = 0; begin < d->q; begin += RUN) {
        const int32_t stop = whet_min(begin + RUN, d->q);
        uint32_t *sum = work->sum;
        for (int32_t q = begin, count; q < stop; q += count, sum += 4 * count) {
            count = 1;
            if (q < line->first || q >= line->end || line->rows == 0) {
                edge(sum, l, work, line, q);
                continue;
            }
            count = whet_min(stop, line->end) - q;
            windows(sum, work, line->x + q * next - d->pw * d->c, next, line->w, line->rows, d->kw,
                    d->kw, count);
        }
        put(l, work, i + begin, stop - begin);
    }
}

static void prepare(const layer_t *l, work_t *work, int32_t channel) {
    const whet_conv2d_t *d = l->d;
    const int8_t *w = l->w + channel;
    uint32_t *to = work->w;
    work->channel = channel;
    for (int32_t k = 0; k < 4; k++) work->b[k] = l->b ? (uint32_t)l->b[channel + k] : 0u;
    for (int32_t k = d->kh * d->kw; k > 0; k--, w += d->c, to += 2) {
        const uint32_t v = whet_word(w);
        to[0] = whet_even(v);
        to[1] = whet_odd(v);
    }
}

static void four_channels(const layer_t *l, work_t *work) {
    const whet_conv2d_t *d = l->d;
    const int32_t room = d->w - 1 - (d->kw - 1) * d->dw + d->pw;
    line_t line = {.first = (d->pw + d->sw - 1) / d->sw};
    line.end = room < 0 ? 0 : whet_min(room / d->sw + 1, d->q);
    for (int32_t n = 0; n < d->n; n++)
        for (int32_t p = 0; p < d->p; p++) {
            const whet_span_t rows = whet_span(p, d->h, d->kh, d->sh, d->ph, d->dh);
            line.x = l->x + (n * d->h + rows.first) * d->w * d->c + work->channel;
            line.w = work->w + 2 * rows.cut * d->kw;
            line.rows = rows.taps;
            put_line(l, work, &line, (n * d->p + p) * d->q);
        }
}

/* One channel at a time, for fewer than four channels or very large windows. */
static void each_channel(const layer_t *l) {
    const whet_conv2d_t *d = l->d;
    for (int32_t k = 0; k < d->n * d->p * d->q * d->c; k++) {
        const int32_t i = k / d->c, c = k % d->c;
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        const int8_t *image = l->x + i / (d->p * d->q) * d->h * d->w * d->c + c;
        uint32_t sum = l->b ? (uint32_t)l->b[c] : 0u;
        for (int32_t r = 0; r < rows.taps; r++)
            for (int32_t s = 0; s < cols.taps; s++) {
                const int32_t row = rows.first + r * rows.step, col = cols.first + s * cols.step;
                const int32_t tap = (rows.cut + r) * d->kw + cols.cut + s;
                sum +=
                    (uint32_t)((image[(row * d->w + col) * d->c] - l->zero) * l->w[tap * d->c + c]);
            }
        if (l->wide != NULL) {
            l->wide[k] = (int32_t)sum;
            continue;
        }
        const int32_t v = whet_scaled(sum, l->scale[c], l->to->zero);
        const int32_t held = whet_hold(v, l->to, 0);
        l->y[k] = (int8_t)held;
        if (l->bits != NULL) whet_or_bits(l->bits, k, v == held);
    }
}

static void run(const layer_t *l) {
    const whet_conv2d_t *d = l->d;
    work_t work;
    if (d->c < 4 || d->kh * d->kw > TAPS) {
        each_channel(l);
        return;
    }
    work.less = whet_less(l->zero);
    work.step = d->dw * d->c;
    work.line = d->dh * d->w * d->c;
    for (int32_t c = 0; c < d->c; c += 4) {
        prepare(l, &work, whet_min(c, d->c - 4));
        four_channels(l, &work);
    }
}

/* formula    y[n,p,q,c] = b[c] + sum_{r,s} (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] - zero) *
 *            w[r,s,c], padding adds nothing
 * shapes     y[n,p,q,c], x[n,h,w,c], w[kh,kw,c], b[c] or NULL
 * aliasing   none
 * rounding   none; sums wrap around
 * workspace  none */
void whet_depthwise_i8(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int32_t zero,
                       const whet_conv2d_t *d) {
    const layer_t l = {.d = d, .x = x, .w = w, .b = b, .zero = zero, .wide = y};
    run(&l);
}

/* formula    y = round(depthwise_i8(x, w, b) * scale[c]) + zero, clamped to [low, high];
 *            bit = it was in range
 * shapes     as depthwise_i8; bits[(n*p*q*c + 7) / 8] or NULL, scale[c]
 * aliasing   none
 * rounding   sums to float, one product, then to nearest, ties to even
 * workspace  none */
void whet_depthwise_i8_fused(int8_t *y, uint8_t *bits, const int8_t *x, const int8_t *w,
                             const int32_t *b, const float *scale, const whet_narrow_t *to,
                             const whet_conv2d_t *d) {
    const layer_t l = {.d = d,
                       .x = x,
                       .w = w,
                       .b = b,
                       .zero = to->x_zero,
                       .y = y,
                       .bits = bits,
                       .scale = scale,
                       .to = to};
    if (bits != NULL) memset(bits, 0, (size_t)(d->n * d->p * d->q * d->c + 7) / 8);
    run(&l);
}
