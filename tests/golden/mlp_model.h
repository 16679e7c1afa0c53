/* net: a model that trains where it runs. report.txt describes its contents. */
#ifndef NET_MODEL_H
#define NET_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define NET_ALIGNED alignas(16)
extern "C" {
#else
#define NET_ALIGNED _Alignas(16)
#endif

/* input: 4 x 5: N x D, as in PyTorch */
#define NET_INPUT_ELEMENTS 20
/* label: 4: N, as in PyTorch */
#define NET_LABEL_ELEMENTS 4
/* output: 4 x 3: N x D, as in PyTorch */
#define NET_OUTPUT_ELEMENTS 12
#define NET_BATCH 4 /* samples in each of these arrays */
#define NET_HAS_PREDICT_ONE 1
#define NET_ARENA_BYTES 416
#define NET_LEARNING_RATE 0.01f /* the optimizer's, at compile time */

typedef float net_input_t;
typedef int32_t net_label_t;

typedef enum {
    NET_OK = 0, /* success */
    NET_BAD_INDEX = 1, /* a label or id is out of range; nothing was changed */
    NET_NOT_FINITE = 2, /* the loss is NaN or infinite; no parameter was changed */
    NET_TRUNCATED = 3, /* the checkpoint is shorter than its header says */
    NET_CORRUPT = 4, /* the checksum of the checkpoint does not match */
    NET_FOREIGN = 5, /* the checkpoint belongs to another model or version */
} net_status_t;

/* All mutable data. The caller owns it; several instances train independently. */
typedef struct {
    struct {
        float fc1_weight[40] /* 8x5 */;
        float fc1_bias[8];
        float fc2_weight[24] /* 3x8 */;
        float fc2_bias[3];
    } params;
    NET_ALIGNED unsigned char arena[NET_ARENA_BYTES];
} net_t;

/* Load the compiled-in weights and reset the optimizer state. */
void net_init(net_t *net);

/* Forward pass, backward pass and update, on one batch. */
net_status_t net_train_step(net_t *net, const float *input, const int32_t *label, float lr,
                            float *loss);

/* Forward pass only, in eval mode. */
net_status_t net_predict(net_t *net, const float *input, float *output);

/* Forward pass only, in eval mode, on one sample instead of a batch. */
net_status_t net_predict_one(net_t *net, const float *input, float *output);

/* Write trained parameters and state to a buffer, or read them back. save returns the
 * number of bytes written, or the number needed if the buffer is NULL or too small. */
size_t net_save(const net_t *net, void *buffer, size_t size);
net_status_t net_load(net_t *net, const void *buffer, size_t size);

size_t net_sizeof(void);

/* Use up to `count` threads (1 by default) and return how many; no effect if count < 1.
 * Results are bit-identical for any number of threads. */
#define NET_HAS_THREADS 1
int net_set_threads(int count);

#ifdef __cplusplus
}
#endif

#endif
