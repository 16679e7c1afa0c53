/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* Channels are processed in tiles, so that per-channel constants are computed once and kept in
 * registers. A tile of one row is loaded before it is stored: results may be in place. */

/* y = (x - mean) * scale + shift for one tile, clipped. */
static inline void affine(float *y, const float *x, const float *mean, const float *scale,
                          const float *shift, int32_t rows, int32_t c, const int32_t width,
                          float low, float high) {
    for (; rows > 0; rows--, x += c, y += c) {
        float t[WHET_TILE];
        for (int32_t l = 0; l < width; l++)
            t[l] = whet_clip((x[l] - mean[l]) * scale[l] + shift[l], low, high);
        for (int32_t l = 0; l < width; l++) y[l] = t[l];
    }
}

/* y = (x - mean) / sqrt(var + eps) * w + b for one tile, clipped. */
static void normalise(float *y, const float *x, const float *w, const float *b, const float *mean,
                      const float *var, int32_t rows, int32_t c, int32_t width, float eps,
                      float low, float high) {
    float m[WHET_TILE], scale[WHET_TILE], shift[WHET_TILE];
    for (int32_t l = 0; l < width; l++) {
        m[l] = mean[l];
        scale[l] = w[l] * whet_rsqrt(var[l] + eps);
        shift[l] = b[l];
    }
    if (width == WHET_TILE)
        affine(y, x, m, scale, shift, rows, c, WHET_TILE, low, high);
    else
        affine(y, x, m, scale, shift, rows, c, width, low, high);
}

/* formula    y = (x - mean) / sqrt(var + eps) * w + b
 * shapes     y[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_batch_norm_f32(float *y, const float *x, const float *w, const float *b,
                         const float *mean, const float *var, int32_t rows, int32_t c, float eps) {
    whet_batch_norm_clipped_f32(y, x, w, b, mean, var, rows, c, eps, -INFINITY, INFINITY);
}

/* formula    y = min(max((x - mean) / sqrt(var + eps) * w + b, low), high)
 * shapes     y[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   y = x
 * rounding   float, element by element
 * workspace  none */
void whet_batch_norm_clipped_f32(float *y, const float *x, const float *w, const float *b,
                                 const float *mean, const float *var, int32_t rows, int32_t c,
                                 float eps, float low, float high) {
    for (int32_t j = 0; j < c; j += WHET_TILE)
        normalise(y + j, x + j, w + j, b + j, mean + j, var + j, rows, c,
                  whet_min(c - j, WHET_TILE), eps, low, high);
}

/* formula    dx = dy * w / sqrt(var + eps)
 * shapes     dx[rows,c], dy[rows,c], w[c], var[c]
 * aliasing   dx = dy
 * rounding   float, element by element
 * workspace  none */
void whet_batch_norm_dx_f32(float *dx, const float *dy, const float *w, const float *var,
                            int32_t rows, int32_t c, float eps) {
    const float zero[WHET_TILE] = {0.0f};
    for (int32_t j = 0; j < c; j += WHET_TILE)
        normalise(dx + j, dy + j, w + j, zero, zero, var + j, rows, c, whet_min(c - j, WHET_TILE),
                  eps, -INFINITY, INFINITY);
}

/* formula    dw[c] = sum_r dy[r,c] * (x[r,c] - mean[c]) / sqrt(var[c] + eps)
 * shapes     dw[c], dy[rows,c], x[rows,c], mean[c], var[c]
 * aliasing   none
 * rounding   sums of WHET_CHUNK products, added with compensation
 * workspace  none */
void whet_batch_norm_dw_f32(float *dw, const float *dy, const float *x, const float *mean,
                            const float *var, int32_t rows, int32_t c, float eps) {
    for (int32_t j = 0; j < c; j += WHET_TILE) {
        const int32_t width = whet_min(c - j, WHET_TILE);
        const float *u = dy + j, *v = x + j, *m = mean + j;
        float total[WHET_TILE];
        WHET_SUM_ROWS(total, rows, 0, width, u[r * c + i] * (v[r * c + i] - m[i]));
        for (int32_t l = 0; l < width; l++) dw[j + l] = total[l] * whet_rsqrt(var[j + l] + eps);
    }
}

/* formula    mean = mean_r x;  var = mean_r (x - mean)^2;
 *            y = min(max((x - mean) / sqrt(var + eps) * w + b, low), high)
 * shapes     y[rows,c], mean[c], var[c], x[rows,c], w[c], b[c]
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms, added with compensation; the variance in a second pass
 * workspace  none */
void whet_batch_norm_train_f32(float *y, float *mean, float *var, const float *x, const float *w,
                               const float *b, int32_t rows, int32_t c, float eps, float low,
                               float high) {
    const float count = (float)rows;
    for (int32_t j = 0; j < c; j += WHET_TILE) {
        const int32_t width = whet_min(c - j, WHET_TILE);
        const float *v = x + j;
        float m[WHET_TILE], total[WHET_TILE];
        WHET_SUM_ROWS(total, rows, 0, width, v[r * c + i]);
        for (int32_t l = 0; l < width; l++) mean[j + l] = m[l] = total[l] / count;
        WHET_SUM_ROWS(total, rows, 0, width, (v[r * c + i] - m[i]) * (v[r * c + i] - m[i]));
        for (int32_t l = 0; l < width; l++) var[j + l] = total[l] / count;
        normalise(y + j, v, w + j, b + j, m, var + j, rows, c, width, eps, low, high);
    }
}

/* Per-channel constants of a tile. */
typedef struct {
    float mean[WHET_TILE], scale[WHET_TILE], shift[WHET_TILE], low, high;
} tile_t;

static tile_t tile_of(const float *w, const float *b, const float *mean, const float *var,
                      int32_t width, float eps, float low, float high) {
    tile_t t = {{0.0f}, {0.0f}, {0.0f}, low, high};
    for (int32_t l = 0; l < width; l++) {
        t.mean[l] = mean[l];
        t.scale[l] = w[l] * whet_rsqrt(var[l] + eps);
        t.shift[l] = b[l];
    }
    return t;
}

/* dy where the result was not clipped, else 0. */
static inline float passed(const tile_t *t, float dy, float x, int32_t l) {
    const float y = (x - t->mean[l]) * t->scale[l] + t->shift[l];
    return y > t->low && y < t->high ? dy : 0.0f;
}

/* formula    dw = sum_r g * (x - mean) / sqrt(var + eps);  db = sum_r g;
 *            g = dy where low < (x - mean) / sqrt(var + eps) * w + b < high, else 0
 * shapes     dw[c], db[c], dy[rows,c], x[rows,c], w[c], b[c], mean[c], var[c]
 * aliasing   none
 * rounding   sums of WHET_CHUNK terms, added with compensation
 * workspace  none */
void whet_batch_norm_train_dw_f32(float *dw, float *db, const float *dy, const float *x,
                                  const float *w, const float *b, const float *mean,
                                  const float *var, int32_t rows, int32_t c, float eps, float low,
                                  float high) {
    for (int32_t j = 0; j < c; j += WHET_TILE) {
        const int32_t width = whet_min(c - j, WHET_TILE);
        const tile_t t = tile_of(w + j, b + j, mean + j, var + j, width, eps, low, high);
        const float *u = dy + j, *v = x + j;
        float total[WHET_TILE];
        WHET_SUM_ROWS(total, rows, 0, width, passed(&t, u[r * c + i], v[r * c + i], i));
        for (int32_t l = 0; l < width; l++) db[j + l] = total[l];
        WHET_SUM_ROWS(total, rows, 0, width,
                      passed(&t, u[r * c + i], v[r * c + i], i) * (v[r * c + i] - t.mean[i]));
        for (int32_t l = 0; l < width; l++) dw[j + l] = total[l] * whet_rsqrt(var[j + l] + eps);
    }
}

/* formula    dx = w / sqrt(var + eps) * (g - db / rows - (x - mean) / sqrt(var + eps) * dw / rows),
 *            with g as in batch_norm_train_dw
 * shapes     dx[rows,c], dy[rows,c], x[rows,c], w[c], b[c], mean[c], var[c], dw[c], db[c]
 * aliasing   dx = dy or dx = x
 * rounding   float, element by element
 * workspace  none */
void whet_batch_norm_train_dx_f32(float *dx, const float *dy, const float *x, const float *w,
                                  const float *b, const float *mean, const float *var,
                                  const float *dw, const float *db, int32_t rows, int32_t c,
                                  float eps, float low, float high) {
    const float count = (float)rows;
    for (int32_t j = 0; j < c; j += WHET_TILE) {
        const int32_t width = whet_min(c - j, WHET_TILE);
        const tile_t t = tile_of(w + j, b + j, mean + j, var + j, width, eps, low, high);
        float gain[WHET_TILE], shift[WHET_TILE], slope[WHET_TILE];
        for (int32_t l = 0; l < width; l++) {
            const float scale = whet_rsqrt(var[j + l] + eps);
            gain[l] = w[j + l] * scale;
            shift[l] = db[j + l] / count;
            slope[l] = scale * dw[j + l] / count;
        }
        for (int32_t r = 0; r < rows; r++) {
            const float *u = dy + r * c + j, *v = x + r * c + j;
            float result[WHET_TILE];
            for (int32_t l = 0; l < width; l++)
                result[l] = gain[l] *
                            (passed(&t, u[l], v[l], l) - shift[l] - (v[l] - t.mean[l]) * slope[l]);
            for (int32_t l = 0; l < width; l++) dx[r * c + j + l] = result[l];
        }
    }
}
