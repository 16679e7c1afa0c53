/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the parameters of the compiler's cost model and prints them as JSON. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "whet_kernels.h"
#include "whet_lanes.h"
#include "whet_threads.h"

enum { ROUNDS = 15 };

static double read_clock(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double now(void) { return read_clock(CLOCK_MONOTONIC); }

/* Time in which this thread ran: what other programs take does not count. */
static double busy(void) { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double noise = 0; /* largest relative excess of a median over its fastest round */

static double median(double *times, int n) {
    qsort(times, (size_t)n, sizeof *times, by_size);
    noise = fmax(noise, times[n / 2] / times[0] - 1);
    return times[n / 2];
}

static float *numbers(int32_t n) {
    float *x = malloc((size_t)n * sizeof *x);
    if (x == NULL) exit(1);
    for (int32_t i = 0; i < n; i++) x[i] = (float)(i % 7) - 3.0f;
    return x;
}

/* Median nanoseconds of a 3x3 convolution of size x size pixels and c channels: direct, and with
 * Winograd's method. */
static void convolution(int32_t size, int32_t c, double *direct, double *winograd) {
    const whet_conv2d_t d = {1, size, size, c, size, size, c, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0};
    const int32_t pixels = size * size, tiles = (size + 1) / 2 * ((size + 1) / 2);
    float *x = numbers(pixels * c), *w = numbers(9 * c * c), *y = numbers(pixels * c);
    float *workspace = numbers(16 * (c * c + tiles * 2 * c));
    double plain[ROUNDS], other[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        const double start = busy();
        whet_conv2d_f32(y, x, w, NULL, &d);
        const double middle = busy();
        whet_conv2d_winograd_f32(y, x, w, NULL, NULL, -INFINITY, INFINITY, &d, workspace);
        plain[i] = middle - start;
        other[i] = busy() - middle;
    }
    *direct = median(plain, ROUNDS);
    *winograd = median(other, ROUNDS);
    free(x);
    free(w);
    free(y);
    free(workspace);
}

static void nothing(const void *args, int32_t first, int32_t end) {
    (void)args;
    (void)first;
    (void)end;
}

/* Median overhead of sharing work, in nanoseconds. */
static double waking(void) {
    double times[101];
    for (int i = 0; i < 101; i++) {
        const double start = now();
        whet_share_work(nothing, NULL, 64, INT64_MAX);
        times[i] = now() - start;
    }
    qsort(times, 101, sizeof *times, by_size);
    return times[50];
}

int main(void) {
    double direct, small, large, plain;
    convolution(28, 128, &direct, &small);
    convolution(7, 512, &plain, &large);
    printf("{\"lanes\": %d, \"direct\": %.0f, \"winograd\": %.0f, \"large\": %.0f, ", WHET_LANES,
           direct, small, large);
    printf("\"noise\": %.3f, ", noise);
    const int threads = whet_set_threads(2);
    printf("\"wake\": %.0f}\n", threads > 1 ? waking() : 0.0);
    return 0;
}
