/* A product: it sleeps until one model wakes it, predicts with another, and trains that on the
 * device. A step of training that takes too long is cancelled by the watchdog, and done later; what
 * is on storage is then as before the step.
 */
#include <stddef.h>
#include <stdint.h>

#include "board.h"
#include "gesture.h"
#include "inputs.h"
#include "wake.h"

#define STEPS (sizeof samples / sizeof samples[0])

/* The step, and the kernel in it, before which something more urgent comes up, once. */
#ifndef URGENT_STEP
#define URGENT_STEP 2u
#endif
#define URGENT_KERNEL 12u

static uint32_t step;
static bool urgent_is_over;
static uint32_t watched;

/* GESTURE_HOOK: before each kernel of gesture_step. */
int watchdog(uint32_t compute)
{
    ++watched;
    if (step == URGENT_STEP && compute == URGENT_KERNEL && !urgent_is_over) {
        urgent_is_over = true;
        return 1;
    }
    return 0;
}

static void copy(void *to, const void *from, uint32_t bytes)
{
    uint8_t *const target = to;
    const uint8_t *const source = from;
    for (uint32_t i = 0; i < bytes; ++i) {
        target[i] = source[i];
    }
}

static void say(const char *what, poetc_status status)
{
    board_print(what);
    board_print(": ");
    board_print(poetc_status_text(status));
    board_print("\n");
}

/* Results are written for whoever looks at them: out0.bin, out1.bin, ... */
static uint32_t written;

static bool keep(const void *data, uint32_t bytes)
{
    return board_write_result(written++, data, bytes);
}

static bool predict(poetc_store *store)
{
    copy(gesture_predict_argument(GESTURE_PREDICT_ARG_SAMPLE), samples[0],
         GESTURE_PREDICT_ARG6_BYTES);
    const poetc_status status = gesture_predict(store);
    say("predict", status);
    return status == POETC_OK && keep(gesture_predict_result(0), GESTURE_PREDICT_RESULT0_BYTES);
}

static poetc_status train(poetc_store *store)
{
    copy(gesture_argument(GESTURE_ARG_X), samples[step], GESTURE_ARG6_BYTES);
    copy(gesture_argument(GESTURE_ARG_LABELS), labels[step], GESTURE_ARG7_BYTES);
    return gesture_step(store);
}

static bool awake(void)
{
    copy(wake_argument(WAKE_ARG_SAMPLE), samples[0], WAKE_ARG0_BYTES);
    const poetc_status status = wake_step(NULL);
    say("wake", status);
    return status == POETC_OK && keep(wake_result(0), WAKE_RESULT0_BYTES);
}

static bool run(poetc_store *store)
{
    bool good = awake() && predict(store);
    while (good && step < STEPS) {
        const poetc_status status = train(store);
        say("train", status);
        if (status == POETC_CANCELLED) {
            /* The urgent thing: a prediction, with the weights of before. */
            good = predict(store);
            continue;
        }
        good = status == POETC_OK && keep(gesture_result(GESTURE_RESULTS - 1), sizeof(float));
        ++step;
    }
    good = good && predict(store) && watched > STEPS;
    if (board_stack_used() >= board_stack_bytes()) {
        board_print("no stack left\n");
        good = false;
    }
    return good;
}

int main(void)
{
    board_init();
    poetc_store *store = NULL;
    const poetc_status opened = board_open_store(&store, true);
    say("storage", opened);
    bool good = opened == POETC_OK && run(store);
    good = (opened != POETC_OK || board_close_store() == POETC_OK) && good;
    board_exit(good ? 0 : 1);
    return 0;
}
