/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include "whet_panel.h"

/* For a tap and four channels, some pixels of x are converted to floats, which all outputs share;
 * sums continue from those of the previous pixels. */

enum { PIXELS = 64, ROWS = 4 }; /* pixels in the panel, outputs summed at a time */

/* Products with the first and with the second of two pixels. */
#define FIRST  WHET_MLA16("s16", "s17", "s18", "s19", "s24", "s25", "s26", "s27")
#define SECOND WHET_MLA16("s20", "s21", "s22", "s23", "s28", "s29", "s30", "s31")

/* Four channels of four outputs, `step` bytes apart, += pixels of dy, `next` bytes apart. */
typedef struct {
    float *dw;
    int32_t step;
    const float *x, *pairs; /* the end of the pairs of pixels */
    const float *dy;
    int32_t next, pixels;
} block_t;

static void four_outputs(const block_t *block) {
    register const block_t *p __asm__("r0") = block;
    __asm__ volatile("ldmia r0, {r1, r2, r3, r4, r5, r6, r8}\n" WHET_LOAD16 "cmp r3, r4\n"
                     "beq 2f\n"
                     "1: vldmia r3!, {s16, s17, s18, s19, s20, s21, s22, s23}\n"
                     "vldmia r5, {s24, s25, s26, s27}\n"
                     "add r5, r5, r6\n"
                     "vldmia r5, {s28, s29, s30, s31}\n"
                     "add r5, r5, r6\n" FIRST SECOND "cmp r3, r4\n"
                     "bne 1b\n"
                     "2: tst r8, #1\n"
                     "beq 3f\n"
                     "vldmia r3, {s16, s17, s18, s19}\n"
                     "vldmia r5, {s24, s25, s26, s27}\n" FIRST "3:\n" WHET_STORE16
                     : "+r"(p)
                     :
                     : WHET_FLOATS, WHET_REGISTERS);
}

/* As above, for n < 4 channels. */
static void few_channels(block_t block, int32_t n) {
    float sum[ROWS][4] = {{0.0f}}, *dw = block.dw;
    const int32_t ldw = block.step / 4;
    for (int32_t k = 0; k < ROWS; k++)
        for (int32_t l = 0; l < n; l++) sum[k][l] = dw[k * ldw + l];
    block.dw = sum[0];
    block.step = sizeof sum[0];
    four_outputs(&block);
    for (int32_t k = 0; k < ROWS; k++)
        for (int32_t l = 0; l < n; l++) dw[k * ldw + l] = sum[k][l];
}

static void one_output(float *dw, const float *dy, int32_t next, const float *x, int32_t pixels,
                       int32_t n) {
    float sum[4] = {0.0f};
    for (int32_t l = 0; l < n; l++) sum[l] = dw[l];
    for (; pixels > 0; pixels--, dy += next, x += 4)
        for (int32_t l = 0; l < 4; l++) sum[l] = whet_mla(sum[l], x[l], *dy);
    for (int32_t l = 0; l < n; l++) dw[l] = sum[l];
}

/* o outputs of a group for pixels that are in the panel. */
static void outputs(float *dw, int32_t ldw, const float *dy, const float *x, int32_t pixels,
                    int32_t n, int32_t o, const whet_conv2d_t *d) {
    block_t block = {dw, 4 * ldw, x, x + 4 * (pixels & ~1), dy, 4 * d->o, pixels};
    for (; o >= ROWS; o -= ROWS, block.dw += ROWS * ldw, block.dy += ROWS) {
        if (n == 4)
            four_outputs(&block);
        else
            few_channels(block, n);
    }
    for (; o > 0; o--, block.dw += ldw, block.dy++)
        one_output(block.dw, block.dy, d->o, x, pixels, n);
}

/* dw of a tap, `count` outputs and n <= 4 channels of a group; x and dy point at the first. */
static void slopes(float *dw, const float *dy, const int8_t *x, int32_t zero,
                   const whet_conv2d_t *d, const whet_tap_t *tap, int32_t count, int32_t n) {
    const int32_t ldw = d->kh * d->kw * (d->c / d->groups), step = d->sw * d->c;
    /* Contiguous rows, in both x and dy, are merged. */
    const int32_t joined = tap->width == d->q && d->sh == 1 && d->sw * d->q == d->w;
    const int32_t lines = tap->rows.end - tap->rows.first, parts = joined && lines > 0 ? 1 : lines;
    const int32_t width = joined ? tap->width * lines : tap->width;
    float panel[4 * PIXELS];
    for (int32_t o = 0; o < count; o++)
        for (int32_t l = 0; l < n; l++) dw[o * ldw + l] = 0.0f;
    for (int32_t i = 0; i < d->n; i++)
        for (int32_t p = tap->rows.first; p < tap->rows.first + parts; p++) {
            const float *g = dy + whet_tap_y(d, tap, i, p);
            const int8_t *u = x + whet_tap_x(d, tap, i, p);
            for (int32_t q = 0; q < width; q += PIXELS) {
                const int32_t pixels = whet_min(PIXELS, width - q);
                if (n == 4)
                    whet_make_panel(panel, u + q * step, step, pixels, zero);
                else
                    whet_make_part(panel, u + q * step, step, pixels, zero, n);
                outputs(dw, ldw, g + q * d->o, panel, pixels, n, count, d);
            }
        }
}

/* formula    dw[o,r,s,i] = sum_{n,p,q} dy[n,p,q,o] * (x[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] - zero),
 *            padding adds nothing
 * shapes     dw[o,kh,kw,c/groups], dy[n,p,q,o], x[n,h,w,c]
 * aliasing   none
 * rounding   one sum, pixel by pixel; every product and every sum is rounded
 * workspace  none */
void whet_conv2d_i8_dw(float *dw, const float *dy, const int8_t *x, int32_t zero,
                       const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, taps = d->kh * d->kw;
    for (int32_t k = 0; k < taps; k++) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t g = 0; g < d->groups; g++)
            for (int32_t c = 0; c < ci; c += 4)
                slopes(dw + g * co * taps * ci + k * ci + c, dy + g * co, x + g * ci + c, zero, d,
                       &tap, co, whet_min(4, ci - c));
    }
}

/* formula    rows [first, first + count) of conv2d_i8_dw, without groups
 * shapes     dw[count,kh,kw,c], the others as conv2d_i8_dw
 * aliasing   none
 * rounding   as conv2d_i8_dw
 * workspace  none */
void whet_conv2d_i8_dw_rows(float *dw, const float *dy, const int8_t *x, int32_t zero,
                            int32_t first, int32_t count, const whet_conv2d_t *d) {
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t c = 0; c < d->c; c += 4)
            slopes(dw + k * d->c + c, dy + first, x + c, zero, d, &tap, count,
                   whet_min(4, d->c - c));
    }
}
