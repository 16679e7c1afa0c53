/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include "whet_panel.h"

#define WHET_WEIGHT      int8_t
#define WHET_ADD_PRODUCT whet_mla
#include "whet_scatter.h"

/* Four channels at a time. A row of dy adds to each row of dx that its windows reach. Taps that
 * meet at the same pixels of dx are processed together, up to three, from the last to the first: so
 * a sum runs over the pixels of dy in order. If c is not a multiple of 4, the last four channels
 * overlap the previous ones and are recomputed from 0. */

enum { TAPS = 64, GROUP = 3, WIDTH = 11, RUNS = 28 }; /* a window's taps and width */

/* Some taps with some pixels of a row of dy: the first tap and their number, where they start in
 * the rows of dx and dy, and the number of pixels. */
typedef struct {
    int32_t tap, taps, dx, dy, count;
} run_t;

/* Common to all rows: tap s with pixel q of dy and tap s - hop with pixel q + next meet at the same
 * pixel of dx. */
typedef struct {
    int32_t hop, next, runs;
    run_t run[RUNS];
} plan_t;

/* dx += w * dy + w1 * dy' + w2 * dy'', for `count` > 0 pixels; dy' and dy'' are each `next` bytes
 * after the previous one. The distances between pixels of dx and dy are given in bytes. */
typedef struct {
    float *dx;
    const float *dy;
    int32_t count;
    const float *w, *w1, *w2;
    int32_t next, dx_step, dy_step;
} pixels_t;

/* w in s16 to s27; one pixel of dx and dy in s0 to s7. */
#define MORE(from, s0, s1, s2, s3)   \
    "add r12, " from ", r8\n"        \
    "vldmia r12, {s4, s5, s6, s7}\n" \
    "vmla.f32 s0, " s0 ", s4\n"      \
    "vmla.f32 s1, " s1 ", s5\n"      \
    "vmla.f32 s2, " s2 ", s6\n"      \
    "vmla.f32 s3, " s3 ", s7\n"
#define SECOND MORE("r2", "s20", "s21", "s22", "s23")
#define THIRD  MORE("r12", "s24", "s25", "s26", "s27")
#define RUN(more)                                                            \
    do {                                                                     \
        register const pixels_t *p_ __asm__("r0") = &pixels;                 \
        __asm__ volatile("ldmia r0, {r1, r2, r3, r4, r5, r6, r8, r9, r10}\n" \
                         "vldmia r4, {s16, s17, s18, s19}\n"                 \
                         "vldmia r5, {s20, s21, s22, s23}\n"                 \
                         "vldmia r6, {s24, s25, s26, s27}\n"                 \
                         "1: vldmia r1, {s0, s1, s2, s3}\n"                  \
                         "vldmia r2, {s4, s5, s6, s7}\n"                     \
                         "subs r3, r3, #1\n"                                 \
                         "vmla.f32 s0, s16, s4\n"                            \
                         "vmla.f32 s1, s17, s5\n"                            \
                         "vmla.f32 s2, s18, s6\n"                            \
                         "vmla.f32 s3, s19, s7\n" more "add r2, r2, r10\n"   \
                         "vstmia r1, {s0, s1, s2, s3}\n"                     \
                         "add r1, r1, r9\n"                                  \
                         "bne 1b\n"                                          \
                         : "+r"(p_)                                          \
                         :                                                   \
                         : WHET_FLOATS, WHET_REGISTERS);                     \
    } while (0)

/* All contributions of a row of dy to a row of dx through a row of taps. */
static void add_row(float *dx, const float *dy, const float *weights, const whet_conv2d_t *d,
                    const plan_t *plan) {
    const int32_t step = 4 * d->c, hop = 4 * plan->hop;
    const run_t *const end = plan->run + plan->runs;
    for (const run_t *run = plan->run; run < end; run++) {
        const int32_t taps = run->taps;
        const float *w = weights + 4 * run->tap, *w1 = taps > 1 ? w - hop : w;
        const pixels_t pixels = {
            dx + run->dx,      dy + run->dy, run->count, w, w1, taps > 2 ? w1 - hop : w,
            plan->next * step, d->sw * step, step};
        if (taps == 1)
            RUN("");
        else if (taps == 2)
            RUN(SECOND);
        else
            RUN(SECOND THIRD);
    }
}

/* ---- Plans. */

static void add_run(plan_t *plan, const whet_conv2d_t *d, int32_t s, int32_t taps, int32_t first,
                    int32_t end) {
    const int32_t col = first * d->sw + s * d->dw - d->pw;
    const run_t run = {s, taps, col * d->c, first * d->c, end - first};
    if (run.count > 0) plan->run[plan->runs++] = run;
}

/* Taps s, s - hop, ... for all of their pixels. Relative to tap s, a later tap starts and ends
 * earlier in dy: at the left edge there are only the later taps, at the right edge only the earlier
 * ones. Where no pixel has all, each tap is processed alone. */
static void add_group(plan_t *plan, const whet_conv2d_t *d, int32_t s, int32_t taps) {
    whet_range_t each[GROUP] = {{0, 0}};
    for (int32_t k = 0; k < taps; k++)
        each[k] = whet_outputs((s - k * plan->hop) * d->dw - d->pw, d->w, d->sw, d->q);
    const int32_t last = (taps - 1) * plan->next;
    if (each[0].first > each[taps - 1].end - last) {
        for (int32_t k = 0; k < taps; k++)
            add_run(plan, d, s - k * plan->hop, 1, each[k].first, each[k].end);
        return;
    }
    add_run(plan, d, s, taps, each[0].first, each[taps - 1].end - last);
    for (int32_t k = 1; k < taps; k++) {
        const int32_t tap = s - k * plan->hop, by = plan->next;
        add_run(plan, d, tap, taps - k, each[k].first, each[k - 1].first + by);
        add_run(plan, d, s, k, each[k].end - k * by, each[k - 1].end - (k - 1) * by);
    }
}

static void make_plan(plan_t *plan, const whet_conv2d_t *d) {
    plan->hop = d->dw == 1 ? d->sw : d->sw == 1 ? 1 : d->kw;
    plan->next = d->dw == 1 ? 1 : d->dw;
    plan->runs = 0;
    for (int32_t last = d->kw - 1; last >= 0 && last > d->kw - 1 - plan->hop; last--)
        for (int32_t s = last, taps; s >= 0; s -= taps * plan->hop) {
            taps = whet_min(GROUP, s / plan->hop + 1);
            add_group(plan, d, s, taps);
        }
}

static void four_channels(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d,
                          const plan_t *plan) {
    const int32_t line = d->w * d->c;
    float panel[4 * TAPS];
    whet_make_panel(panel, w, d->c, d->kh * d->kw, 0);
    for (int32_t n = 0; n < d->n; n++, dx += d->h * line)
        for (int32_t p = 0; p < d->p; p++, dy += d->q * d->c) {
            const whet_span_t rows = whet_span(p, d->h, d->kh, d->sh, d->ph, d->dh);
            const float *v = panel + 4 * rows.cut * d->kw;
            float *to = dx + rows.first * line;
            for (int32_t r = 0; r < rows.taps; r++, v += 4 * d->kw, to += d->dh * line)
                add_row(to, dy, v, d, plan);
        }
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, c] += dy[n,p,q,c] * w[r,s,c], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,c], w[kh,kw,c]
 * aliasing   none
 * rounding   added pixel of dy by pixel, row by row; every product and every sum is rounded
 * workspace  none */
void whet_depthwise_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    plan_t plan;
    memset(dx, 0, (size_t)(d->n * d->h * d->w * d->c) * sizeof *dx);
    if (d->c < 4 || d->kh * d->kw > TAPS || d->kw > WIDTH) { /* few channels, or a large window */
        whet_scatter(dx, dy, w, d);
        return;
    }
    make_plan(&plan, d);
    for (int32_t c = 0; c + 4 <= d->c; c += 4) four_channels(dx + c, dy + c, w + c, d, &plan);
    if (d->c % 4 == 0) return;
    const int32_t last = d->c - 4;
    for (int32_t i = 0; i < d->n * d->h * d->w; i++)
        for (int32_t l = 0; l < 4; l++) dx[i * d->c + last + l] = 0.0f;
    four_channels(dx + last, dy + last, w + last, d, &plan);
}
