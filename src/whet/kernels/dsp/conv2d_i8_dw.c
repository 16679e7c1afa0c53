/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include "whet_panel.h"

/* For a tap and four channels some pixels of x become floats, which all outputs share; sums go on
 * where the pixels before have left them. */

enum { PIXELS = 64, ROWS = 4 }; /* pixels in the panel, outputs that are summed at a time */

/* Products with the first and with the second of two pixels. */
#define FIRST  WHET_MLA16("s16", "s17", "s18", "s19", "s24", "s25", "s26", "s27")
#define SECOND WHET_MLA16("s20", "s21", "s22", "s23", "s28", "s29", "s30", "s31")
#define SUMS   "{s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15}\n"

/* dw of four outputs `ldw` apart and n channels, += `pixels` > 0 pixels of dy, `next` floats apart. */
static void four_outputs(float *dw, int32_t ldw, const float *dy, int32_t next, const float *x,
                         int32_t pixels, int32_t n) {
    const float *const pairs = x + 4 * (pixels & ~1);
    const int32_t bytes = next * (int32_t)sizeof *dy;
    float sum[ROWS][4] = {{0.0f}};
    for (int32_t k = 0; k < ROWS; k++)
        for (int32_t l = 0; l < n; l++) sum[k][l] = dw[k * ldw + l];
    __asm__ volatile("vldmia %[sum], " SUMS "cmp %[x], %[pairs]\n"
                     "beq 2f\n"
                     "1: vldmia %[x]!, {s16, s17, s18, s19, s20, s21, s22, s23}\n"
                     "vldmia %[y], {s24, s25, s26, s27}\n"
                     "add %[y], %[y], %[next]\n"
                     "vldmia %[y], {s28, s29, s30, s31}\n"
                     "add %[y], %[y], %[next]\n" FIRST SECOND "cmp %[x], %[pairs]\n"
                     "bne 1b\n"
                     "2: tst %[pixels], #1\n"
                     "beq 3f\n"
                     "vldmia %[x], {s16, s17, s18, s19}\n"
                     "vldmia %[y], {s24, s25, s26, s27}\n" FIRST "3: vstmia %[sum], " SUMS
                     : [x] "+r"(x), [y] "+r"(dy)
                     : [sum] "r"(sum), [next] "r"(bytes), [pairs] "r"(pairs), [pixels] "r"(pixels)
                     : WHET_FLOATS, "cc", "memory");
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

/* All outputs of a group for pixels that are in the panel. */
static void outputs(float *dw, int32_t ldw, const float *dy, const float *x, int32_t pixels,
                    int32_t n, const whet_conv2d_t *d) {
    int32_t o = d->o / d->groups;
    for (; o >= ROWS; o -= ROWS, dw += ROWS * ldw, dy += ROWS)
        four_outputs(dw, ldw, dy, d->o, x, pixels, n);
    for (; o > 0; o--, dw += ldw, dy++) one_output(dw, dy, d->o, x, pixels, n);
}

/* dw of a tap and n <= 4 channels of a group; x and dy are at the first. */
static void slopes(float *dw, const float *dy, const int8_t *x, int32_t zero,
                   const whet_conv2d_t *d, const whet_tap_t *tap, int32_t n) {
    const int32_t ldw = d->kh * d->kw * (d->c / d->groups), step = d->sw * d->c;
    /* Rows without a gap, in x as in dy, are one. */
    const int32_t joined = tap->width == d->q && d->sh == 1 && d->sw * d->q == d->w;
    const int32_t lines = tap->rows.end - tap->rows.first, parts = joined && lines > 0 ? 1 : lines;
    const int32_t width = joined ? tap->width * lines : tap->width;
    float panel[4 * PIXELS];
    for (int32_t o = 0; o < d->o / d->groups; o++)
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
                outputs(dw, ldw, g + q * d->o, panel, pixels, n, d);
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
                       &tap, whet_min(4, ci - c));
    }
}
