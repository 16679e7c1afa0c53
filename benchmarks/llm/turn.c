/* A training program that takes turns with others, on one batch.
 *
 *   ./net BATCH THREADS
 *
 * BATCH holds the input array and the label array. Three steps first, of which it says the losses;
 * then, for each line on its input, steps for half a second, of which it says the times in seconds
 * of the clock and of the processor. It says everything as lines of JSON, as worker.py does.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "model.h"

#define TURN 0.5

static net_input_t input[NET_INPUT_ELEMENTS];
static net_label_t label[NET_LABEL_ELEMENTS];

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Peak resident KiB. */
static long high_water(void) {
    char line[256];
    long found = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %ld", &found) == 1) break;
    if (file) fclose(file);
    return found;
}

static float step(net_t *net) {
    float loss = 0.0f;
    const net_status_t status = net_train_step(net, input, label, NET_LEARNING_RATE, &loss);
    if (status != NET_OK) {
        printf("{\"failed\": \"a step stopped with status %d\"}\n", (int)status);
        exit(1);
    }
    return loss;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    FILE *file = argc > 2 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(input, sizeof input, 1, file) != 1 ||
        fread(label, sizeof label, 1, file) != 1) {
        printf("{\"failed\": \"there is no batch in the file\"}\n");
        return 1;
    }
    fclose(file);
#ifdef NET_HAS_THREADS
    net_set_threads(atoi(argv[2]));
#endif
    net_t *net = aligned_alloc(64, (sizeof *net + 63) / 64 * 64);
    if (!net) return 1;
    net_init(net);
    float losses[3];
    for (int i = 0; i < 3; i++) losses[i] = step(net);
    printf("{\"losses\": [%.9g, %.9g, %.9g]}\n", losses[0], losses[1], losses[2]);
    for (int c; (c = getchar()) != EOF;) {
        if (c != '\n') continue;
        const double until = seconds(CLOCK_MONOTONIC) + TURN;
        printf("{\"times\": [");
        for (int i = 0; i == 0 || seconds(CLOCK_MONOTONIC) < until; i++) {
            const double wall = seconds(CLOCK_MONOTONIC);
            const double used = seconds(CLOCK_PROCESS_CPUTIME_ID);
            step(net);
            printf("%s[%.6f, %.6f]", i ? ", " : "", seconds(CLOCK_MONOTONIC) - wall,
                   seconds(CLOCK_PROCESS_CPUTIME_ID) - used);
        }
        printf("], \"peak\": %ld}\n", high_water());
    }
    free(net);
    return 0;
}
