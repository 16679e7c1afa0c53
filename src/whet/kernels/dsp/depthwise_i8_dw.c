/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include "whet_panel.h"

/* Four channels at a time. A row of x becomes floats, and is used for every row of taps that reaches
 * it; up to three taps share what is read of dy. Sums wait in a list until the last row. If c is no
 * multiple of 4, the last four channels overlap those before, and are made again. */

enum { TAPS = 64, WIDTH = 64, GROUP = 3 };

#define TAP(s0, s1, s2, s3, x0, x1, x2, x3) \
    "vmla.f32 " s0 ", " x0 ", s24\n"        \
    "vmla.f32 " s1 ", " x1 ", s25\n"        \
    "vmla.f32 " s2 ", " x2 ", s26\n"        \
    "vmla.f32 " s3 ", " x3 ", s27\n"
#define TAP1  TAP("s0", "s1", "s2", "s3", "s12", "s13", "s14", "s15")
#define TAP2  TAP1 TAP("s4", "s5", "s6", "s7", "s16", "s17", "s18", "s19")
#define TAP3  TAP2 TAP("s8", "s9", "s10", "s11", "s20", "s21", "s22", "s23")
#define SUMS1 "{s0, s1, s2, s3}\n"
#define SUMS2 "{s0, s1, s2, s3, s4, s5, s6, s7}\n"
#define SUMS3 "{s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11}\n"
#define X1    "{s12, s13, s14, s15}\n"
#define X2    "{s12, s13, s14, s15, s16, s17, s18, s19}\n"
#define X3    "{s12, s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23}\n"
#define RUN(sums, xs, taps)                                                             \
    __asm__ volatile("vldmia %[sum], " sums "1: vldmia %[y], {s24, s25, s26, s27}\n"    \
                     "vldmia %[x], " xs "add %[y], %[y], %[dy_step]\n"                  \
                     "subs %[count], %[count], #1\n" taps "add %[x], %[x], %[x_step]\n" \
                     "bne 1b\n"                                                         \
                     "vstmia %[sum], " sums                                             \
                     : [x] "+r"(x), [y] "+r"(dy), [count] "+r"(count)                   \
                     : [sum] "r"(sum), [x_step] "r"(x_step), [dy_step] "r"(dy_step)     \
                     : WHET_FLOATS)

/* sum[t] += dy * x[t] for `count` > 0 pixels and neighbouring taps t, of four channels each; pixels
 * of x and dy are so many bytes apart. */
static void add_pixels(float *sum, const float *dy, int32_t dy_step, const float *x, int32_t x_step,
                       int32_t taps, int32_t count) {
    if (count <= 0) return;
    if (taps == 1)
        RUN(SUMS1, X1, TAP1);
    else if (taps == 2)
        RUN(SUMS2, X2, TAP2);
    else
        RUN(SUMS3, X3, TAP3);
}

/* A row of dy and a part of a row of x, from column `left` on. */
typedef struct {
    const whet_conv2d_t *d;
    const float *dy, *x;
    float *sum; /* of a row of taps */
    int32_t left, width;
} row_t;

/* Taps s to s + taps of the pixels [first, end) of dy. */
static void some(const row_t *row, int32_t s, int32_t taps, int32_t first, int32_t end) {
    const whet_conv2d_t *d = row->d;
    const int32_t col = first * d->sw + s * d->dw - d->pw - row->left;
    add_pixels(row->sum + 4 * s, row->dy + first * d->c, 4 * d->c, row->x + 4 * col, 16 * d->sw,
               taps, end - first);
}

/* The same for all pixels that those taps have; every tap meets its pixels in order. */
static void group(const row_t *row, int32_t s, int32_t taps) {
    const whet_conv2d_t *d = row->d;
    whet_range_t each[GROUP], all = {0, d->q};
    for (int32_t k = 0; k < taps; k++) {
        const int32_t offset = (s + k) * d->dw - d->pw - row->left;
        each[k] = whet_outputs(offset, row->width, d->sw, d->q);
        all.first = each[k].first > all.first ? each[k].first : all.first;
        all.end = whet_min(each[k].end, all.end);
    }
    if (all.end < all.first) all.end = all.first;
    for (int32_t k = 0; k < taps; k++)
        some(row, s + k, 1, each[k].first, whet_min(all.first, each[k].end));
    some(row, s, taps, all.first, all.end);
    for (int32_t k = 0; k < taps; k++) {
        const int32_t begin = all.end > each[k].first ? all.end : each[k].first;
        some(row, s + k, 1, begin, each[k].end);
    }
}

static void add_row(const row_t *row) {
    const whet_conv2d_t *d = row->d;
    const int32_t most = d->dw == 1 ? GROUP : 1;
    for (int32_t s = 0; s < d->kw; s += most) group(row, s, whet_min(most, d->kw - s));
}

/* All rows of taps that reach row `line` of image n; a part of it is in the panel. */
static void add_line(row_t *row, const float *dy, float *sum, int32_t n, int32_t line) {
    const whet_conv2d_t *d = row->d;
    for (int32_t r = 0; r < d->kh; r++) {
        const int32_t below = line + d->ph - r * d->dh, p = below / d->sh;
        if (below < 0 || p * d->sh != below || p >= d->p) continue;
        row->dy = dy + (n * d->p + p) * d->q * d->c;
        row->sum = sum + 4 * r * d->kw;
        add_row(row);
    }
}

static void four_channels(float *dw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d) {
    float sum[4 * TAPS], panel[4 * WIDTH];
    const int32_t taps = d->kh * d->kw;
    row_t row = {.d = d, .x = panel};
    whet_fill(sum, 4 * taps, 0.0f);
    for (int32_t i = 0; i < d->n * d->h; i++)
        for (row.left = 0; row.left < d->w; row.left += WIDTH) {
            row.width = whet_min(WIDTH, d->w - row.left);
            whet_make_panel(panel, x + (i * d->w + row.left) * d->c, d->c, row.width, zero);
            add_line(&row, dy, sum, i / d->h, i % d->h);
        }
    for (int32_t k = 0; k < taps; k++)
        for (int32_t l = 0; l < 4; l++) dw[k * d->c + l] = sum[4 * k + l];
}

/* One tap of one channel, where there are fewer than four or windows are very large. */
static float one_tap(const float *dy, const int8_t *x, int32_t zero, const whet_conv2d_t *d,
                     const whet_tap_t *tap) {
    float sum = 0.0f;
    for (int32_t i = 0; i < d->n; i++)
        for (int32_t p = tap->rows.first; p < tap->rows.end; p++) {
            const float *g = dy + whet_tap_y(d, tap, i, p);
            const int8_t *u = x + whet_tap_x(d, tap, i, p);
            for (int32_t q = 0; q < tap->width; q++, g += d->c, u += d->sw * d->c)
                sum = whet_mla(sum, *g, (float)(*u - zero));
        }
    return sum;
}

/* formula    dw[r,s,c] = sum_{n,p,q} dy[n,p,q,c] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] - zero),
 *            padding adds nothing
 * shapes     dw[kh,kw,c], dy[n,p,q,c], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  none */
void whet_depthwise_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d) {
    const int32_t taps = d->kh * d->kw;
    for (int32_t c = 0; d->c >= 4 && taps <= TAPS && c < d->c; c += 4) {
        const int32_t first = whet_min(c, d->c - 4);
        four_channels(dw + first, dy + first, x + first, zero, d);
    }
    if (d->c >= 4 && taps <= TAPS) return;
    for (int32_t k = 0; k < taps; k++) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t c = 0; c < d->c; c++) dw[k * d->c + c] = one_tap(dy + c, x + c, zero, d, &tap);
    }
}
