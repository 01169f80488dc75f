/* Example: runs steps of the model on data from files.
 *
 *     DIRECTORY/argN.bin   the bytes of argument N, row-major, little-endian, i1 as one byte
 *     DIRECTORY/outN.bin   the same of result N, written after the last step
 *
 * Inputs are written before each step, as a step reuses their bytes; parameters are written once
 * and live in the arena. Pages go to STORE_FILE if it is given, otherwise to memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#include "store_file.h"
#include "store_memory.h"

static bool file_name(char *path, size_t size, const char *directory, const char *kind, uint32_t i)
{
    const int length = snprintf(path, size, "%s/%s%lu.bin", directory, kind, (unsigned long)i);
    if (length < 0 || (size_t)length >= size) {
        fprintf(stderr, "path too long: %s\n", directory);
        return false;
    }
    return true;
}

static bool load(const char *directory, uint32_t i)
{
    char path[4096];
    if (!file_name(path, sizeof path, directory, "arg", i)) {
        return false;
    }
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return false;
    }
    const size_t bytes = model_argument_bytes(i);
    const bool good = fread(model_argument(i), 1, bytes, file) == bytes && fgetc(file) == EOF;
    fclose(file);
    if (!good) {
        fprintf(stderr, "%s: not %lu bytes\n", path, (unsigned long)bytes);
    }
    return good;
}

static bool save(const char *directory, uint32_t i)
{
    char path[4096];
    if (!file_name(path, sizeof path, directory, "out", i)) {
        return false;
    }
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        perror(path);
        return false;
    }
    const size_t bytes = model_result_bytes(i);
    const bool written = fwrite(model_result(i), 1, bytes, file) == bytes;
    if (fclose(file) != 0 || !written) {
        perror(path);
        return false;
    }
    return true;
}

static bool run(const char *directory, unsigned long steps, poetc_store *store)
{
    for (unsigned long step = 0; step < steps; ++step) {
        /* != because compilers warn of i < 0, if there are none. */
        for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
            if ((step == 0 || !model_argument_is_parameter(i)) && !load(directory, i)) {
                return false;
            }
        }
        const poetc_status status = model_step(store);
        if (status != POETC_OK) {
            fprintf(stderr, "step %lu: %s\n", step, poetc_status_text(status));
            return false;
        }
    }
    for (uint32_t i = 0; i != MODEL_RESULTS; ++i) {
        if (!save(directory, i)) {
            return false;
        }
    }
    printf("steps: %lu, RAM: %lu bytes, storage: %lu bytes, status: %s\n", steps,
           (unsigned long)MODEL_RAM_BYTES, (unsigned long)MODEL_STORAGE_BYTES,
           poetc_status_text(POETC_OK));
    return true;
}

int main(int argc, char **argv)
{
    char *end = NULL;
    const unsigned long steps = argc > 2 ? strtoul(argv[2], &end, 10) : 1;
    if (argc < 2 || argc > 4 || (end != NULL && *end != '\0') || steps == 0) {
        fprintf(stderr, "usage: %s DIRECTORY [STEPS [STORE_FILE]]\n", argv[0]);
        return 2;
    }
    if (argc < 4) {
        static uint8_t pages[MODEL_STORAGE_BYTES + 1];
        static poetc_memory_store memory;
        poetc_memory_store_init(&memory, pages, MODEL_STORAGE_BYTES);
        return run(argv[1], steps, &memory.store) ? EXIT_SUCCESS : EXIT_FAILURE;
    }
    static poetc_file_store file;
    if (poetc_file_store_open(&file, argv[3]) != POETC_OK) {
        perror(argv[3]);
        return EXIT_FAILURE;
    }
    const bool good = run(argv[1], steps, &file.store);
    if (poetc_file_store_close(&file) != POETC_OK) {
        perror(argv[3]);
        return EXIT_FAILURE;
    }
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
