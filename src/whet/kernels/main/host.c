/* Train on a file of samples or, without one, overfit a synthetic batch.
 *
 *   ./net                              40 steps on one batch; the loss must fall
 *   ./net  data.bin [steps] [rate]     train on a file; saves checkpoint.bin
 *
 * data.bin is a sequence of batches. Each batch is the input array, then the label array, as passed
 * to net_train_step, both little-endian. The order of axes:
@arrays@
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"

/* All of the program's memory except the stack. */
static struct {
    net_t net;
    net_input_t input[NET_INPUT_ELEMENTS];
    net_label_t label[NET_LABEL_ELEMENTS];
} ram;

/* A reproducible pattern: inputs in [-1, 1) (ids are all 0), labels alternate between 0 and 1. */
static void make_batch(void) {
    uint32_t word = 1;
    for (size_t i = 0; i < NET_INPUT_ELEMENTS; i++) {
        word = word * 1664525u + 1013904223u;
#ifdef NET_INPUT_SCALE /* int8 inputs: any value is valid */
        ram.input[i] = (net_input_t)((int32_t)(word >> 24) - 128);
#else
        ram.input[i] = (net_input_t)((float)(word >> 8) / 8388608.0f - 1.0f);
#endif
    }
    for (size_t i = 0; i < NET_LABEL_ELEMENTS; i++) ram.label[i] = (net_label_t)(i % 2);
}

/* The next batch of the file; starts over at its end. */
static int read_batch(FILE *file) {
    for (int attempt = 0; attempt < 2; attempt++) {
        if (fread(ram.input, sizeof ram.input, 1, file) == 1 &&
            fread(ram.label, sizeof ram.label, 1, file) == 1)
            return 1;
        rewind(file);
    }
    return 0;
}

/* Wall-clock time in seconds. */
static double now(void) {
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int save(const char *path) {
    size_t size = net_save(&ram.net, NULL, 0);
    void *blob = malloc(size);
    FILE *file = fopen(path, "wb");
    int done =
        blob && file && net_save(&ram.net, blob, size) == size && fwrite(blob, size, 1, file) == 1;
    if (file) fclose(file);
    free(blob);
    return done;
}

int main(int argc, char **argv) {
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    const int steps = argc > 2 ? atoi(argv[2]) : 40;
    const float rate = argc > 3 ? (float)atof(argv[3]) : NET_LEARNING_RATE;
    if (argc > 1 && !file) {
        fprintf(stderr, "cannot open %s\n", argv[1]);
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
#ifdef NET_HAS_THREADS
    const char *threads = getenv("WHET_THREADS");
    if (threads) printf("threads: %d\n", net_set_threads(atoi(threads)));
#endif
    net_init(&ram.net);
    make_batch();
    printf("%zu bytes of memory\n", sizeof ram);
    for (int step = 1; step <= steps; step++) {
        float loss = 0.0f;
        if (file && !read_batch(file)) {
            fprintf(stderr, "%s is shorter than one batch\n", argv[1]);
            return 1;
        }
        const double start = now();
        net_status_t status = net_train_step(&ram.net, ram.input, ram.label, rate, &loss);
        const double ms = 1e3 * (now() - start);
        if (status != NET_OK) {
            fprintf(stderr, "step %d stopped with status %d\n", step, (int)status);
            return 1;
        }
        if (step == 1 || step % 10 == 0)
            printf("step %4d  loss %.6f  %.1f ms\n", step, (double)loss, ms);
    }
    if (file) {
        fclose(file);
        if (!save("checkpoint.bin")) return 1;
        printf("saved checkpoint.bin\n");
    }
    return 0;
}
