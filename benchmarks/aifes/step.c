/* A training step by AIfES in place of a generated one: the functions of model.h that firmware.c
 * calls. The last two arguments are the input and the target, result 0 is the loss; the others are
 * parameters, which a step changes where they are.
 */
#include "model.h"

#include "basic/base/aialgo/aialgo_sequential_inference.h"
#include "basic/base/aialgo/aialgo_sequential_training.h"
#include "basic/default/aimath/aimath_f32_default.h"
#include "basic/default/aiopti/aiopti_sgd_default.h"
#include "board.h"
#include "peer.h"

enum { INPUT = MODEL_ARGUMENTS - 2, TARGET };

/* Of the linker script: RAM from here on is free. */
extern uint8_t bss_end[];

static aimodel_t model;
static aiopti_sgd_f32_t sgd = {.learning_rate = 0.01f};
static aiopti_t *optimizer;
static float input_data[MODEL_ARG6_BYTES / sizeof(float)];
static float target_data[MODEL_ARG7_BYTES / sizeof(float)];
static aitensor_t input = {.data = input_data};
static aitensor_t target = {.data = target_data};
static float loss;

/* AIfES draws initial weights with it. The one of newlib needs a heap and prints what goes wrong. */
int rand(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (int)(state >> 1);
}

/* Before anything else: memory for parameters and for training, and how much that is as one more
 * result.
 */
static void prepare(void)
{
    if (optimizer != NULL) {
        return;
    }
    connect_layers(&model);
    optimizer = aiopti_sgd_f32_default(&sgd);
    (void)aialgo_compile_model(&model);
    const uint32_t parameter_bytes = aialgo_sizeof_parameter_memory(&model);
    aialgo_distribute_parameter_memory(&model, bss_end, parameter_bytes);
    const uint32_t training_bytes = aialgo_sizeof_training_memory(&model, optimizer);
    (void)aialgo_schedule_training_memory(&model, optimizer, bss_end + parameter_bytes,
                                          training_bytes);
    aialgo_init_model_for_training(&model, optimizer);
    aialgo_set_training_mode_model(&model, TRUE);
    aialgo_set_batch_mode_model(&model, TRUE);
    const aitensor_t *const first = &model.input_layer->result;
    const aitensor_t *const last = &model.output_layer->result;
    input = (aitensor_t){.dtype = aif32, .dim = first->dim, .shape = first->shape, .data = input_data};
    target = (aitensor_t){.dtype = aif32, .dim = last->dim, .shape = last->shape, .data = target_data};
    const uint32_t taken = parameter_bytes + training_bytes;
    if (!board_write_result(MODEL_RESULTS, &taken, sizeof taken)) {
        board_print("the size of AIfES' memory cannot be written\n");
        board_exit(1);
    }
}

poetc_status model_step(poetc_store *store)
{
    (void)store;
    aialgo_zero_gradients_model(&model, optimizer);
    (void)aialgo_forward_model(&model, &input);
    model.loss->calc_loss(model.loss, &target, &loss);
    aialgo_backward_model(&model, &target);
    aialgo_update_params_model(&model, optimizer);
    return POETC_OK;
}

void *model_argument(uint32_t i)
{
    prepare();
    return i == INPUT ? input_data : i == TARGET ? target_data : parameter(i)->data;
}

uint32_t model_argument_bytes(uint32_t i)
{
    return i == INPUT    ? sizeof input_data
           : i == TARGET ? sizeof target_data
                         : aimath_sizeof_tensor_data(parameter(i));
}

bool model_argument_is_parameter(uint32_t i)
{
    return i < INPUT;
}

const void *model_result(uint32_t i)
{
    return i == 0 ? &loss : parameter(i - 1)->data;
}

uint32_t model_result_bytes(uint32_t i)
{
    return i == 0 ? sizeof loss : aimath_sizeof_tensor_data(parameter(i - 1));
}
