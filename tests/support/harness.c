/* Drives every entry point of a generated program and checks what model.h promises.
 *
 * HAS_IDS: labels are class ids. HAS_GRADIENTS: `gradients` and `apply` are there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #condition); \
            exit(1);                                                              \
        }                                                                         \
    } while (0)

static net_t one, two, copy;
static net_input_t input[NET_INPUT_ELEMENTS];
static net_label_t label[NET_LABEL_ELEMENTS];
static float output[NET_OUTPUT_ELEMENTS], again[NET_OUTPUT_ELEMENTS];

static void make_batch(uint32_t seed) {
    for (size_t i = 0; i < NET_INPUT_ELEMENTS; i++) {
        seed = seed * 1664525u + 1013904223u;
        input[i] = (net_input_t)((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
    for (size_t i = 0; i < NET_LABEL_ELEMENTS; i++) label[i] = (net_label_t)((seed + i) % 2);
}

/* Parameters, optimizer state, running statistics and random state: all but the arena. */
static int same_state(const net_t *a, const net_t *b) {
    return memcmp(a, b, (size_t)((const char *)a->arena - (const char *)a)) == 0;
}

/* Whatever lies in the arena before a call has no influence. */
static void arena_starts_as_anything(void) {
    static const int poison[] = {0x00, 0xFF, 0x7F};
    for (uint32_t i = 0; i < 3; i++) {
        float first = 0.0f, second = 1.0f;
        make_batch(i + 1);
        memset(one.arena, 0x00, sizeof one.arena);
        memset(two.arena, poison[(i + 1) % 3], sizeof two.arena);
        CHECK(net_train_step(&one, input, label, 0.01f, &first) == NET_OK);
        CHECK(net_train_step(&two, input, label, 0.01f, &second) == NET_OK);
        CHECK(memcmp(&first, &second, sizeof first) == 0);
        CHECK(same_state(&one, &two));
#ifdef HAS_GRADIENTS
        memset(two.arena, 0xFF, sizeof two.arena);
        CHECK(net_gradients(&one, input, label, &first) == NET_OK);
        CHECK(net_gradients(&two, input, label, &second) == NET_OK);
        CHECK(memcmp(&first, &second, sizeof first) == 0 && same_state(&one, &two));
        memset(two.arena, 0xFF, sizeof two.arena);
        CHECK(net_apply(&one, 0.01f, 1.0f) == NET_OK && net_apply(&two, 0.01f, 1.0f) == NET_OK);
        CHECK(same_state(&one, &two));
#endif
        memset(two.arena, 0xFF, sizeof two.arena);
        CHECK(net_predict(&one, input, output) == NET_OK);
        CHECK(net_predict(&two, input, again) == NET_OK);
        CHECK(memcmp(output, again, sizeof output) == 0 && same_state(&one, &two));
#ifdef NET_HAS_PREDICT_ONE
        const size_t in = NET_INPUT_ELEMENTS / NET_BATCH, out = NET_OUTPUT_ELEMENTS / NET_BATCH;
        for (size_t row = 0; row < NET_BATCH; row++) {
            memset(two.arena, 0xFF, sizeof two.arena);
            CHECK(net_predict_one(&two, input + row * in, again + row * out) == NET_OK);
        }
        for (size_t k = 0; k < NET_OUTPUT_ELEMENTS; k++)
            CHECK(fabsf(again[k] - output[k]) <= 1e-5f * (1.0f + fabsf(output[k])));
        CHECK(same_state(&one, &two));
#endif
    }
}

#ifdef HAS_IDS
/* An id that is out of range is reported before anything is touched, the loss included. */
static void bad_labels_touch_nothing(void) {
    static const int32_t bad[] = {1 << 20, -1, INT32_MIN, INT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        float loss = 42.0f;
        make_batch(5);
        label[NET_LABEL_ELEMENTS - 1] = bad[i];
        copy = one;
        CHECK(net_train_step(&one, input, label, 0.01f, &loss) == NET_BAD_INDEX);
        CHECK(memcmp(&one, &copy, sizeof one) == 0 && loss == 42.0f);
#ifdef HAS_GRADIENTS
        CHECK(net_gradients(&one, input, label, &loss) == NET_BAD_INDEX);
        CHECK(memcmp(&one, &copy, sizeof one) == 0 && loss == 42.0f);
#endif
    }
}
#endif

#ifdef HAS_REAL_INPUT
/* A loss that is not finite ends the step with parameters, moments, statistics and rng unchanged. */
static void bad_losses_change_nothing(void) {
    const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        float loss = 42.0f;
        make_batch(6);
        for (size_t k = 0; k < NET_INPUT_ELEMENTS; k++) input[k] = bad[i];
        copy = one;
        CHECK(net_train_step(&one, input, label, 0.01f, &loss) == NET_NOT_FINITE);
        CHECK(!(loss - loss == 0.0f) && same_state(&one, &copy));
#ifdef HAS_GRADIENTS
        CHECK(net_gradients(&one, input, label, &loss) == NET_NOT_FINITE);
        CHECK(same_state(&one, &copy));
#endif
    }
}
#endif

/* A checkpoint restores exactly what was saved, and any other blob changes nothing. */
static void checkpoints(void) {
    const size_t size = net_save(&one, NULL, 0);
    unsigned char *blob = malloc(size + 1);
    CHECK(blob && size > 20);
    memset(blob, 0xAB, size + 1);
    CHECK(net_save(&one, blob, size - 1) == size && blob[0] == 0xAB);
    CHECK(net_save(&one, blob, size) == size && blob[size] == 0xAB);
    net_init(&two);
    memset(two.arena, 0xFF, sizeof two.arena);
    CHECK(net_load(&two, blob, size) == NET_OK && same_state(&one, &two));

    net_init(&two);
    copy = two;
    CHECK(net_load(&two, NULL, 0) == NET_TRUNCATED);
    for (size_t n = 0; n < size; n += n < 40 ? 1 : 97) {
        unsigned char *part = malloc(n + !n); /* exactly as long as we say: a sanitizer watches */
        CHECK(part);
        memcpy(part, blob, n);
        CHECK(net_load(&two, part, n) == NET_TRUNCATED);
        free(part);
    }
    CHECK(net_load(&two, blob, size + 1) == NET_CORRUPT);
    for (size_t i = 0; i < size; i += i < 40 ? 1 : 31) {
        blob[i] ^= 0x10;
        CHECK(net_load(&two, blob, size) != NET_OK);
        blob[i] ^= 0x10;
    }
    CHECK(memcmp(&two, &copy, sizeof two) == 0);
    free(blob);
}

int main(void) {
    CHECK(net_sizeof() == sizeof one);
    memset(&one, 0xFF, sizeof one);
    net_init(&one);
    net_init(&two);
    CHECK(memcmp(&one, &two, sizeof one) == 0);
    arena_starts_as_anything();
#ifdef HAS_IDS
    bad_labels_touch_nothing();
#endif
#ifdef HAS_REAL_INPUT
    bad_losses_change_nothing();
#endif
    checkpoints();
    printf("%zu bytes\n", sizeof one);
    return 0;
}
