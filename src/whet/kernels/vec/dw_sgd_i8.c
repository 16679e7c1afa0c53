/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_narrow.h"

#include "whet_dot.h"
#include "whet_dw_i8.h"

/* A tile of the gradient is applied as soon as its sums are complete: the gradient is never
 * materialised, and needs no workspace. */

typedef WHET_OF_DOTS(whet_reals) reals_t;
typedef WHET_OF_DOTS(whet_reals_u) reals_u;

typedef struct {
    int8_t *next, *c_next;
    const int8_t *q, *c;
    const float *scale;
    int32_t scales;
    float rate, unit, weight_decay;
} update_t;

/* n <= WHET_DOTS bytes as lanes, padded with 0. */
static inline whet_dots_t load_some(const int8_t *x, int32_t n) {
    if (n == WHET_DOTS) return whet_load_lanes(x);
    const whet_ints_16 bytes = whet_load_16(x, n);
    int8_t some[16];
    memcpy(some, &bytes, sizeof some);
    return whet_load_lanes(some);
}

/* q - round(move), clamped to the range of q. A NaN step is ignored, and one beyond these limits
 * saturates q anyway. */
static inline whet_dots_t lower(whet_dots_t q, reals_t move) {
    const reals_t none = {0.0f};
    move = (reals_t)((whet_dots_t)move & (move == move));
    move = WHET_OF_DOTS(whet_hold)(move, none - 256.0f, none + 256.0f);
    const whet_dots_t k = (whet_dots_t)(move + 12582912.0f) - 0x4B400000;
    return WHET_OF_DOTS(whet_limit)(q - k, -128, 127);
}

static void spend(const whet_dw_t *l, float *tile, int32_t o, int32_t rows, int32_t at, int32_t n) {
    const update_t *u = l->more;
    const int32_t size = l->d->kh * l->d->kw * l->d->c;
    const float rate = u->rate, decay = u->weight_decay;
    float s[ROWS], r[ROWS];
    for (int32_t k = 0; k < rows; k++) {
        s[k] = u->scale[u->scales == 1 ? 0 : o + k] * u->unit;
        r[k] = 1.0f / s[k];
    }
    for (int32_t k = 0; k < rows; k++, tile += WIDTH) {
        const int32_t i = (o + k) * size + at;
        for (int32_t j = 0; j < n; j += WHET_DOTS) {
            const int32_t count = whet_min(n - j, WHET_DOTS);
            const whet_dots_t q = load_some(u->q + i + j, count);
            reals_u *g = (reals_u *)(tile + j);
            const reals_t h = *g * r[k] + __builtin_convertvector(q, reals_t) * s[k] * decay;
            const reals_t move = h * r[k] * rate;
            if (u->c == NULL)
                whet_store_lanes(u->next + i + j, lower(q, move), count);
            else
                *g = move;
        }
        if (u->c != NULL)
            whet_settle_carry_i8_i8(u->next + i, u->c_next + i, u->q + i, tile, u->c + i, n);
    }
}

/* formula    q' = settle_nearest(q, sgd_step(q, conv2d_i8_dw(dy, x), scale, lr))
 * shapes     as those; groups = 1
 * aliasing   next = q
 * rounding   as those
 * workspace  not used; 20 KB of stack */
void whet_dw_sgd_nearest_i8(int8_t *next, const int8_t *q, const float *dy, const int8_t *x,
                            const float *scale, const float *lr, int32_t zero,
                            const whet_conv2d_t *d, int32_t rows, int32_t scales, float unit,
                            float lr_scale, float weight_decay, float *workspace) {
    const update_t u = {next, NULL, q, NULL, scale, scales, *lr * lr_scale, unit, weight_decay};
    whet_dw_t l = {dy, x, zero, 0, d->o, 0, d, spend, &u};
    (void)rows;
    (void)workspace;
    whet_share_dw(&l);
}

/* formula    q', c' = settle_carry(q, sgd_step(q, conv2d_i8_dw(dy, x), scale, lr), c)
 * shapes     as those; groups = 1
 * aliasing   next = q, c_next = c
 * rounding   as those
 * workspace  not used; 20 KB of stack */
void whet_dw_sgd_carry_i8(int8_t *next, int8_t *c_next, const int8_t *q, const float *dy,
                          const int8_t *x, const float *scale, const float *lr, const int8_t *c,
                          int32_t zero, const whet_conv2d_t *d, int32_t rows, int32_t scales,
                          float unit, float lr_scale, float weight_decay, float *workspace) {
    const update_t u = {next, c_next, q, c, scale, scales, *lr * lr_scale, unit, weight_decay};
    whet_dw_t l = {dy, x, zero, 0, d->o, 0, d, spend, &u};
    (void)rows;
    (void)workspace;
    whet_share_dw(&l);
}
