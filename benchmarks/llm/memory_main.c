/* Train on one batch, then say the peak resident memory of this process, in KiB.
 *
 *   ./net batch.bin steps
 */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

static struct {
    net_t net;
    net_input_t input[NET_INPUT_ELEMENTS];
    net_label_t label[NET_LABEL_ELEMENTS];
} ram;

static long peak(void) {
    char line[256];
    long found = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmHWM: %ld", &found);
    if (file) fclose(file);
    return found;
}

int main(int argc, char **argv) {
    FILE *file = argc > 2 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(ram.input, sizeof ram.input, 1, file) != 1 ||
        fread(ram.label, sizeof ram.label, 1, file) != 1) {
        fprintf(stderr, "give a batch and a number of steps\n");
        return 1;
    }
    fclose(file);
    net_init(&ram.net);
    for (int step = 0; step < atoi(argv[2]); step++) {
        float loss = 0.0f;
        if (net_train_step(&ram.net, ram.input, ram.label, NET_LEARNING_RATE, &loss) != NET_OK)
            return 1;
        printf("%.9g\n", (double)loss);
    }
    printf("%ld\n", peak());
    return 0;
}
