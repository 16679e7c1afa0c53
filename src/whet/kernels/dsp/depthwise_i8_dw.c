/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include "whet_panel.h"

/* Four channels at a time. A row of x is converted to floats and used for every row of taps that
 * reaches it; up to three taps share what is read of dy. Sums are kept in a list until the last
 * row. If c is not a multiple of 4, the last four channels overlap the previous ones and are
 * recomputed. */

enum { TAPS = 64, PIXELS = 32, GROUP = 3, WIDTH = 11, RUNS = 28 }; /* a window's taps and width */

/* Some taps with some pixels: the first tap and their number, where they start in the rows of dy
 * and x, and the number of pixels. */
typedef struct {
    int32_t tap, taps, dy, x, count;
} run_t;

/* Common to all rows: for a part of x, from column `left` on. */
typedef struct {
    int32_t left, width, runs;
    run_t run[RUNS];
} plan_t;

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
                     : WHET_FLOATS, "cc", "memory")

/* All contributions of a row of dy and a row of x to the sums of a row of taps. */
static void add_row(float *sums, const float *dy_row, const float *panel, const whet_conv2d_t *d,
                    const plan_t *plan) {
    const int32_t dy_step = 4 * d->c, x_step = 16 * d->sw;
    const run_t *const end = plan->run + plan->runs;
    for (const run_t *run = plan->run; run < end; run++) {
        float *const sum = sums + 4 * run->tap;
        const float *dy = dy_row + run->dy, *x = panel + run->x;
        int32_t count = run->count;
        if (run->taps == 1)
            RUN(SUMS1, X1, TAP1);
        else if (run->taps == 2)
            RUN(SUMS2, X2, TAP2);
        else
            RUN(SUMS3, X3, TAP3);
    }
}

/* ---- Plans. */

static void add_run(plan_t *plan, const whet_conv2d_t *d, int32_t s, int32_t taps, int32_t first,
                    int32_t end) {
    const int32_t col = first * d->sw + s * d->dw - d->pw - plan->left;
    const run_t run = {s, taps, first * d->c, 4 * col, end - first};
    if (run.count > 0) plan->run[plan->runs++] = run;
}

/* Neighbouring taps from s on for all of their pixels, in order for every tap. A later tap starts
 * and ends earlier in dy: at the left edge there are only the later taps, at the right edge only
 * the earlier ones. Where no pixel has all, each tap is processed alone. */
static void add_group(plan_t *plan, const whet_conv2d_t *d, int32_t s, int32_t taps) {
    whet_range_t each[GROUP] = {{0, 0}};
    for (int32_t k = 0; k < taps; k++) {
        const int32_t offset = (s + k) * d->dw - d->pw - plan->left;
        each[k] = whet_outputs(offset, plan->width, d->sw, d->q);
    }
    if (each[0].first > each[taps - 1].end) {
        for (int32_t k = 0; k < taps; k++) add_run(plan, d, s + k, 1, each[k].first, each[k].end);
        return;
    }
    for (int32_t k = taps - 1; k > 0; k--)
        add_run(plan, d, s + k, taps - k, each[k].first, each[k - 1].first);
    add_run(plan, d, s, taps, each[0].first, each[taps - 1].end);
    for (int32_t k = taps - 1; k > 0; k--) add_run(plan, d, s, k, each[k].end, each[k - 1].end);
}

static void make_plan(plan_t *plan, const whet_conv2d_t *d, int32_t left) {
    const int32_t most = d->dw == 1 ? GROUP : 1;
    plan->left = left;
    plan->width = whet_min(PIXELS, d->w - left);
    plan->runs = 0;
    for (int32_t s = 0; s < d->kw; s += most) add_group(plan, d, s, whet_min(most, d->kw - s));
}

/* Row `line` of an image, a part of which is in the panel, with all rows of taps that reach it. */
static void add_line(float *sum, const float *dy, const float *panel, int32_t line,
                     const whet_conv2d_t *d, const plan_t *plan) {
    for (int32_t r = 0; r < d->kh; r++) {
        const int32_t below = line + d->ph - r * d->dh, p = below / d->sh;
        if (below >= 0 && p * d->sh == below && p < d->p)
            add_row(sum + 4 * r * d->kw, dy + p * d->q * d->c, panel, d, plan);
    }
}

static void four_channels(float *dw, const float *dy, const int8_t *x, int32_t zero,
                          const whet_conv2d_t *d, plan_t *plan) {
    float sum[4 * TAPS], panel[4 * PIXELS];
    const int32_t taps = d->kh * d->kw;
    whet_fill(sum, 4 * taps, 0.0f);
    for (int32_t n = 0; n < d->n; n++, dy += d->p * d->q * d->c)
        for (int32_t i = 0; i < d->h; i++, x += d->w * d->c)
            for (int32_t left = 0; left < d->w; left += PIXELS) {
                if (left != plan->left) make_plan(plan, d, left);
                whet_make_panel(panel, x + left * d->c, d->c, plan->width, zero);
                add_line(sum, dy, panel, i, d, plan);
            }
    for (int32_t k = 0; k < taps; k++)
        for (int32_t l = 0; l < 4; l++) dw[k * d->c + l] = sum[4 * k + l];
}

/* One tap of one channel, for fewer than four channels or very large windows. */
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
    plan_t plan;
    if (d->c >= 4 && taps <= TAPS && d->kw <= WIDTH) {
        make_plan(&plan, d, 0);
        for (int32_t c = 0; c < d->c; c += 4) {
            const int32_t first = whet_min(c, d->c - 4);
            four_channels(dw + first, dy + first, x + first, zero, d, &plan);
        }
        return;
    }
    for (int32_t k = 0; k < taps; k++) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t c = 0; c < d->c; c++) dw[k * d->c + c] = one_tap(dy + c, x + c, zero, d, &tap);
    }
}
