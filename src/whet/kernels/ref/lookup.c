/* SPDX-License-Identifier: Apache-2.0 */
#include "whet_inline.h"

/* Indices of `bits` each, one behind the other, the low end of a byte first. */
typedef struct {
    const uint8_t *next;
    uint32_t word;
    int32_t have;
} indices_t;

static inline uint32_t take(indices_t *from, int32_t bits) {
    if (from->have < bits) {
        from->word |= (uint32_t)*from->next++ << from->have;
        from->have += 8;
    }
    const uint32_t index = from->word & ((1u << bits) - 1);
    from->word >>= bits;
    from->have -= bits;
    return index;
}

/* formula    y[o][c][i] = book[index[o][c][i]] * scale[c]; scale may be NULL, for 1
 * shapes     y[outer][channels][inner], book[2^bits or less], scale[channels], 1 <= bits <= 8;
 *            index is packed, see above
 * aliasing   none
 * rounding   one product
 * workspace  none */
void whet_lookup_f32(float *y, const float *book, const uint8_t *index, const float *scale,
                     int32_t outer, int32_t channels, int32_t inner, int32_t bits) {
    indices_t from = {.next = index};
    for (int32_t o = 0; o < outer; o++)
        for (int32_t c = 0; c < channels; c++) {
            const float s = scale ? scale[c] : 1.0f;
            for (int32_t i = 0; i < inner; i++) *y++ = book[take(&from, bits)] * s;
        }
}

/* formula    y[i] = book[index[i]]
 * shapes     y[n], book[2^bits or less], 1 <= bits <= 8; index is packed, see above
 * aliasing   none
 * rounding   none
 * workspace  none */
void whet_lookup_i8(int8_t *y, const int8_t *book, const uint8_t *index, int32_t n, int32_t bits) {
    int32_t i = 0;
    if (bits == 4)
        for (; i < n - 1; i += 2) {
            const uint32_t both = *index++;
            y[i] = book[both & 15];
            y[i + 1] = book[both >> 4];
        }
    indices_t from = {.next = index};
    for (; i < n; i++) y[i] = book[take(&from, bits)];
}

/* formula    dbook[k] = sum of dy[i] where index[i] = k; 0 for k = fixed
 * shapes     dbook[entries], dy[n], entries <= 2^bits, 1 <= bits <= 8; index is packed, see above
 * aliasing   none
 * rounding   sums of 1,024 elements each, then of those sums, in order
 * workspace  entries floats */
void whet_lookup_dcodebook_f32(float *dbook, const float *dy, const uint8_t *index, int32_t n,
                               int32_t entries, int32_t fixed, int32_t bits, float *sums) {
    indices_t from = {.next = index};
    whet_fill(dbook, entries, 0.0f);
    for (int32_t i = 0; i < n; i += 1024) {
        whet_fill(sums, entries, 0.0f);
        const int32_t end = whet_min(n, i + 1024);
        for (int32_t j = i; j < end; j++) sums[take(&from, bits)] += dy[j];
        for (int32_t k = 0; k < entries; k++) dbook[k] += sums[k];
    }
    if (fixed >= 0) dbook[fixed] = 0.0f;
}

/* formula    dbook[k] = sum of dy[r,o] * x[r,i] where index[o,i] = k; 0 for k = fixed
 * shapes     dbook[entries], dy[rows,o], x[rows,i], entries <= 2^bits, 1 <= bits <= 8; index[o,i]
 *            is packed, see above
 * aliasing   none
 * rounding   sums over each output, then of those sums, in order
 * workspace  entries floats */
void whet_linear_shared_dcodebook_f32(float *dbook, const float *dy, const float *x,
                                      const uint8_t *index, int32_t rows, int32_t i, int32_t o,
                                      int32_t entries, int32_t fixed, int32_t bits, float *sums) {
    whet_fill(dbook, entries, 0.0f);
    indices_t from = {.next = index};
    for (int32_t k = 0; k < o; k++) {
        whet_fill(sums, entries, 0.0f);
        for (int32_t j = 0; j < i; j++) {
            float *sum = sums + take(&from, bits);
            for (int32_t r = 0; r < rows; r++) *sum += dy[r * o + k] * x[r * i + j];
        }
        for (int32_t e = 0; e < entries; e++) dbook[e] += sums[e];
    }
    if (fixed >= 0) dbook[fixed] = 0.0f;
}
