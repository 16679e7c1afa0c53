/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_kernels_i8.h"

#include "whet_panel.h"

/* Tap by tap, the last first, every pixel of dy adds to one pixel of dx: so a sum runs over the
 * pixels of dy in order. Four channels of dx are processed at a time, with w of some outputs as
 * floats. If c is not a multiple of 4, the last four overlap the previous ones and are recomputed
 * from 0. */

enum { OUTPUTS = 64 }; /* whose w are in the panel */

/* Products with the first and with the second of two outputs. */
#define FIRST  WHET_MLA16("s16", "s17", "s18", "s19", "s24", "s26", "s28", "s30")
#define SECOND WHET_MLA16("s20", "s21", "s22", "s23", "s25", "s27", "s29", "s31")

/* Four channels of four pixels of dx, `step` bytes apart, += w with four pixels of dy. */
typedef struct {
    float *dx;
    int32_t step;
    const float *w, *dy[4], *pairs; /* the end of the pairs of outputs */
    int32_t outputs;
} block_t;

static void four_pixels(const block_t *block) {
    register const block_t *p __asm__("r0") = block;
    __asm__ volatile("ldmia r0, {r1, r2, r3, r4, r5, r6, r8, r9, r10}\n" WHET_LOAD16 "cmp r3, r9\n"
                     "beq 2f\n"
                     "1: vldmia r3!, {s16, s17, s18, s19, s20, s21, s22, s23}\n"
                     "vldmia r4!, {s24, s25}\n"
                     "vldmia r5!, {s26, s27}\n"
                     "vldmia r6!, {s28, s29}\n"
                     "vldmia r8!, {s30, s31}\n" FIRST SECOND "cmp r3, r9\n"
                     "bne 1b\n"
                     "2: tst r10, #1\n"
                     "beq 3f\n"
                     "vldmia r3, {s16, s17, s18, s19}\n"
                     "vldr s24, [r4]\n"
                     "vldr s26, [r5]\n"
                     "vldr s28, [r6]\n"
                     "vldr s30, [r8]\n" FIRST "3:\n" WHET_STORE16
                     : "+r"(p)
                     :
                     : WHET_FLOATS, WHET_REGISTERS);
}

static void one_pixel(float *dx, const float *dy, const float *w, int32_t outputs) {
    float a = dx[0], b = dx[1], c = dx[2], d = dx[3];
    for (; outputs > 0; outputs--, w += 4) {
        const float v = *dy++;
        a = whet_mla(a, w[0], v), b = whet_mla(b, w[1], v);
        c = whet_mla(c, w[2], v), d = whet_mla(d, w[3], v);
    }
    dx[0] = a, dx[1] = b, dx[2] = c, dx[3] = d;
}

/* All pixels of the tap; dx and dy point at the first channel. */
static void add_tap(float *dx, const float *dy, const float *w, int32_t outputs,
                    const whet_conv2d_t *d, const whet_tap_t *tap) {
    const int32_t step = d->sw * d->c;
    for (int32_t n = 0; n < d->n; n++)
        for (int32_t p = tap->rows.first; p < tap->rows.end; p++) {
            const float *u = dy + whet_tap_y(d, tap, n, p);
            float *to = dx + whet_tap_x(d, tap, n, p);
            int32_t q = tap->width;
            for (; q >= 4; q -= 4, u += 4 * d->o, to += 4 * step) {
                const block_t block = {to,
                                       4 * step,
                                       w,
                                       {u, u + d->o, u + 2 * d->o, u + 3 * d->o},
                                       w + 4 * (outputs & ~1),
                                       outputs};
                four_pixels(&block);
            }
            for (; q > 0; q--, u += d->o, to += step) one_pixel(to, u, w, outputs);
        }
}

/* Four channels of a group from c on; w and dy point at the group's first. */
static void four_channels(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    float panel[4 * OUTPUTS];
    for (int32_t k = d->kh * d->kw - 1; k >= 0; k--) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t o = 0; o < co; o += OUTPUTS) {
            const int32_t outputs = whet_min(OUTPUTS, co - o);
            whet_make_panel(panel, w + o * ldw + k * ci, ldw, outputs, 0);
            add_tap(dx, dy + o, panel, outputs, d, &tap);
        }
    }
}

/* One channel of dx, where a group has fewer than four. */
static void one_channel(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    for (int32_t k = d->kh * d->kw - 1; k >= 0; k--) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t n = 0; n < d->n; n++)
            for (int32_t p = tap.rows.first; p < tap.rows.end; p++) {
                const float *u = dy + whet_tap_y(d, &tap, n, p);
                float *to = dx + whet_tap_x(d, &tap, n, p);
                for (int32_t q = 0; q < tap.width; q++, u += d->o, to += d->sw * d->c) {
                    float sum = *to;
                    for (int32_t o = 0; o < co; o++)
                        sum = whet_mla(sum, u[o], (float)w[o * ldw + k * ci]);
                    *to = sum;
                }
            }
    }
}

/* formula    dx[n, p*sh+r*dh-ph, q*sw+s*dw-pw, i] += dy[n,p,q,o] * w[o,r,s,i], from 0
 * shapes     dx[n,h,w,c], dy[n,p,q,o], w[o,kh,kw,c/groups]
 * aliasing   none
 * rounding   one sum, over the pixels of dy row by row and of each over its channels; every product
 *            and every sum is rounded
 * workspace  none */
void whet_conv2d_i8_dx(float *dx, const float *dy, const int8_t *w, const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, size = co * d->kh * d->kw * ci;
    memset(dx, 0, (size_t)(d->n * d->h * d->w * d->c) * sizeof *dx);
    for (int32_t g = 0; g < d->groups; g++, dx += ci, dy += co, w += size) {
        int32_t c = 0;
        for (; c + 4 <= ci; c += 4) four_channels(dx + c, dy, w + c, d);
        if (c < ci && ci >= 4) {
            c = ci - 4;
            for (int32_t i = 0; i < d->n * d->h * d->w; i++)
                for (int32_t l = 0; l < 4; l++) dx[i * d->c + c + l] = 0.0f;
            four_channels(dx + c, dy, w + c, d);
        }
        for (; ci < 4 && c < ci; c++) one_channel(dx + c, dy, w + c, d);
    }
}
