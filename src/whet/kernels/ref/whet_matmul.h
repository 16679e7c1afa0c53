/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_MATMUL_H
#define WHET_MATMUL_H

/* Not inlined: its caller would always need this function's stack. */
#ifdef __GNUC__
#define WHET_OWN_FRAME __attribute__((noinline, unused))
#else
#define WHET_OWN_FRAME inline
#endif

/* ---- Matrix products: y += a b. Sums are short (WHET_DEPTH) before they are added to y. */

/* Sum of a[i] * b[i]. */
static inline float whet_dot(const float *a, const float *b, int32_t n) {
    float lane[WHET_TILE] = {0.0f};
    int32_t i = 0;
    for (; i + WHET_TILE <= n; i += WHET_TILE)
        for (int32_t l = 0; l < WHET_TILE; l++) lane[l] += a[i + l] * b[i + l];
    float sum = whet_fold(lane, WHET_TILE);
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* A block of 2 to 4 rows and n <= WHET_TILE columns; missing rows repeat an existing one. a[i,l] is
 * at a[i*am + l*ak]. */
static inline void whet_block4(float *y, int32_t ldy, const float *a, int32_t am, int32_t ak,
                               const float *b, int32_t ldb, int32_t rows, int32_t k,
                               const int32_t n) {
    const int32_t am2 = rows > 2 ? 2 * am : am, am3 = rows > 3 ? 3 * am : am2;
    float t0[WHET_TILE] = {0.0f}, t1[WHET_TILE] = {0.0f};
    float t2[WHET_TILE] = {0.0f}, t3[WHET_TILE] = {0.0f};
    for (int32_t l = 0; l < k; l++) {
        const float a0 = a[l * ak], a1 = a[am + l * ak];
        const float a2 = a[am2 + l * ak], a3 = a[am3 + l * ak];
        for (int32_t j = 0; j < n; j++) {
            const float v = b[l * ldb + j];
            t0[j] += a0 * v;
            t1[j] += a1 * v;
            t2[j] += a2 * v;
            t3[j] += a3 * v;
        }
    }
    for (int32_t j = 0; j < n; j++) y[j] += t0[j];
    for (int32_t j = 0; j < n; j++) y[ldy + j] += t1[j];
    for (int32_t j = 0; j < n && rows > 2; j++) y[2 * ldy + j] += t2[j];
    for (int32_t j = 0; j < n && rows > 3; j++) y[3 * ldy + j] += t3[j];
}

/* The same for one row. */
static inline void whet_block1(float *y, const float *a, int32_t ak, const float *b, int32_t ldb,
                               int32_t k, const int32_t n) {
    float t[WHET_TILE] = {0.0f};
    for (int32_t l = 0; l < k; l++)
        for (int32_t j = 0; j < n; j++) t[j] += a[l * ak] * b[l * ldb + j];
    for (int32_t j = 0; j < n; j++) y[j] += t[j];
}

/* y[m,n] += a b with n <= WHET_TILE columns. The full width is a compile-time constant. */
static inline void whet_panel(float *y, int32_t ldy, const float *a, int32_t am, int32_t ak,
                              const float *b, int32_t ldb, int32_t m, int32_t n, int32_t k) {
    int32_t i = 0;
    for (; i + 1 < m; i += 4) {
        const int32_t rows = whet_min(m - i, 4);
        if (n == WHET_TILE)
            whet_block4(y + i * ldy, ldy, a + i * am, am, ak, b, ldb, rows, k, WHET_TILE);
        else
            whet_block4(y + i * ldy, ldy, a + i * am, am, ak, b, ldb, rows, k, n);
    }
    if (i + 1 == m) {
        if (n == WHET_TILE)
            whet_block1(y + i * ldy, a + i * am, ak, b, ldb, k, WHET_TILE);
        else
            whet_block1(y + i * ldy, a + i * am, ak, b, ldb, k, n);
    }
}

/* y[m,n] += a b, with b[k,n] in rows `ldb` apart; a[i,l] is at a[i*am + l*ak]. */
static inline void whet_matmul(float *y, int32_t ldy, const float *a, int32_t am, int32_t ak,
                               const float *b, int32_t ldb, int32_t m, int32_t n, int32_t k) {
    for (int32_t l = 0; l < k; l += WHET_DEPTH) {
        const int32_t depth = whet_min(k - l, WHET_DEPTH);
        for (int32_t j = 0; j < n; j += WHET_TILE) {
            const int32_t width = whet_min(n - j, WHET_TILE);
            whet_panel(y + j, ldy, a + l * ak, am, ak, b + l * ldb + j, ldb, m, width, depth);
        }
    }
}

/* panel[k,n] = the transpose of b[n,k], whose rows are `ldb` apart. */
static inline void whet_pack(float *panel, const float *b, int32_t ldb, int32_t n, int32_t k) {
    for (int32_t l = 0; l < k; l++)
        for (int32_t j = 0; j < n; j++) panel[l * n + j] = b[j * ldb + l];
}

/* y[m,n] += a[m,k] b[n,k]' for width <= WHET_TILE rows of b, which is transposed first. */
WHET_OWN_FRAME static void whet_transposed(float *y, int32_t ldy, const float *a, const float *b,
                                           int32_t ld, int32_t m, int32_t width, int32_t depth) {
    float panel[WHET_DEPTH * WHET_TILE];
    whet_pack(panel, b, ld, width, depth);
    whet_panel(y, ldy, a, ld, 1, panel, width, m, width, depth);
}

/* y[m,n] += a[m,k] b[n,k]', rows of b `k` apart. With many rows it pays to transpose b piece by
 * piece. */
static inline void whet_matmul_nt(float *y, const float *a, const float *b, int32_t m, int32_t n,
                                  int32_t k) {
    if (m < 4) {
        for (int32_t i = 0; i < m; i++)
            for (int32_t j = 0; j < n; j++) y[i * n + j] += whet_dot(a + i * k, b + j * k, k);
        return;
    }
    for (int32_t l = 0; l < k; l += WHET_DEPTH) {
        const int32_t depth = whet_min(k - l, WHET_DEPTH);
        for (int32_t j = 0; j < n; j += WHET_TILE)
            whet_transposed(y + j, n, a + l, b + j * k + l, k, m, whet_min(n - j, WHET_TILE),
                            depth);
    }
}

#endif
