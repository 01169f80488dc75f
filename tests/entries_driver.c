/* Trains, and predicts between steps: ./driver DATA STEPS [IMAGE]. In RAM that is filled with
 * garbage at first; inputs are written before each call, as calls reuse their bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "store_file.h"
#include "store_memory.h"

static const char *folder;

static void file(const char *mode, const char *name, unsigned long i, void *data, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%lu.bin", folder, name, i);
    FILE *opened = fopen(path, mode);
    const bool reads = mode[0] == 'r';
    if (opened == NULL || (reads ? fread(data, 1, bytes, opened) : fwrite(data, 1, bytes, opened)) != bytes) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    fclose(opened);
}

static void check(poetc_status status)
{
    if (status != POETC_OK) {
        fprintf(stderr, "%s\n", poetc_status_text(status));
        exit(EXIT_FAILURE);
    }
}

static void save(const char *name, unsigned long k, const void *result, size_t bytes)
{
    void *copy = malloc(bytes);
    memcpy(copy, result, bytes);
    file("wb", name, k, copy, bytes);
    free(copy);
}

#define INPUTS(COUNT, argument, name) \
    for (uint32_t i = 0; i != COUNT; ++i) { \
        if (!argument##_is_parameter(i) && argument(i) != NULL) { \
            file("rb", name, i, argument(i), argument##_bytes(i)); \
        } \
    }

static void predict(poetc_store *store, unsigned long k)
{
    INPUTS(MODEL_PREDICT_ARGUMENTS, model_predict_argument, "predict_arg")
    check(model_predict(store));
    save("predicted", k, model_predict_result(0), model_predict_result_bytes(0));
    INPUTS(MODEL_EVALUATE_ARGUMENTS, model_evaluate_argument, "evaluate_arg")
    check(model_evaluate(store));
    save("evaluated", k, model_evaluate_result(0), model_evaluate_result_bytes(0));
}

int main(int argc, char **argv)
{
    static uint8_t pages[MODEL_STORAGE_BYTES + 1];
    static poetc_memory_store memory;
    static poetc_file_store image;
    poetc_store *store = &memory.store;
    poetc_memory_store_init(&memory, pages, MODEL_STORAGE_BYTES);
    folder = argv[1];
    if (argc > 3) {
        check(poetc_file_store_open_image(&image, argv[3]));
        store = &image.store;
    }
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        if (model_argument_is_parameter(i) && model_argument(i) != NULL) {
            file("rb", "arg", i, model_argument(i), model_argument_bytes(i));
        }
    }
    const unsigned long steps = strtoul(argv[2], NULL, 10);
    for (unsigned long k = 0; k < steps; ++k) {
        predict(store, k);
        INPUTS(MODEL_ARGUMENTS, model_argument, "arg")
        check(model_step(store));
    }
    predict(store, steps);
    if (argc > 3) {
        check(poetc_file_store_close(&image));
    }
    printf("%lu\n", (unsigned long)MODEL_RAM_BYTES);
    return EXIT_SUCCESS;
}
