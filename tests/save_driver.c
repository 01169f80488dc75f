/* Parameters in RAM as bytes in a store.
 *
 *     DIRECTORY train FROM STEPS TO   loads FROM (- for argN.bin), does steps, saves to TO
 *     DIRECTORY load FROM             prints the status; parameters that were 0x55 are in outN.bin
 *     DIRECTORY table STEPS TO        from the table in the program
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "store_file.h"
#include "store_memory.h"

static uint8_t kept[MODEL_PARAMETERS_BYTES + 8];

static bool file(const char *path, const char *mode, void *data, size_t bytes)
{
    FILE *const stream = fopen(path, mode);
    if (stream == NULL) {
        return false;
    }
    const size_t done = mode[0] == 'r' ? fread(data, 1, bytes, stream)
                                       : fwrite(data, 1, bytes, stream);
    return fclose(stream) == 0 && done == bytes;
}

static bool fill(const char *directory, bool parameters)
{
    char path[1024];
    for (uint32_t i = 0; i < MODEL_ARGUMENTS; ++i) {
        (void)snprintf(path, sizeof path, "%s/arg%lu.bin", directory, (unsigned long)i);
        if (model_argument_is_parameter(i) == parameters
            && !file(path, "rb", model_argument(i), model_argument_bytes(i))) {
            return false;
        }
    }
    return true;
}

static int train(const char *directory, const char *from, int steps, const char *to)
{
    static uint8_t pages[MODEL_STORAGE_BYTES + 1];
    poetc_memory_store paging;
    poetc_memory_store store;
    poetc_memory_store_init(&paging, pages, MODEL_STORAGE_BYTES);
    poetc_status status = POETC_OK;
    if (from == NULL) {
        poetc_memory_store_init_const(&store, model_parameters, sizeof model_parameters);
        if (poetc_write(&store.store, 0, "abcd", 4) != POETC_WRITE_FAILED) {
            return 9;
        }
        status = model_load(&store.store, 0);
    } else if (strcmp(from, "-") == 0) {
        status = fill(directory, true) ? POETC_OK : POETC_READ_FAILED;
    } else if (file(from, "rb", kept + 8, MODEL_PARAMETERS_BYTES)) {
        poetc_memory_store_init(&store, kept, sizeof kept);
        status = model_load(&store.store, 8);
    }
    for (int step = 0; step < steps && status == POETC_OK; ++step) {
        status = fill(directory, false) ? model_step(&paging.store) : POETC_READ_FAILED;
    }
    poetc_memory_store_init(&store, kept, sizeof kept);
    if (status == POETC_OK) {
        status = model_save(&store.store, 8);
    }
    const bool good = status == POETC_OK && file(to, "wb", kept + 8, MODEL_PARAMETERS_BYTES);
    return good ? 0 : 1;
}

static int load(const char *from)
{
    poetc_memory_store store;
    for (uint32_t i = 0; i < MODEL_ARGUMENTS; ++i) {
        memset(model_argument(i), 0x55, model_argument_bytes(i));
    }
    if (!file(from, "rb", kept, MODEL_PARAMETERS_BYTES)) {
        return 1;
    }
    poetc_memory_store_init(&store, kept, MODEL_PARAMETERS_BYTES);
    const poetc_status status = model_load(&store.store, 0);
    uint32_t untouched = 1;
    for (uint32_t i = 0; i < MODEL_ARGUMENTS; ++i) {
        for (uint32_t k = 0; k < model_argument_bytes(i); ++k) {
            untouched &= ((const uint8_t *)model_argument(i))[k] == 0x55u;
        }
    }
    (void)printf("%s, %s\n", poetc_status_text(status), untouched ? "untouched" : "changed");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[2], "train") == 0) {
        return train(argv[1], argv[3], atoi(argv[4]), argv[5]);
    }
    if (argc == 5 && strcmp(argv[2], "table") == 0) {
        return train(argv[1], NULL, atoi(argv[3]), argv[4]);
    }
    return argc == 4 ? load(argv[3]) : 2;
}
