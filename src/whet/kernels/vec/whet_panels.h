/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_PANELS_H
#define WHET_PANELS_H

/* Panels whose rows are columns in memory. */

/* Selects four elements of a and b by index; gcc supports clang's builtin since version 12. */
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
typedef int32_t order_t __attribute__((vector_size(16)));
#define SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, (order_t){i, j, k, l})
#endif

/* to[4,4] = the transpose of from[4,4]. */
static inline void transpose4(float *to, int32_t ldto, const float *from, int32_t ldfrom) {
    const whet_quad_t a = *(const whet_quad_u *)from, b = *(const whet_quad_u *)(from + ldfrom);
    const whet_quad_t c = *(const whet_quad_u *)(from + 2 * ldfrom);
    const whet_quad_t d = *(const whet_quad_u *)(from + 3 * ldfrom);
    const whet_quad_t ab0 = SHUFFLE(a, b, 0, 4, 1, 5), ab2 = SHUFFLE(a, b, 2, 6, 3, 7);
    const whet_quad_t cd0 = SHUFFLE(c, d, 0, 4, 1, 5), cd2 = SHUFFLE(c, d, 2, 6, 3, 7);
    *(whet_quad_u *)to = SHUFFLE(ab0, cd0, 0, 1, 4, 5);
    *(whet_quad_u *)(to + ldto) = SHUFFLE(ab0, cd0, 2, 3, 6, 7);
    *(whet_quad_u *)(to + 2 * ldto) = SHUFFLE(ab2, cd2, 0, 1, 4, 5);
    *(whet_quad_u *)(to + 3 * ldto) = SHUFFLE(ab2, cd2, 2, 3, 6, 7);
}

/* panel[k,wide], whose rows are ldp apart, = the transpose of b[n,k], whose rows are ldb apart. */
static inline void pack_columns(float *panel, int32_t ldp, int32_t wide, const float *b,
                                int32_t ldb, int32_t n, int32_t k) {
    const int32_t rows = n / 4 * 4, columns = k / 4 * 4;
    for (int32_t j = 0; j < rows; j += 4)
        for (int32_t l = 0; l < columns; l += 4) {
            const float *from = b + j * ldb + l;
            if (l % 16 == 0)
                for (int32_t r = 4; r < 8; r++) __builtin_prefetch(from + r * ldb); /* next panel */
            transpose4(panel + l * ldp + j, ldp, from, ldb);
        }
    for (int32_t l = 0; l < k; l++)
        for (int32_t j = l < columns ? rows : 0; j < wide; j++)
            panel[l * ldp + j] = j < n ? b[j * ldb + l] : 0.0f;
}

#endif
