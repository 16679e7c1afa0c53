/* SPDX-License-Identifier: Apache-2.0 */
/* dx of conv2d_i8 from an integer dy of type GRADIENT, two products at a time. A kernel file
 * defines, before it includes this, which four numbers make two pairs: PARTNER is the partner of
 * number 0, and pairs_of reads them. Tap by tap, every pixel of dy adds to one pixel of dx, which
 * holds int32 sums until the end. Four channels of dx and two pixels are processed at a time, with
 * w of some outputs in pairs. */
#ifndef WHET_PAIRS_DX_H
#define WHET_PAIRS_DX_H

#include "whet_dsp.h"

enum { QUADS = 16 }; /* outputs whose w are in the panel */

/* A pair of w for each of four channels: of one output, and of its partner. */
static inline void put_pairs(uint32_t *panel, uint32_t one, uint32_t partner) {
    const uint32_t a = whet_even(one), b = whet_odd(one);
    const uint32_t c = whet_even(partner), d = whet_odd(partner);
    panel[0] = (a & 0xffffu) | c << 16;
    panel[1] = (b & 0xffffu) | d << 16;
    panel[2] = a >> 16 | (c & 0xffff0000u);
    panel[3] = b >> 16 | (d & 0xffff0000u);
}

/* For every four outputs, two pairs for each of four channels, of which n exist; the rest is 0. */
static void make_panel(uint32_t *panel, const int8_t *w, int32_t ldw, int32_t outputs, int32_t n) {
    for (; outputs > 0; outputs -= 4, w += 4 * ldw, panel += 8) {
        uint32_t v[4] = {0};
        for (int32_t k = 0; k < whet_min(outputs, 4); k++)
            v[k] = n == 4 ? whet_word(w + k * ldw) : whet_part_word(w + k * ldw, n);
        put_pairs(panel, v[0], v[PARTNER]);
        put_pairs(panel + 4, v[3 - PARTNER], v[3]);
    }
}

/* Sums of a channel of two pixels += two outputs. */
static inline void add_pair(uint32_t *s, uint32_t w, uint32_t a, uint32_t b) {
    s[0] = whet_dot2(s[0], w, a);
    s[4] = whet_dot2(s[4], w, b);
}

/* Sums of four channels of two pixels += four outputs; unrolled, so that s is in registers. */
static inline void add_quad(uint32_t *s, const uint32_t *w, const GRADIENT *u, const GRADIENT *v) {
    uint32_t a[2], b[2];
    pairs_of(a, u);
    pairs_of(b, v);
    add_pair(s, w[0], a[0], b[0]);
    add_pair(s + 1, w[1], a[0], b[0]);
    add_pair(s + 2, w[2], a[0], b[0]);
    add_pair(s + 3, w[3], a[0], b[0]);
    add_pair(s, w[4], a[1], b[1]);
    add_pair(s + 1, w[5], a[1], b[1]);
    add_pair(s + 2, w[6], a[1], b[1]);
    add_pair(s + 3, w[7], a[1], b[1]);
}

/* n sums stored in dx. */
static inline void add_to(float *dx, const uint32_t *s, int32_t n) {
    for (int32_t l = 0; l < 4; l++)
        if (l < n) dx[l] = whet_from_bits(whet_bits_of(dx[l]) + s[l]);
}

/* Two pixels, or the same one twice, with the second result discarded. */
static void add_pixels(float *dx, float *second, const GRADIENT *u, const GRADIENT *v,
                       const uint32_t *w, int32_t outputs, int32_t n) {
    uint32_t s[8] = {0};
    for (; outputs >= 4; outputs -= 4, u += 4, v += 4, w += 8) add_quad(s, w, u, v);
    if (outputs > 0) {
        GRADIENT rest[8] = {0};
        for (int32_t o = 0; o < outputs; o++) rest[o] = u[o], rest[4 + o] = v[o];
        add_quad(s, w, rest, rest + 4);
    }
    add_to(dx, s, n);
    if (second != NULL) add_to(second, s + 4, n);
}

/* All pixels of the tap; dx and dy point at the first channel. */
static void add_tap(float *dx, const GRADIENT *dy, const uint32_t *w, int32_t outputs, int32_t n,
                    const whet_conv2d_t *d, const whet_tap_t *tap) {
    const int32_t step = d->sw * d->c;
    for (int32_t i = 0; i < d->n; i++)
        for (int32_t p = tap->rows.first; p < tap->rows.end; p++) {
            const GRADIENT *u = dy + whet_tap_y(d, tap, i, p);
            float *to = dx + whet_tap_x(d, tap, i, p);
            int32_t q = tap->width;
            for (; q >= 2; q -= 2, u += 2 * d->o, to += 2 * step)
                add_pixels(to, to + step, u, u + d->o, w, outputs, n);
            if (q > 0) add_pixels(to, NULL, u, u, w, outputs, n);
        }
}

/* n <= 4 channels of a group; w and dy point at the group's first. */
static void channels(float *dx, const GRADIENT *dy, const int8_t *w, const whet_conv2d_t *d,
                     int32_t n) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, ldw = d->kh * d->kw * ci;
    uint32_t panel[8 * QUADS];
    for (int32_t k = 0; k < d->kh * d->kw; k++) {
        const whet_tap_t tap = whet_tap(d, k);
        for (int32_t o = 0; o < co; o += 4 * QUADS) {
            const int32_t outputs = whet_min(4 * QUADS, co - o);
            make_panel(panel, w + o * ldw + k * ci, ldw, outputs, n);
            add_tap(dx, dy + o, panel, outputs, n, d, &tap);
        }
    }
}

/* All of dx, times the scale. */
static void all_pixels(float *dx, const GRADIENT *dy, const int8_t *w, float scale,
                       const whet_conv2d_t *d) {
    const int32_t ci = d->c / d->groups, co = d->o / d->groups, size = co * d->kh * d->kw * ci;
    const int32_t elements = d->n * d->h * d->w * d->c;
    memset(dx, 0, (size_t)elements * sizeof *dx);
    for (int32_t g = 0; g < d->groups; g++)
        for (int32_t c = 0; c < ci; c += 4)
            channels(dx + g * ci + c, dy + g * co, w + g * size + c, d, whet_min(ci - c, 4));
    for (int32_t i = 0; i < elements; i++) dx[i] = (float)(int32_t)whet_bits_of(dx[i]) * scale;
}

#endif
