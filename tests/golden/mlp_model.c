/* net: the training program, one kernel call per node of its graph. */
#include "model.h"

#include <string.h>

#include "weights.h"
#include "whet_kernels.h"

/* An address inside the arena, whose size is in model.h. */
#define AT(type, offset) ((type *)(void *)(net->arena + (offset)))

static const whet_reduce_t reduce_1 = {
    .rank = 2, .dims = {4, 3, 1, 1, 1, 1, 1, 1}, .step = {0, 1, 0, 0, 0, 0, 0, 0}
};
static const whet_reduce_t reduce_2 = {
    .rank = 2, .dims = {4, 8, 1, 1, 1, 1, 1, 1}, .step = {0, 1, 0, 0, 0, 0, 0, 0}
};

void net_init(net_t *net) {
    memset(net, 0, sizeof *net);
    memcpy(net->params.fc1_weight, net_fc1_weight, sizeof net->params.fc1_weight);
    memcpy(net->params.fc1_bias, net_fc1_bias, sizeof net->params.fc1_bias);
    memcpy(net->params.fc2_weight, net_fc2_weight, sizeof net->params.fc2_weight);
    memcpy(net->params.fc2_bias, net_fc2_bias, sizeof net->params.fc2_bias);
}

size_t net_sizeof(void) { return sizeof(net_t); }

static net_status_t train_step(net_t *net, const float *input, const int32_t *label, float lr,
                               float *loss) {
    if (!whet_ids_in_range(label, 4, 3, -100)) return NET_BAD_INDEX;

    /* %fc1 = linear %input, %fc1.weight, %fc1.bias : f32[4,8] */
    whet_linear_f32(AT(float, 16), input, net->params.fc1_weight, net->params.fc1_bias, 4, 5, 8);

    /* %act = tanh %fc1 : f32[4,8] */
    whet_tanh_f32(AT(float, 16), AT(float, 16), 32);

    /* %fc2 = linear %act, %fc2.weight, %fc2.bias : f32[4,3] */
    whet_linear_f32(AT(float, 144), AT(float, 16), net->params.fc2_weight, net->params.fc2_bias,
                    4, 8, 3);

    /* %loss = cross_entropy %fc2, %label : f32[] */
    whet_cross_entropy_f32(AT(float, 0), AT(float, 144), label, NULL, 4, 3, -100, 1, 0.0f);

    *loss = *AT(float, 0);
    if (!whet_is_finite(*loss)) return NET_NOT_FINITE;

    /* Backward pass. Parameters and state may change from here on. */

    /* %d.fc2 = cross_entropy_dx %one, %fc2, %label : f32[4,3] */
    whet_cross_entropy_dx_f32(AT(float, 144), net_one, AT(float, 144), label, NULL, 4, 3, -100, 1,
                              0.0f);

    /* %d.act = linear_dx %d.fc2, %fc2.weight : f32[4,8] */
    whet_linear_dx_f32(AT(float, 192), AT(float, 144), net->params.fc2_weight, 4, 8, 3);

    /* %d.fc2.weight = linear_dw %d.fc2, %act : f32[3,8] */
    whet_linear_dw_f32(AT(float, 320), AT(float, 144), AT(float, 16), 4, 8, 3);

    /* %fc2.weight.next = sgd %fc2.weight, %d.fc2.weight, %lr : f32[3,8] */
    whet_sgd_f32(net->params.fc2_weight, net->params.fc2_weight, AT(float, 320), &lr, 24, 1.0f,
                 0.0f);

    /* %d.fc2.bias = sum %d.fc2 {axes=(0,)} : f32[1,3] */
    whet_sum_f32(AT(float, 320), AT(float, 144), 3, 4, &reduce_1);

    /* %fc2.bias.next = sgd %fc2.bias, %d.fc2.bias_1, %lr : f32[3] */
    whet_sgd_f32(net->params.fc2_bias, net->params.fc2_bias, AT(float, 320), &lr, 3, 1.0f, 0.0f);

    /* %d.fc1 = tanh_dx %d.act, %act : f32[4,8] */
    whet_tanh_dx_f32(AT(float, 192), AT(float, 192), AT(float, 16), 32);

    /* %d.fc1.weight = linear_dw %d.fc1, %input : f32[8,5] */
    whet_linear_dw_f32(AT(float, 16), AT(float, 192), input, 4, 5, 8);

    /* %fc1.weight.next = sgd %fc1.weight, %d.fc1.weight, %lr : f32[8,5] */
    whet_sgd_f32(net->params.fc1_weight, net->params.fc1_weight, AT(float, 16), &lr, 40, 1.0f,
                 0.0f);

    /* %d.fc1.bias = sum %d.fc1 {axes=(0,)} : f32[1,8] */
    whet_sum_f32(AT(float, 16), AT(float, 192), 8, 4, &reduce_2);

    /* %fc1.bias.next = sgd %fc1.bias, %d.fc1.bias_1, %lr : f32[8] */
    whet_sgd_f32(net->params.fc1_bias, net->params.fc1_bias, AT(float, 16), &lr, 8, 1.0f, 0.0f);
    return NET_OK;
}

net_status_t net_train_step(net_t *net, const float *input, const int32_t *label, float lr,
                            float *loss) {
    const uint32_t before = whet_flush_subnormals();
    const net_status_t status = train_step(net, input, label, lr, loss);
    whet_restore_subnormals(before);
    return status;
}

static net_status_t predict(net_t *net, const float *input, float *output) {

    /* %fc1 = linear %input, %fc1.weight, %fc1.bias : f32[4,8] */
    whet_linear_f32(AT(float, 0), input, net->params.fc1_weight, net->params.fc1_bias, 4, 5, 8);

    /* %act = tanh %fc1 : f32[4,8] */
    whet_tanh_f32(AT(float, 0), AT(float, 0), 32);

    /* %fc2 = linear %act, %fc2.weight, %fc2.bias : f32[4,3] */
    whet_linear_f32(AT(float, 128), AT(float, 0), net->params.fc2_weight, net->params.fc2_bias, 4,
                    8, 3);

    memcpy(output, AT(float, 128), 48);
    return NET_OK;
}

net_status_t net_predict(net_t *net, const float *input, float *output) {
    const uint32_t before = whet_flush_subnormals();
    const net_status_t status = predict(net, input, output);
    whet_restore_subnormals(before);
    return status;
}

static net_status_t predict_one(net_t *net, const float *input, float *output) {

    /* %fc1 = linear %input, %fc1.weight, %fc1.bias : f32[1,8] */
    whet_linear_f32(AT(float, 0), input, net->params.fc1_weight, net->params.fc1_bias, 1, 5, 8);

    /* %act = tanh %fc1 : f32[1,8] */
    whet_tanh_f32(AT(float, 0), AT(float, 0), 8);

    /* %fc2 = linear %act, %fc2.weight, %fc2.bias : f32[1,3] */
    whet_linear_f32(AT(float, 32), AT(float, 0), net->params.fc2_weight, net->params.fc2_bias, 1,
                    8, 3);

    memcpy(output, AT(float, 32), 12);
    return NET_OK;
}

net_status_t net_predict_one(net_t *net, const float *input, float *output) {
    const uint32_t before = whet_flush_subnormals();
    const net_status_t status = predict_one(net, input, output);
    whet_restore_subnormals(before);
    return status;
}

size_t net_save(const net_t *net, void *buffer, size_t size) {
    const whet_const_bytes_t spans[] = {
        {&net->params, sizeof net->params},
    };
    return whet_checkpoint_save(buffer, size, 0x06e59829u, spans, 1);
}

net_status_t net_load(net_t *net, const void *buffer, size_t size) {
    const whet_bytes_t spans[] = {
        {&net->params, sizeof net->params},
    };
    switch (whet_checkpoint_load(buffer, size, 0x06e59829u, spans, 1)) {
    case WHET_CHECKPOINT_OK: return NET_OK;
    case WHET_CHECKPOINT_TRUNCATED: return NET_TRUNCATED;
    case WHET_CHECKPOINT_FOREIGN: return NET_FOREIGN;
    default: return NET_CORRUPT;
    }
}

int net_set_threads(int count) { return (int)whet_set_threads((int32_t)count); }
