/* Two convolutions over time, their mean over time, a dense layer, softmax and cross-entropy.
 *
 * A convolution of AIfES pads both ends alike; those of the model pad 1 at the start and 2 at the end.
 * With stride 2, 5 taps and an even length that is a padding of 2 at both ends of time turned around:
 * aifes.py turns the input and the taps. AIfES has no mean over time; the layer is here.
 */
#include "basic/default/ailayer/ailayer_dense_default.h"
#include "basic/default/ailayer/ailayer_input_default.h"
#include "basic/default/ailayer/ailayer_relu_default.h"
#include "basic/default/ailayer/ailayer_softmax_default.h"
#include "basic/default/ailoss/ailoss_crossentropy_default.h"
#include "cnn/default/ailayer/ailayer_conv2d_default.h"
#include "peer.h"

enum { TIMES = 64, CHANNELS = 8, CHANNELS1 = 8, CHANNELS2 = 16, CLASSES = 4 };

#define CONVOLUTION(filters) \
    {.filter_count = (filters), .kernel_size = {5, 1}, .stride = {2, 1}, .dilation = {1, 1}, \
     .padding = {2, 0}}

static uint16_t shape[] = {1, TIMES, 1, CHANNELS};
static ailayer_input_f32_t input = {.input_dim = 4, .input_shape = shape};
static ailayer_conv2d_f32_t convolution[] = {CONVOLUTION(CHANNELS1), CONVOLUTION(CHANNELS2)};
static ailayer_relu_f32_t relu[2];
static uint16_t mean_shape[] = {1, CHANNELS2};
static ailayer_t mean;
static ailayer_dense_f32_t dense = {.neurons = CLASSES};
static ailayer_softmax_f32_t softmax;
static ailoss_crossentropy_f32_t loss;

static void mean_forward(ailayer_t *self)
{
    aimath_f32_default_mean_channelwise(&self->input_layer->result, AIFES_CHANNELS_LAST,
                                        &self->result);
}

static void mean_backward(ailayer_t *self)
{
    const uint32_t times = self->input_layer->result.shape[1];
    const float *const from = self->output_layer->deltas.data;
    float *to = self->deltas.data;
    const float share = 1.0f / (float)times;
    for (uint32_t time = 0; time < times; ++time) {
        for (uint32_t channel = 0; channel < CHANNELS2; ++channel) {
            *to++ = from[channel] * share;
        }
    }
}

static void mean_result_shape(ailayer_t *self)
{
    (void)self; /* It never changes. */
}

static ailayer_t *mean_layer(ailayer_t *before)
{
    static const aicore_layertype_t type;
    mean = (ailayer_t){
        .layer_type = &type,
        .input_layer = before,
        .result = {.dtype = aif32, .dim = 2, .shape = mean_shape},
        .calc_result_shape = mean_result_shape,
        .forward = mean_forward,
        .backward = mean_backward,
        .deltas = {.dtype = aif32},
    };
    before->output_layer = &mean;
    return &mean;
}

void connect_layers(aimodel_t *model)
{
    model->input_layer = ailayer_input_f32_default(&input);
    ailayer_t *end = model->input_layer;
    for (uint32_t i = 0; i < 2; ++i) {
        end = ailayer_conv2d_hwc_f32_default(&convolution[i], end);
        end = ailayer_relu_f32_default(&relu[i], end);
    }
    end = ailayer_dense_f32_default(&dense, mean_layer(end));
    model->output_layer = ailayer_softmax_f32_default(&softmax, end);
    model->loss = ailoss_crossentropy_mean_f32_default(&loss, model->output_layer);
}

aitensor_t *parameter(uint32_t argument)
{
    switch (argument) {
    case 0:
    case 1:
        return &convolution[argument].bias;
    case 2:
    case 3:
        return &convolution[argument - 2].weights;
    case 4:
        return &dense.bias;
    default:
        return &dense.weights;
    }
}
