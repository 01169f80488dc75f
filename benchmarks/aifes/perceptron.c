/* Three dense layers, softmax and cross-entropy. The compiler is given BATCH, INPUTS, HIDDEN1, HIDDEN2,
 * OUTPUTS and ACTIVATION, which is tanh or relu and follows the first layer; relu follows the second.
 */
#include "basic/default/ailayer/ailayer_dense_default.h"
#include "basic/default/ailayer/ailayer_input_default.h"
#include "basic/default/ailayer/ailayer_relu_default.h"
#include "basic/default/ailayer/ailayer_softmax_default.h"
#include "basic/default/ailayer/ailayer_tanh_default.h"
#include "basic/default/ailoss/ailoss_crossentropy_default.h"
#include "peer.h"

#define JOINED(a, b, c) a##b##c
#define ACTIVATION_TYPE(name) JOINED(ailayer_, name, _f32_t)
#define ACTIVATION_LAYER(name) JOINED(ailayer_, name, _f32_default)

static uint16_t shape[] = {BATCH, INPUTS};
static ailayer_input_f32_t input = {.input_dim = 2, .input_shape = shape};
static ailayer_dense_f32_t dense[] = {{.neurons = HIDDEN1}, {.neurons = HIDDEN2}, {.neurons = OUTPUTS}};
static ACTIVATION_TYPE(ACTIVATION) first;
static ailayer_relu_f32_t second;
static ailayer_softmax_f32_t softmax;
static ailoss_crossentropy_f32_t loss;

void connect_layers(aimodel_t *model)
{
    model->input_layer = ailayer_input_f32_default(&input);
    ailayer_t *end = ailayer_dense_f32_default(&dense[0], model->input_layer);
    /* Nobody wants the gradient of the input. */
    AILAYER_SETTINGS_SET(end->settings, 1u, AILAYER_SETTINGS_NO_INPUT_GRADIENT, (uint32_t)TRUE);
    end = ACTIVATION_LAYER(ACTIVATION)(&first, end);
    end = ailayer_dense_f32_default(&dense[1], end);
    end = ailayer_relu_f32_default(&second, end);
    end = ailayer_dense_f32_default(&dense[2], end);
    model->output_layer = ailayer_softmax_f32_default(&softmax, end);
    model->loss = ailoss_crossentropy_mean_f32_default(&loss, model->output_layer);
}

aitensor_t *parameter(uint32_t argument)
{
    ailayer_dense_f32_t *const layer = &dense[argument / 2];
    return argument % 2 == 0 ? &layer->bias : &layer->weights;
}
