/* Makes the calls that standard input describes, and writes all their arrays to standard output.
 *
 * A call is a kernel's number, its blocks and its arguments, each list with its length in front. A
 * block is BYTES, a size and as many bytes, or POINTERS, a length and as many numbers of blocks, of
 * which the first is 1 and NULL is 0. An argument is a NUMBER and its bits, or a POINTER and a
 * block. Every block is an allocation of its own, which the address sanitizer watches; calls.h,
 * which is generated, has a function for every kernel. Numbers are words of 64 bits. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "whet_kernels_attention.h"
#include "whet_kernels_i8.h"
#include "whet_kernels_bf16.h"
#include "whet_kernels_cached.h"
#include "whet_kernels_dots.h"
#include "whet_kernels_lm.h"
#include "whet_kernels_moments.h"
#include "whet_kernels_stored.h"

enum { BYTES, POINTERS };
enum { NUMBER, POINTER };
enum { MOST_BLOCKS = 256, MOST_ARGUMENTS = 32 };

typedef union {
    void *p;
    uint32_t bits;
    int32_t i;
    float f;
} arg_t;

#include "calls.h" /* static void (*const calls[])(const arg_t *) */

static struct {
    void *memory, *start; /* what is pointed to lies behind GUARD bytes */
    size_t size;          /* of what is written back */
} blocks[1 + MOST_BLOCKS];

static void check(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "the calls cannot be read: %s\n", what);
    exit(2);
}

static uint64_t word(uint64_t limit) {
    uint64_t value = 0;
    check(fread(&value, sizeof value, 1, stdin) == 1, "they end early");
    check(value < limit, "a number is too large");
    return value;
}

static void read_block(size_t k) {
    const uint64_t kind = word(2);
    const size_t n = (size_t)word(1u << 30), size = kind == BYTES ? n : n * sizeof(void *);
    blocks[k].memory = malloc(size);
    check(blocks[k].memory || !size, "there is no memory left");
    blocks[k].start = blocks[k].memory;
    blocks[k].size = 0;
    if (kind == BYTES) {
        check(!n || fread(blocks[k].memory, n, 1, stdin) == 1, "they end early");
        blocks[k].start = (char *)blocks[k].memory + GUARD;
        blocks[k].size = n;
    } else {
        for (size_t i = 0; i < n; i++) ((void **)blocks[k].memory)[i] = blocks[word(k)].start;
    }
}

static arg_t read_argument(size_t count) {
    arg_t arg = {NULL};
    if (word(2) == POINTER)
        arg.p = blocks[word(count + 1)].start;
    else
        arg.bits = (uint32_t)word(1ull << 32);
    return arg;
}

int main(void) {
#ifdef THREADS
    whet_set_threads(THREADS);
#endif
    for (uint64_t kernel; fread(&kernel, sizeof kernel, 1, stdin) == 1;) {
        arg_t args[MOST_ARGUMENTS];
        const size_t count = (size_t)word(MOST_BLOCKS + 1);
        for (size_t k = 1; k <= count; k++) read_block(k);
        const size_t length = (size_t)word(MOST_ARGUMENTS + 1);
        for (size_t k = 0; k < length; k++) args[k] = read_argument(count);
        check(kernel < sizeof calls / sizeof *calls, "there is no such kernel");
        calls[kernel](args);
        for (size_t k = 1; k <= count; k++) {
            fwrite(blocks[k].memory, 1, blocks[k].size, stdout);
            free(blocks[k].memory);
        }
        fflush(stdout); /* so that the caller can tell which call has crashed */
    }
    return 0;
}
