/* Runs a step again and again, each time with another fault: for tests, as a program of its own so
 * that it can be built with sanitizers.
 *
 *     fault_runner IMAGE INPUTS < trials > results
 *
 * IMAGE is what is on storage before each step, INPUTS the bytes of all arguments in RAM, one behind
 * the other. A trial is two numbers: which transfer fails, and how. After it comes the step again,
 * undisturbed, in the same process; once more if it fails. Of both the results are: the status, how
 * often the step was tried, what is on storage if that is not the same as in the trial before; of the
 * second also the results in RAM.
 *
 * With CARD, the storage is a memory card (sd_card_model.c) under the driver of the boards; the first
 * number is when the fault comes, in bytes on the bus.
 *
 * With LATER, transfers have two halves. With STORM, there are no trials but steps in which any
 * transfer may fail, until there are as many committed ones as the command line says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#ifdef CARD
#include "sd_card.h"
#include "sd_card_model.h"
#include "store_block.h"
#else
typedef struct power_store power_store;
poetc_store *power_new(uint32_t size, uint32_t unit);
void power_on(poetc_store *power, const uint8_t *image);
void power_fault(poetc_store *power, uint32_t transfer, uint32_t fault);
void power_mend(poetc_store *power);
void power_later(poetc_store *power);
void power_storm(poetc_store *power, uint32_t rate, uint32_t seed);
const uint8_t *power_media(const poetc_store *power);
const uint32_t *power_call(const poetc_store *power, uint32_t i);
uint32_t power_transfers(const poetc_store *power);
#endif
#ifdef MODEL_LAYOUT_ID
#include "poetc_image.h"
#define UNIT MODEL_STORAGE_UNIT
#else
#define UNIT 512
#endif

#define GARBAGE 0xa5
#define SIZE ((MODEL_STORAGE_BYTES + 511u) / 512u * 512u)

static uint8_t image[SIZE + 1];
static uint8_t last[2][SIZE + 1];
static uint8_t *inputs[MODEL_ARGUMENTS + 1];
static poetc_store *store;

static void stop(const char *why)
{
    fprintf(stderr, "%s\n", why);
    exit(2);
}

static void load(const char *path, void *data, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(data, 1, bytes, file) != bytes) {
        stop(path);
    }
    fclose(file);
}

static void load_inputs(const char *path)
{
    FILE *file = fopen(path, "rb");
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        if (model_argument(i) != NULL) {
            inputs[i] = malloc(model_argument_bytes(i) + 1u);
            if (file == NULL || fread(inputs[i], model_argument_bytes(i), 1, file) != 1) {
                stop(path);
            }
        }
    }
    fclose(file);
}

static void put(const void *data, size_t bytes)
{
    if (bytes > 0 && fwrite(data, bytes, 1, stdout) != 1) {
        stop("results");
    }
}

static void put_u32(uint32_t value)
{
    put(&value, sizeof value);
}

/* What the last step left is forgotten. An odd variant has other inputs. */
static void fill_ram(uint32_t variant)
{
    memset(ARENA, GARBAGE, MODEL_ARENA_BYTES);
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        if (inputs[i] != NULL) {
            memcpy(model_argument(i), inputs[i], model_argument_bytes(i));
            if ((variant & 1u) != 0 && !model_argument_is_parameter(i)) {
                memset(model_argument(i), 0, model_argument_bytes(i));
            }
        }
    }
}

static poetc_status step(uint32_t variant)
{
    fill_ram(variant);
    return model_step(store);
}

#ifdef CARD
static poetc_block_store blocks;
static sd_card driver;

static void start_storage(void)
{
    memcpy(card.memory, image, SIZE);
    card.kind = HIGH;
    card.start = 2;
    card.busy = 5;
    card.delay = 2;
    card.response = 5;
    card.fault = NO_FAULT;
    card.status = card.error_token = 0;
    power_on();
    poetc_block_store_init(&blocks, &sd_card_operations, &driver);
    store = &blocks.store;
    if (sd_card_open(&driver) != POETC_OK) {
        stop("the card does not start");
    }
}

static const uint8_t *media(void)
{
    return card.memory[0];
}

static void break_storage(const uint32_t *trial)
{
    card.fault = trial[1] & 0xffu;
    card.fault_bit = trial[1] >> 8;
    card.fault_byte = card.bytes + trial[0];
}

static void mend_storage(void)
{
    card.fault = NO_FAULT;
}

/* Where each command begins, in bytes since the step began; index and argument. */
static void put_calls(uint32_t start)
{
    for (uint32_t i = start; i < card.commands; ++i) {
        put_u32(card.log[i].byte - card.log[start].byte);
        put_u32(card.log[i].index);
        put_u32(card.log[i].argument);
    }
}

static uint32_t calls(void)
{
    return card.commands;
}
#else
static void start_storage(void)
{
    power_on(store, image);
}

static const uint8_t *media(void)
{
    return power_media(store);
}

static void break_storage(const uint32_t *trial)
{
    power_fault(store, trial[0], trial[1]);
}

static void mend_storage(void)
{
    power_mend(store);
}

/* Kind, offset and length of each transfer. */
static void put_calls(uint32_t start)
{
    for (uint32_t i = start; i < power_transfers(store); ++i) {
        put(power_call(store, i), 3 * sizeof(uint32_t));
    }
}

static uint32_t calls(void)
{
    return power_transfers(store);
}
#endif

static void put_step(uint32_t slot, poetc_status status, uint32_t attempts)
{
    put_u32((uint32_t)status);
    put_u32(attempts);
    const uint32_t changed = memcmp(last[slot], media(), MODEL_STORAGE_BYTES) != 0;
    put_u32(changed);
    if (changed != 0) {
        memcpy(last[slot], media(), MODEL_STORAGE_BYTES);
        put(last[slot], MODEL_STORAGE_BYTES);
    }
    for (uint32_t i = 0; i != MODEL_RESULTS; ++i) {
        if (slot == 1 && model_result(i) != NULL) {
            put(model_result(i), model_result_bytes(i));
        }
    }
}

#ifdef STORM
static void storm(uint32_t steps, uint32_t rate, uint32_t seed)
{
    uint32_t attempts = 0;
    uint32_t failures = 0;
    uint32_t sequence = 0;
    poetc_state first;
    poetc_state now;
    start_storage();
    if (poetc_image_open(store, MODEL_LAYOUT_ID, UNIT, &first) != POETC_OK) {
        stop("no image");
    }
    do {
        power_storm(store, rate, seed + 7919u * ++attempts);
        failures += step(sequence) != POETC_OK;
        mend_storage();
        if (poetc_image_open(store, MODEL_LAYOUT_ID, UNIT, &now) != POETC_OK) {
            stop("no image");
        }
        sequence = now.sequence - first.sequence;
    } while (sequence != steps);
    put_u32(failures);
    put(media(), MODEL_STORAGE_BYTES);
}
#endif

int main(int count, char **words)
{
    uint32_t trial[2];
    if (count < 3) {
        stop("usage: fault_runner IMAGE INPUTS");
    }
    load(words[1], image, MODEL_STORAGE_BYTES);
    load_inputs(words[2]);
#ifndef CARD
    store = power_new(SIZE, UNIT);
#endif
#ifdef LATER
    power_later(store);
#endif
#ifdef STORM
    storm((uint32_t)strtoul(words[3], NULL, 10), (uint32_t)strtoul(words[4], NULL, 10),
          (uint32_t)strtoul(words[5], NULL, 10));
    return 0;
#endif
    /* What happens if nothing fails. */
    start_storage();
    const uint32_t start = calls();
    put_step(1, step(0), 1);
    put_u32(calls() - start);
    put_calls(start);
    while (fread(trial, sizeof trial, 1, stdin) == 1) {
        start_storage();
        break_storage(trial);
        put_step(0, step(0), 1);
        mend_storage();
        poetc_status status = step(0);
        uint32_t attempts = 1;
        for (; status != POETC_OK && attempts < 2; ++attempts) {
            status = step(0);
        }
        put_step(1, status, attempts);
    }
    return 0;
}
