/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_MATMUL_H
#define WHET_MATMUL_H

/* ---- Matrix products: y += a b, in blocks of WHET_ROWS rows whose sums stay in registers. */

typedef float whet_vec_t __attribute__((vector_size(4 * WHET_LANES)));
/* The same anywhere in memory. */
typedef float whet_vec_u __attribute__((vector_size(4 * WHET_LANES), aligned(4), may_alias));
typedef float whet_quad_t __attribute__((vector_size(16)));
typedef float whet_quad_u __attribute__((vector_size(16), aligned(4), may_alias));
typedef float whet_half_t __attribute__((vector_size(2 * WHET_LANES)));
typedef float whet_half_u __attribute__((vector_size(2 * WHET_LANES), aligned(4), may_alias));

/* Sum of a[i] * b[i]. */
static inline float whet_dot(const float *a, const float *b, int32_t n) {
    whet_vec_t s0 = {0.0f}, s1 = {0.0f};
    int32_t i = 0;
    for (; i + WHET_TILE <= n; i += WHET_TILE) {
        s0 += *(const whet_vec_u *)(a + i) * *(const whet_vec_u *)(b + i);
        s1 += *(const whet_vec_u *)(a + i + WHET_LANES) * *(const whet_vec_u *)(b + i + WHET_LANES);
    }
    s0 += s1;
    float lane[WHET_LANES];
    memcpy(lane, &s0, sizeof lane);
    float sum = whet_fold(lane, WHET_LANES);
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* y[rows, NV vectors] += a b: `rows` is a constant after inlining, so that the sums are registers.
 * a[i,l] is at a[i*am + l*ak]. */
#define WHET_BLOCK(name, vec, unaligned, NV)                                                       \
    static inline __attribute__((always_inline)) void name(                                        \
        float *y, int32_t ldy, const float *a, int32_t am, int32_t ak, const float *b,             \
        int32_t ldb, int32_t k, const int32_t rows) {                                              \
        enum { lanes = sizeof(vec) / sizeof(float) };                                              \
        vec sum[WHET_ROWS][NV];                                                                    \
        for (int32_t r = 0; r < rows; r++)                                                         \
            for (int32_t v = 0; v < NV; v++) sum[r][v] = (vec){0.0f};                              \
        for (int32_t l = 0; l < k; l++, b += ldb) {                                                \
            vec row[NV];                                                                           \
            for (int32_t v = 0; v < NV; v++) row[v] = *(const unaligned *)(b + v * lanes);         \
            _Pragma("GCC unroll 12") for (int32_t r = 0; r < rows; r++) {                          \
                const float x = a[r * am + l * ak];                                                \
                for (int32_t v = 0; v < NV; v++) sum[r][v] += x * row[v];                          \
            }                                                                                      \
        }                                                                                          \
        for (int32_t r = 0; r < rows; r++)                                                         \
            for (int32_t v = 0; v < NV; v++) *(unaligned *)(y + r * ldy + v * lanes) += sum[r][v]; \
    }

WHET_BLOCK(whet_block_2, whet_vec_t, whet_vec_u, 2)
WHET_BLOCK(whet_block_1, whet_vec_t, whet_vec_u, 1)
WHET_BLOCK(whet_block_h, whet_half_t, whet_half_u, 1)

/* A block of 1 to WHET_ROWS rows. */
#define WHET_SOME_ROWS(name, block)                                                        \
    static inline void name(float *y, int32_t ldy, const float *a, int32_t am, int32_t ak, \
                            const float *b, int32_t ldb, int32_t k, int32_t rows) {        \
        switch (rows) {                                                                    \
        case 1:                                                                            \
            block(y, ldy, a, am, ak, b, ldb, k, 1);                                        \
            break;                                                                         \
        case 2:                                                                            \
            block(y, ldy, a, am, ak, b, ldb, k, 2);                                        \
            break;                                                                         \
        case 3:                                                                            \
            block(y, ldy, a, am, ak, b, ldb, k, 3);                                        \
            break;                                                                         \
        case 4:                                                                            \
            block(y, ldy, a, am, ak, b, ldb, k, 4);                                        \
            break;                                                                         \
        case 5:                                                                            \
            block(y, ldy, a, am, ak, b, ldb, k, 5);                                        \
            break;                                                                         \
        case 6:                                                                            \
            block(y, ldy, a, am, ak, b, ldb, k, 6);                                        \
            break;                                                                         \
            WHET_MORE_ROWS(block)                                                          \
        }                                                                                  \
    }

#if WHET_ROWS == 12
#define WHET_MORE_ROWS(block)                    \
    case 7:                                      \
        block(y, ldy, a, am, ak, b, ldb, k, 7);  \
        break;                                   \
    case 8:                                      \
        block(y, ldy, a, am, ak, b, ldb, k, 8);  \
        break;                                   \
    case 9:                                      \
        block(y, ldy, a, am, ak, b, ldb, k, 9);  \
        break;                                   \
    case 10:                                     \
        block(y, ldy, a, am, ak, b, ldb, k, 10); \
        break;                                   \
    case 11:                                     \
        block(y, ldy, a, am, ak, b, ldb, k, 11); \
        break;                                   \
    default:                                     \
        block(y, ldy, a, am, ak, b, ldb, k, 12); \
        break;
#else
#define WHET_MORE_ROWS(block) \
    default:                  \
        break;
#endif

WHET_SOME_ROWS(whet_rows_2, whet_block_2)
WHET_SOME_ROWS(whet_rows_1, whet_block_1)
WHET_SOME_ROWS(whet_rows_h, whet_block_h)

/* y[m,n] += a b where n is two vectors, one, or half of one. The rows are shared out evenly: two
 * blocks of 7 are faster than one of 12 and one of 2. */
static inline void whet_columns(float *y, int32_t ldy, const float *a, int32_t am, int32_t ak,
                                const float *b, int32_t ldb, int32_t m, int32_t n, int32_t k) {
    for (int32_t blocks = (m + WHET_ROWS - 1) / WHET_ROWS; blocks > 0; blocks--) {
        const int32_t rows = (m + blocks - 1) / blocks;
        if (n == WHET_TILE)
            whet_rows_2(y, ldy, a, am, ak, b, ldb, k, rows);
        else if (n == WHET_LANES)
            whet_rows_1(y, ldy, a, am, ak, b, ldb, k, rows);
        else
            whet_rows_h(y, ldy, a, am, ak, b, ldb, k, rows);
        y += rows * ldy;
        a += rows * am;
        m -= rows;
    }
}

/* y[m,n] += a b with n <= WHET_TILE columns. A width that is no number of vectors is padded with
 * zeros, a few rows of y at a time. */
static inline void whet_panel(float *y, int32_t ldy, const float *a, int32_t am, int32_t ak,
                              const float *b, int32_t ldb, int32_t m, int32_t n, int32_t k) {
    if (n == WHET_TILE || n == WHET_LANES || n == WHET_LANES / 2) {
        whet_columns(y, ldy, a, am, ak, b, ldb, m, n, k);
        return;
    }
    const int32_t wide = n > WHET_LANES       ? WHET_TILE
                         : n > WHET_LANES / 2 ? WHET_LANES
                                              : WHET_LANES / 2;
    float panel[WHET_DEPTH * WHET_TILE], sums[WHET_ROWS * WHET_TILE];
    for (int32_t l = 0; l < k; l++)
        for (int32_t j = 0; j < wide; j++) panel[l * wide + j] = j < n ? b[l * ldb + j] : 0.0f;
    for (int32_t i = 0, rows; i < m; i += rows) {
        rows = whet_min(m - i, WHET_ROWS);
        whet_fill(sums, rows * wide, 0.0f);
        whet_columns(sums, wide, a + i * am, am, ak, panel, wide, rows, wide, k);
        for (int32_t r = 0; r < rows; r++)
            for (int32_t j = 0; j < n; j++) y[(i + r) * ldy + j] += sums[r * wide + j];
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

/* Four elements of a and b, numbered through; gcc has had the builtin of clang since version 12. */
#if defined(__clang__) || __GNUC__ >= 12
#define WHET_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t whet_order_t __attribute__((vector_size(16)));
#define WHET_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (whet_order_t){i, j, k, l})
#endif

/* to[4,4] = the transpose of from[4,4]. */
static inline void whet_transpose4(float *to, int32_t ldto, const float *from, int32_t ldfrom) {
    const whet_quad_t a = *(const whet_quad_u *)from, b = *(const whet_quad_u *)(from + ldfrom);
    const whet_quad_t c = *(const whet_quad_u *)(from + 2 * ldfrom);
    const whet_quad_t d = *(const whet_quad_u *)(from + 3 * ldfrom);
    const whet_quad_t ab0 = WHET_SHUFFLE(a, b, 0, 4, 1, 5);
    const whet_quad_t ab2 = WHET_SHUFFLE(a, b, 2, 6, 3, 7);
    const whet_quad_t cd0 = WHET_SHUFFLE(c, d, 0, 4, 1, 5);
    const whet_quad_t cd2 = WHET_SHUFFLE(c, d, 2, 6, 3, 7);
    *(whet_quad_u *)to = WHET_SHUFFLE(ab0, cd0, 0, 1, 4, 5);
    *(whet_quad_u *)(to + ldto) = WHET_SHUFFLE(ab0, cd0, 2, 3, 6, 7);
    *(whet_quad_u *)(to + 2 * ldto) = WHET_SHUFFLE(ab2, cd2, 0, 1, 4, 5);
    *(whet_quad_u *)(to + 3 * ldto) = WHET_SHUFFLE(ab2, cd2, 2, 3, 6, 7);
}

/* panel[k,n] = the transpose of b[n,k], whose rows are `ldb` apart. */
static inline void whet_pack(float *panel, const float *b, int32_t ldb, int32_t n, int32_t k) {
    const int32_t rows = n / 4 * 4, columns = k / 4 * 4;
    for (int32_t j = 0; j < rows; j += 4)
        for (int32_t l = 0; l < columns; l += 4)
            whet_transpose4(panel + l * n + j, n, b + j * ldb + l, ldb);
    for (int32_t l = 0; l < k; l++)
        for (int32_t j = l < columns ? rows : 0; j < n; j++) panel[l * n + j] = b[j * ldb + l];
}

/* y[m,n] += a[m,k] b[n,k]', rows of b `k` apart. Many rows pay for transposing b piece by piece. */
static inline void whet_matmul_nt(float *y, const float *a, const float *b, int32_t m, int32_t n,
                                  int32_t k) {
    if (m < 4) {
        for (int32_t i = 0; i < m; i++)
            for (int32_t j = 0; j < n; j++) y[i * n + j] += whet_dot(a + i * k, b + j * k, k);
        return;
    }
    for (int32_t l = 0; l < k; l += WHET_DEPTH) {
        const int32_t depth = whet_min(k - l, WHET_DEPTH);
        for (int32_t j = 0; j < n; j += WHET_TILE) {
            const int32_t width = whet_min(n - j, WHET_TILE);
            float panel[WHET_DEPTH * WHET_TILE];
            whet_pack(panel, b + j * k + l, k, width, depth);
            whet_panel(y + j, n, a + l, k, 1, panel, width, m, width, depth);
        }
    }
}

#endif
