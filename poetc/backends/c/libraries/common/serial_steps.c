#include "serial_steps.h"

#include <stddef.h>

#include "model.h"

#ifdef MODEL_CALLER_ARENA
static model_instance instance;
#define OF_INSTANCE &instance,
#else
#define OF_INSTANCE
#endif

static bool parameters_are_there = false;
#ifndef MODEL_STEP_ON
static void *argument(uint32_t i)
{
    return model_argument(OF_INSTANCE i);
}

static const void *result(uint32_t i)
{
    return model_result(OF_INSTANCE i);
}

static poetc_status step(poetc_store *store)
{
    return model_step(OF_INSTANCE store);
}
#else
/* Inputs and results are not in the arena but here. */
static uint32_t buffers[MODEL_CALLER_BYTES / 4u + MODEL_ARGUMENTS + MODEL_RESULTS];
static void *caller_argument[MODEL_ARGUMENTS + 1];
static void *caller_result[MODEL_RESULTS + 1];

static void place_buffers(void)
{
    uint32_t *next = buffers;
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        if (model_argument_is_callers(i)) {
            caller_argument[i] = next;
            next += (model_argument_bytes(i) + 3u) / 4u;
        }
    }
    for (uint32_t i = 0; i != MODEL_RESULTS; ++i) {
        if (model_result_is_callers(i)) {
            caller_result[i] = next;
            next += (model_result_bytes(i) + 3u) / 4u;
        }
    }
}

static void *argument(uint32_t i)
{
    place_buffers();
    return model_argument_is_callers(i) ? caller_argument[i] : model_argument(OF_INSTANCE i);
}

static const void *result(uint32_t i)
{
    place_buffers();
    return model_result_is_callers(i) ? caller_result[i] : model_result(OF_INSTANCE i);
}

static poetc_status step(poetc_store *store)
{
    place_buffers();
#ifdef MODEL_CALLER_ARENA
    return MODEL_STEP_ON(&instance, store, caller_argument, caller_result);
#else
    return MODEL_STEP_ON(store, caller_argument, caller_result);
#endif
}
#endif

static void print(const char *text)
{
    uint32_t length = 0;
    while (text[length] != '\0') {
        ++length;
    }
    serial_steps_send(text, length);
}

static void print_number(uint32_t number)
{
    char text[11];
    uint32_t start = sizeof text - 1;
    text[start] = '\0';
    do {
        --start;
        text[start] = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number != 0);
    print(&text[start]);
}

void serial_steps_print(const char *text)
{
    print(text);
    print("\n");
}

static void announce(const char *what, uint32_t i, uint32_t bytes)
{
    print(what);
    print_number(i);
    print(" ");
    print_number(bytes);
    print("\n");
}

static poetc_status do_step(poetc_store *store)
{
    /* != because compilers warn of i < 0, if there are none. */
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        void *const data = argument(i);
        const bool wanted = !parameters_are_there || !model_argument_is_parameter(i);
        if (wanted && data != NULL) {
            announce("argument ", i, model_argument_bytes(i));
            serial_steps_receive(data, model_argument_bytes(i));
        }
    }
    const poetc_status status = step(store);
    /* After a step that failed the arena is to be filled anew. */
    parameters_are_there = status == POETC_OK;
    return status;
}

static void send_results(void)
{
    for (uint32_t i = 0; i != MODEL_RESULTS; ++i) {
        const void *const data = result(i);
        if (data != NULL) {
            announce("result ", i, model_result_bytes(i));
            serial_steps_send(data, model_result_bytes(i));
        }
    }
}

void serial_steps_command(poetc_store *store)
{
    char letter = '\0';
    serial_steps_receive(&letter, 1);
    if (letter == 's') {
        const poetc_status status = do_step(store);
        print("status: ");
        serial_steps_print(poetc_status_text(status));
    } else if (letter == 'r') {
        send_results();
        print("status: ");
        serial_steps_print(poetc_status_text(POETC_OK));
    }
    /* Anything else is not a command: line ends, or what was meant for the program before. */
}
