/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include "whet_panel.h"

/* Four channels at a time. A row of dy adds to each row of dx that its windows reach; taps that meet
 * at the same pixels of dx go together, up to three, from the last to the first: then a sum runs over
 * the pixels of dy in order. If c is no multiple of 4, the last four channels overlap those before,
 * and are made again from 0. */

enum { TAPS = 64, GROUP = 3 };

/* dx += w[0] * dy + w[-1] * dy' + w[-2] * dy'', for `count` > 0 pixels; dy', dy'' are `next` bytes
 * further than the one before, `taps` of them at all. Pixels of dx and dy are so many bytes apart. */
#define PIXEL(first, rest)                                             \
    "1: vldmia %[x], {s0, s1, s2, s3}\n"                               \
    "vldmia %[y], {s4, s5, s6, s7}\n"                                  \
    "vmla.f32 s0, s16, s4\n"                                           \
    "vmla.f32 s1, s17, s5\n"                                           \
    "vmla.f32 s2, s18, s6\n"                                           \
    "vmla.f32 s3, s19, s7\n" first rest "add %[y], %[y], %[dy_step]\n" \
    "subs %[count], %[count], #1\n"                                    \
    "vstmia %[x], {s0, s1, s2, s3}\n"                                  \
    "add %[x], %[x], %[dx_step]\n"                                     \
    "bne 1b\n"
#define AFTER(to, by0, by1, by2, by3)  \
    "add %[at], " to ", %[next]\n"     \
    "vldmia %[at], {s4, s5, s6, s7}\n" \
    "vmla.f32 s0, " by0 ", s4\n"       \
    "vmla.f32 s1, " by1 ", s5\n"       \
    "vmla.f32 s2, " by2 ", s6\n"       \
    "vmla.f32 s3, " by3 ", s7\n"
#define RUN(first, rest)                                                                \
    __asm__ volatile("vldmia %[w], {s16, s17, s18, s19}\n"                              \
                     "vldmia %[w1], {s20, s21, s22, s23}\n"                             \
                     "vldmia %[w2], {s24, s25, s26, s27}\n" PIXEL(first, rest)          \
                     : [x] "+r"(dx), [y] "+r"(dy), [count] "+r"(count), [at] "=&r"(at)  \
                     : [w] "r"(w[0]), [w1] "r"(w[1]), [w2] "r"(w[2]), [next] "r"(next), \
                       [dx_step] "r"(dx_step), [dy_step] "r"(dy_step)                   \
                     : WHET_FLOATS)

static void add_pixels(float *dx, int32_t dx_step, const float *dy, int32_t dy_step, int32_t next,
                       const float *const *w, int32_t taps, int32_t count) {
    const float *at;
    if (count <= 0) return;
    if (taps == 1)
        RUN("", "");
    else if (taps == 2)
        RUN(AFTER("%[y]", "s20", "s21", "s22", "s23"), "");
    else
        RUN(AFTER("%[y]", "s20", "s21", "s22", "s23"), AFTER("%[at]", "s24", "s25", "s26", "s27"));
}

/* How taps of a row meet: tap s with pixel q of dy is where tap s - taps is with pixel q + pixels. */
typedef struct {
    int32_t taps, pixels;
} meeting_t;

static meeting_t meeting(const whet_conv2d_t *d) {
    const meeting_t by_stride = {d->sw, 1}, by_dilation = {1, d->dw}, never = {d->kw, 1};
    return d->dw == 1 ? by_stride : d->sw == 1 ? by_dilation : never;
}

typedef struct {
    const whet_conv2d_t *d;
    const float *w; /* of a row of taps, four channels of each */
    float *dx;      /* the row, four channels of it */
    const float *dy;
    meeting_t meeting;
} row_t;

/* Taps s, s - meeting.taps, ..., of pixels [first, end) of dy, counted by the first tap. */
static void some(const row_t *row, int32_t s, int32_t taps, int32_t first, int32_t end) {
    const whet_conv2d_t *d = row->d;
    const int32_t step = 4 * d->c, hop = 4 * row->meeting.taps;
    const float *const w = row->w + 4 * s;
    const float *const by[GROUP] = {w, taps > 1 ? w - hop : w, taps > 2 ? w - 2 * hop : w};
    add_pixels(row->dx + (first * d->sw + s * d->dw - d->pw) * d->c, d->sw * step,
               row->dy + first * d->c, step, row->meeting.pixels * step, by, taps, end - first);
}

/* The same for all pixels that those taps have. Where some of them are outside dy, each alone. */
static void group(const row_t *row, int32_t s, int32_t taps) {
    const whet_conv2d_t *d = row->d;
    whet_range_t each[GROUP], all = {0, 0};
    for (int32_t k = 0; k < taps; k++) {
        const int32_t tap = s - k * row->meeting.taps, back = k * row->meeting.pixels;
        each[k] = whet_outputs(tap * d->dw - d->pw, d->w, d->sw, d->q);
        const int32_t first = each[k].first - back, end = each[k].end - back;
        all.first = k == 0 || first > all.first ? first : all.first;
        all.end = k == 0 ? end : whet_min(end, all.end);
    }
    if (all.end < all.first) all.end = all.first;
    for (int32_t k = 0; k < taps && taps > 1; k++) {
        const int32_t tap = s - k * row->meeting.taps, back = k * row->meeting.pixels;
        some(row, tap, 1, each[k].first, whet_min(all.first + back, each[k].end));
    }
    some(row, s, taps, all.first, all.end);
    for (int32_t k = 0; k < taps && taps > 1; k++) {
        const int32_t tap = s - k * row->meeting.taps, back = k * row->meeting.pixels;
        const int32_t begin = all.end + back;
        some(row, tap, 1, begin > each[k].first ? begin : each[k].first, each[k].end);
    }
}

/* A row of taps: those that meet, from the last on. */
static void add_row(const row_t *row) {
    const int32_t hop = row->meeting.taps, kw = row->d->kw;
    for (int32_t last = kw - 1; last >= 0 && last > kw - 1 - hop; last--)
        for (int32_t s = last, taps; s >= 0; s -= taps * hop) {
            taps = whet_min(GROUP, s / hop + 1);
            group(row, s, taps);
        }
}

static void four_channels(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    float panel[4 * TAPS];
    float *to = dx;
    for (int32_t i = d->n * d->h * d->w; i > 0; i--, to += d->c)
        to[0] = to[1] = to[2] = to[3] = 0.0f;
    whet_make_panel(panel, w, d->c, d->kh * d->kw, 0);
    for (int32_t i = 0; i < d->n * d->p; i++) {
        const int32_t n = i / d->p, top = i % d->p * d->sh - d->ph;
        for (int32_t r = 0; r < d->kh; r++) {
            const int32_t line = top + r * d->dh;
            const row_t row = {d, panel + 4 * r * d->kw, dx + (n * d->h + line) * d->w * d->c,
                               dy + i * d->q * d->c, meeting(d)};
            if (line >= 0 && line < d->h) add_row(&row);
        }
    }
}

/* All channels pixel by pixel, where they are fewer than four or windows are very large. */
static void each_pixel(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    whet_fill(dx, d->n * d->h * d->w * d->c, 0.0f);
    for (int32_t i = 0; i < d->n * d->p * d->q; i++) {
        const whet_span_t rows = whet_span(i / d->q % d->p, d->h, d->kh, d->sh, d->ph, d->dh);
        const whet_span_t cols = whet_span(i % d->q, d->w, d->kw, d->sw, d->pw, d->dw);
        float *image = dx + i / (d->p * d->q) * d->h * d->w * d->c;
        for (int32_t r = 0; r < rows.taps; r++)
            for (int32_t s = 0; s < cols.taps; s++) {
                const int32_t at = (rows.first + r * rows.step) * d->w + cols.first + s * cols.step;
                const int8_t *v = w + ((rows.cut + r) * d->kw + cols.cut + s) * d->c;
                for (int32_t c = 0; c < d->c; c++)
                    image[at * d->c + c] =
                        whet_mla(image[at * d->c + c], dy[i * d->c + c], (float)v[c]);
            }
    }
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c]
 * aliasing   none
 * rounding   added pixel of dy by pixel, row by row; every product and every sum is rounded
 * workspace  none */
void whet_depthwise_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    if (d->c < 4 || d->kh * d->kw > TAPS) {
        each_pixel(dx, dy, w, d);
        return;
    }
    for (int32_t c = 0; c < d->c; c += 4) {
        const int32_t first = whet_min(c, d->c - 4);
        four_channels(dx + first, dy + first, w + first, d);
    }
}
