/* SPDX-License-Identifier: Apache-2.0 */
#ifndef WHET_BLOCKS_H
#define WHET_BLOCKS_H

/* The building block of matrix products: a block of up to WHET_ROWS rows and WHET_TILE columns of a
 * result is summed in registers. Data of b that is not laid out suitably is copied to a panel. */

enum { DEEP = 256 }; /* products summed at a time */

static const float zeros[DEEP];

/* Rows of a block's left operand: row r is at[r][l], or, if `at` is NULL, down[l*step + r]. For
 * every tap the next `lda` pointers are used, from their element `skip` on. */
typedef struct {
    const float *const *at;
    int32_t lda, taps, skip;
    const float *down;
    int32_t step;
} left_t;

/* The epilogue of a block: bias[wide] and add, whose rows are laid out like those of the tile, are
 * added to it; then it is clipped. Either may be NULL. */
typedef struct {
    const float *bias, *add;
    int32_t clips;
    float low, high;
} finish_t;

/* tile[rows, wide] = a b, where b[taps * k, wide] is a panel; their rows are ldt and ldb apart. f
 * may be NULL. The last four are constants after inlining: rows, whole vectors and half vectors of
 * a row, and whether the rows are `down`. */
static inline __attribute__((always_inline)) void block(float *tile, int32_t ldt, const float *b,
                                                        int32_t ldb, int32_t k, const left_t *a,
                                                        const finish_t *f, const int32_t rows,
                                                        const int32_t whole, const int32_t half,
                                                        const int32_t down) {
    whet_vec_t sum[WHET_ROWS][2], start[2] = {whet_all(0.0f), whet_all(0.0f)};
    whet_half_t rest[WHET_ROWS], start_rest = {0.0f};
    if (f && f->bias) {
        for (int32_t v = 0; v < whole; v++) start[v] = whet_load(f->bias + v * WHET_LANES);
        if (half) start_rest = whet_load_half(f->bias + whole * WHET_LANES);
    }
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t v = 0; v < whole; v++) sum[r][v] = start[v];
        rest[r] = start_rest;
    }
    const float *const *at = a->at;
    const float *column = a->down;
    const int32_t step = a->step;
    for (int32_t t = 0; t < a->taps; t++) {
        const float *row[WHET_ROWS];
        if (!down) {
#pragma GCC unroll 12
            for (int32_t r = 0; r < rows; r++) row[r] = at[r] == NULL ? zeros : at[r] + a->skip;
            at += a->lda;
        }
        for (int32_t l = 0; l < k; l++, b += ldb) {
            whet_vec_t u[2];
            whet_half_t w;
            for (int32_t v = 0; v < whole; v++) u[v] = whet_load(b + v * WHET_LANES);
            if (half) w = whet_load_half(b + whole * WHET_LANES);
#pragma GCC unroll 12
            for (int32_t r = 0; r < rows; r++) {
                const float x = down ? column[l * step + r] : row[r][l];
                for (int32_t v = 0; v < whole; v++) sum[r][v] += x * u[v];
                if (half) rest[r] += x * w;
            }
        }
    }
    if (f && f->add) {
        const float *add = f->add;
#pragma GCC unroll 12
        for (int32_t r = 0; r < rows; r++, add += ldt) {
            for (int32_t v = 0; v < whole; v++) sum[r][v] += whet_load(add + v * WHET_LANES);
            if (half) rest[r] += whet_load_half(add + whole * WHET_LANES);
        }
    }
    if (f && f->clips) {
        const float low = f->low, high = f->high;
#pragma GCC unroll 12
        for (int32_t r = 0; r < rows; r++) {
            for (int32_t v = 0; v < whole; v++) sum[r][v] = whet_clip_vec(sum[r][v], low, high);
            if (half) rest[r] = whet_clip_half(rest[r], low, high);
        }
    }
#pragma GCC unroll 12
    for (int32_t r = 0; r < rows; r++, tile += ldt) {
        for (int32_t v = 0; v < whole; v++) whet_store(tile + v * WHET_LANES, sum[r][v]);
        if (half) whet_store_half(tile + whole * WHET_LANES, rest[r]);
    }
}

/* Blocks have 1 row, 3, or an even number of them. */
#define ROWS(n, whole, half, down)                               \
    case n:                                                      \
        block(tile, ldt, b, ldb, k, a, f, n, whole, half, down); \
        break;
#if WHET_ROWS >= 8
#define ROWS_8(...) ROWS(8, __VA_ARGS__)
#else
#define ROWS_8(...)
#endif
#if WHET_ROWS >= 10
#define ROWS_10(...) ROWS(10, __VA_ARGS__)
#else
#define ROWS_10(...)
#endif
#if WHET_ROWS >= 12
#define ROWS_12(...) ROWS(12, __VA_ARGS__)
#else
#define ROWS_12(...)
#endif

#define BLOCKS(name, whole, half, down)                                                \
    static void name(float *tile, int32_t ldt, const float *b, int32_t ldb, int32_t k, \
                     const left_t *a, const finish_t *f, int32_t rows) {               \
        switch (rows) {                                                                \
            ROWS_12(whole, half, down)                                                 \
            ROWS_10(whole, half, down)                                                 \
            ROWS_8(whole, half, down)                                                  \
            ROWS(6, whole, half, down)                                                 \
            ROWS(4, whole, half, down)                                                 \
            ROWS(3, whole, half, down)                                                 \
            ROWS(2, whole, half, down)                                                 \
            ROWS(1, whole, half, down)                                                 \
        }                                                                              \
    }

/* A function that dispatches on the width of the panel, in half vectors, and then on the rows. */
#define MULTIPLY(name, down)                                                             \
    BLOCKS(name##_4, 2, 0, down)                                                         \
    BLOCKS(name##_3, 1, 1, down)                                                         \
    BLOCKS(name##_2, 1, 0, down)                                                         \
    BLOCKS(name##_1, 0, 1, down)                                                         \
    static void name(float *tile, int32_t ldt, const float *b, int32_t ldb, int32_t k,   \
                     const left_t *a, const finish_t *f, int32_t rows, int32_t halves) { \
        switch (halves) {                                                                \
        case 4:                                                                          \
            name##_4(tile, ldt, b, ldb, k, a, f, rows);                                  \
            break;                                                                       \
        case 3:                                                                          \
            name##_3(tile, ldt, b, ldb, k, a, f, rows);                                  \
            break;                                                                       \
        case 2:                                                                          \
            name##_2(tile, ldt, b, ldb, k, a, f, rows);                                  \
            break;                                                                       \
        default:                                                                         \
            name##_1(tile, ldt, b, ldb, k, a, f, rows);                                  \
        }                                                                                \
    }

/* Half vectors that hold n columns. */
static inline int32_t halves_of(int32_t n) { return (n + WHET_LANES / 2 - 1) / (WHET_LANES / 2); }

/* Rows of the next block when m are left. They are split evenly, because two blocks of 6 are faster
 * than one of 8 and one of 4, into even numbers if possible. A single row is slow and may be
 * rounded differently, so three rows are processed together instead; a block has one row only if
 * the product has. */
static inline int32_t next_rows(int32_t m) {
    const int32_t blocks = (m + WHET_ROWS - 1) / WHET_ROWS, rows = (m + blocks - 1) / blocks;
    const int32_t even = whet_min((rows + 1) / 2 * 2, m / 2 * 2);
    return m == 1 || m == 3 ? m : m - even == 1 ? even - 2 : even;
}

/* Threads split m rows in units of WHET_ROWS; a single remaining row goes to the last unit. */
static inline int32_t row_units(int32_t m) { return m == 1 ? 1 : (m + WHET_ROWS - 2) / WHET_ROWS; }
static inline int32_t row_after(int32_t m, int32_t unit) {
    return unit == row_units(m) ? m : unit * WHET_ROWS;
}

/* to[wide] = from[n] and zeros. */
static inline void copy_row(float *to, const float *from, int32_t n, int32_t wide) {
    if (n == WHET_TILE) {
        whet_store(to, whet_load(from));
        whet_store(to + WHET_LANES, whet_load(from + WHET_LANES));
        return;
    }
    int32_t j = 0;
    for (; j + WHET_LANES / 2 <= n; j += WHET_LANES / 2)
        whet_store_half(to + j, whet_load_half(from + j));
    for (; j < wide; j++) to[j] = j < n ? from[j] : 0.0f;
}

#endif
