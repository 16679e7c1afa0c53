/* Train on data from the host, if one is connected to the board's channel. Otherwise train
 * repeatedly on the samples in flash (samples.c), or on a synthetic batch if there are none.
 *
 * Arrays are little-endian. The order of their axes:
@arrays@
 */
#include "board.h"
#include "model.h"
#include "samples.h"

/* All of the program's memory except the stack. The input buffer is inside net. */
static struct {
    net_t net;
    net_label_t label[NET_LABEL_ELEMENTS];
    float output[NET_OUTPUT_ELEMENTS];
} ram;

enum { STEPS = 40 };

/* Commands from the host (arguments: results). Each is answered with an int32 status, then its
 * results. */
typedef enum {
    /* send: commands */
    TRAIN = 'T',   /* float rate, input, label: float loss */
    PREDICT = 'P', /* input: output */
    ONE = 'O',     /* one sample of an input: its output */
    FETCH = 'F',   /* nothing: trained parameters and state, in the layout of net */
    STORE = 'S',   /* those: nothing */
    STACK = 'K',   /* nothing: uint32 bytes of stack used */
    QUIT = 'Q'     /* nothing: nothing, and the program ends */
} command_t;

static void answer(net_status_t status, const void *data, size_t size) {
    const int32_t word = (int32_t)status;
    board_write(&word, sizeof word);
    if (size > 0) board_write(data, size);
}

static void train(void) {
    net_input_t *const input = net_input(&ram.net);
    float rate, loss = 0.0f;
    board_read(&rate, sizeof rate);
    board_read(input, NET_INPUT_ELEMENTS * sizeof *input);
    board_read(ram.label, sizeof ram.label);
    const net_status_t status = net_train_step(&ram.net, input, ram.label, rate, &loss);
    answer(status, &loss, sizeof loss);
}

static void predict(void) {
    net_input_t *const input = net_input(&ram.net);
    board_read(input, NET_INPUT_ELEMENTS * sizeof *input);
    const net_status_t status = net_predict(&ram.net, input, ram.output);
    answer(status, ram.output, sizeof ram.output);
}

#ifdef NET_HAS_PREDICT_ONE
static void predict_one(void) {
    net_input_t *const input = net_input(&ram.net);
    board_read(input, NET_INPUT_ELEMENTS / NET_BATCH * sizeof *input);
    const net_status_t status = net_predict_one(&ram.net, input, ram.output);
    answer(status, ram.output, sizeof ram.output / NET_BATCH);
}
#endif

/* send: functions */
static void serve(void) {
    for (;;) {
        uint8_t command;
        board_read(&command, sizeof command);
        switch ((command_t)command) {
        case TRAIN:
            train();
            break;
        case PREDICT:
            predict();
            break;
#ifdef NET_HAS_PREDICT_ONE
        case ONE:
            predict_one();
            break;
#endif
        case FETCH:
            answer(NET_OK, &ram.net, offsetof(net_t, arena));
            break;
        case STORE:
            board_read(&ram.net, offsetof(net_t, arena));
            answer(NET_OK, NULL, 0);
            break;
        /* send: cases */
        case STACK: {
            const uint32_t used = board_stack_used();
            answer(NET_OK, &used, sizeof used);
            break;
        }
        case QUIT:
            answer(NET_OK, NULL, 0);
            return;
        default:
            board_stop(97);
        }
    }
}

/* Prints a loss with three decimals, without printf. */
static void say_loss(int step, float loss) {
    char text[] = "step ....  loss ....000\n";
    int thousandths = loss < 9999.0f ? (int)(loss * 1000.0f + 0.5f) : 9999999;
    for (int i = 8; i >= 5; i--, step /= 10)
        text[i] = (char)(step > 0 || i == 8 ? '0' + step % 10 : ' ');
    for (int i = 22; i >= 16; i--) {
        if (i == 19) {
            text[i] = '.';
            continue;
        }
        text[i] = (char)('0' + thousandths % 10);
        thousandths /= 10;
    }
    board_say(text);
}

#if NET_SAMPLES > 0

static net_status_t step_on_sample(int step, float *loss) {
    const net_sample_t *const sample = &net_samples[step % NET_SAMPLES];
    return net_train_step(&ram.net, sample->input, sample->label, NET_LEARNING_RATE, loss);
}

#else

/* A synthetic batch, filled in before every step because a step overwrites its input buffer. */
static net_status_t step_on_sample(int step, float *loss) {
    net_input_t *const input = net_input(&ram.net);
    uint32_t word = 1;
    (void)step;
    for (size_t i = 0; i < NET_INPUT_ELEMENTS; i++) {
        word = word * 1664525u + 1013904223u;
#ifdef NET_INPUT_SCALE /* int8 inputs: any value is valid */
        input[i] = (net_input_t)((int32_t)(word >> 24) - 128);
#else
        input[i] = (net_input_t)((float)(word >> 8) / 8388608.0f - 1.0f);
#endif
    }
    for (size_t i = 0; i < NET_LABEL_ELEMENTS; i++) ram.label[i] = (net_label_t)(i % 2);
    return net_train_step(&ram.net, input, ram.label, NET_LEARNING_RATE, loss);
}

#endif

static int learn(void) {
    for (int step = 0; step < STEPS; step++) {
        float loss = 0.0f;
        const net_status_t status = step_on_sample(step, &loss);
        if (status != NET_OK) {
            board_say("a step failed; the exit code is its status\n");
            return (int)status;
        }
        if (step % 10 == 0 || step == STEPS - 1) say_loss(step + 1, loss);
    }
    return 0;
}

int main(void) {
    net_init(&ram.net);
    if (!board_connect()) return learn();
    serve();
    return 0;
}
