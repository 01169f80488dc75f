/* Example: runs steps of the model on data from files.
 *
 *     DIRECTORY/argN.bin   the bytes of argument N, row-major, little-endian, i1 as one byte
 *     DIRECTORY/outN.bin   the same of result N, written after the last step
 *
 * Inputs are written before each step, as a step reuses their bytes; parameters are written once
 * and live in the arena. Pages go to STORE_FILE if it is given and has a name, otherwise to memory.
 *
 * Parameters on storage are in STORE_FILE, which `poetc pack` makes and `poetc unpack` reads back;
 * there are no argN.bin and outN.bin of them.
 *
 * A program that runs plans takes its schedule from PLAN_FILE, which `poetc --emit=plan` makes, or
 * uses the one that it was made with.
 *
 * With -DPOETC_STORE_THREAD, a thread of its own moves the pages.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#include "store_file.h"
#include "store_memory.h"
#ifdef POETC_STORE_THREAD
#include "store_thread.h"
#endif

#ifdef MODEL_CALLER_ARENA
static model_instance instance;
#define OF_INSTANCE &instance,
#else
#define OF_INSTANCE
#endif

static bool file_name(char *path, size_t size, const char *directory, const char *kind, uint32_t i)
{
    const int length = snprintf(path, size, "%s/%s%lu.bin", directory, kind, (unsigned long)i);
    if (length < 0 || (size_t)length >= size) {
        fprintf(stderr, "path too long: %s\n", directory);
        return false;
    }
    return true;
}

#ifdef MODEL_STEP_ON
static void *caller_argument[MODEL_ARGUMENTS + 1];
static void *caller_result[MODEL_RESULTS + 1];

/* The buffers that are ours: not in the arena. */
static bool make_buffers(void)
{
    bool good = true;
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        if (model_argument_is_callers(i)) {
            caller_argument[i] = malloc(model_argument_bytes(i) + 1u);
            good = good && caller_argument[i] != NULL;
        }
    }
    for (uint32_t i = 0; i != MODEL_RESULTS; ++i) {
        if (model_result_is_callers(i)) {
            caller_result[i] = malloc(model_result_bytes(i) + 1u);
            good = good && caller_result[i] != NULL;
        }
    }
    return good;
}

static void *argument(uint32_t i)
{
    return model_argument_is_callers(i) ? caller_argument[i] : model_argument(OF_INSTANCE i);
}

static const void *result(uint32_t i)
{
    return model_result_is_callers(i) ? caller_result[i] : model_result(OF_INSTANCE i);
}

static poetc_status do_step(poetc_store *store)
{
#ifdef MODEL_CALLER_ARENA
    return MODEL_STEP_ON(&instance, store, caller_argument, caller_result);
#else
    return MODEL_STEP_ON(store, caller_argument, caller_result);
#endif
}
#else
static bool make_buffers(void)
{
    return true;
}

static void *argument(uint32_t i)
{
    return model_argument(OF_INSTANCE i);
}

static const void *result(uint32_t i)
{
    return model_result(OF_INSTANCE i);
}

static poetc_status do_step(poetc_store *store)
{
    return model_step(OF_INSTANCE store);
}
#endif

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
    const bool good = fread(argument(i), 1, bytes, file) == bytes && fgetc(file) == EOF;
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
    const bool written = fwrite(result(i), 1, bytes, file) == bytes;
    if (fclose(file) != 0 || !written) {
        perror(path);
        return false;
    }
    return true;
}

static bool run(const char *directory, unsigned long steps, poetc_store *store)
{
    if (!make_buffers()) {
        perror("buffers");
        return false;
    }
    for (unsigned long step = 0; step < steps; ++step) {
        /* != because compilers warn of i < 0, if there are none. */
        for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
            const bool wanted = step == 0 || !model_argument_is_parameter(i);
            if (wanted && argument(i) != NULL && !load(directory, i)) {
                return false;
            }
        }
        const poetc_status status = do_step(store);
        if (status != POETC_OK) {
            fprintf(stderr, "step %lu: %s\n", step, poetc_status_text(status));
            return false;
        }
    }
    for (uint32_t i = 0; i != MODEL_RESULTS; ++i) {
        if (result(i) != NULL && !save(directory, i)) {
            return false;
        }
    }
    printf("steps: %lu, RAM: %lu bytes, storage: %lu bytes, status: %s\n", steps,
           (unsigned long)MODEL_RAM_BYTES, (unsigned long)MODEL_STORAGE_BYTES,
           poetc_status_text(POETC_OK));
    return true;
}

#ifdef POETC_STORE_THREAD
static bool run_on(poetc_store *store, const char *directory, unsigned long steps)
{
    static poetc_thread_store thread;
    if (!poetc_thread_store_open(&thread, store)) {
        perror("thread");
        return false;
    }
    const bool good = run(directory, steps, &thread.store);
    poetc_thread_store_close(&thread);
    return good;
}
#else
static bool run_on(poetc_store *store, const char *directory, unsigned long steps)
{
    return run(directory, steps, store);
}
#endif

static bool run_in_file(const char *directory, unsigned long steps, const char *path)
{
    static poetc_file_store file;
#ifdef MODEL_LAYOUT_ID
    const poetc_status opened = poetc_file_store_open_image(&file, path);
#else
    const poetc_status opened = poetc_file_store_open(&file, path);
#endif
    if (opened == POETC_IN_USE) {
        fprintf(stderr, "%s: %s\n", path, poetc_status_text(opened));
        return false;
    }
    if (opened != POETC_OK) {
        perror(path);
#ifdef MODEL_LAYOUT_ID
        fprintf(stderr, "It holds the parameters: poetc pack DIRECTORY PARAMS.npz -o %s\n", path);
#endif
        return false;
    }
    const bool good = run_on(&file.store, directory, steps);
    if (poetc_file_store_close(&file) != POETC_OK) {
        perror(path);
        return false;
    }
    return good;
}

static bool run_in_memory(const char *directory, unsigned long steps)
{
#ifdef MODEL_LAYOUT_ID
    (void)directory;
    (void)steps;
    fprintf(stderr, "parameters are on storage: STORE_FILE is needed, which poetc pack makes\n");
    return false;
#else
    static uint8_t pages[MODEL_STORAGE_BYTES + 1];
    static poetc_memory_store memory;
    poetc_memory_store_init(&memory, pages, MODEL_STORAGE_BYTES);
    return run_on(&memory.store, directory, steps);
#endif
}

#ifdef MODEL_PLAN_BYTES
#define MOST_WORDS 5
#define USAGE "DIRECTORY [STEPS [STORE_FILE [PLAN_FILE]]]"

static bool load_plan(const char *path)
{
    static uint8_t plan[1 << 20];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path[0] != '\0' ? path : "PLAN_FILE has no name");
        return false;
    }
    const size_t bytes = fread(plan, 1, sizeof plan, file);
    fclose(file);
    const poetc_status status = model_load_plan(plan, (uint32_t)bytes);
    if (status != POETC_OK) {
        fprintf(stderr, "%s: %s\n", path, poetc_status_text(status));
    }
    return status == POETC_OK;
}
#else
#define MOST_WORDS 4
#define USAGE "DIRECTORY [STEPS [STORE_FILE]]"

static bool load_plan(const char *path)
{
    (void)path;
    return true;
}
#endif

int main(int argc, char **argv)
{
    char *end = NULL;
    const unsigned long steps = argc > 2 ? strtoul(argv[2], &end, 10) : 1;
    if (argc < 2 || argc > MOST_WORDS || (end != NULL && *end != '\0') || steps == 0) {
        fprintf(stderr, "usage: %s " USAGE "\n", argv[0]);
        return 2;
    }
    if (argc > 4 && !load_plan(argv[4])) {
        return EXIT_FAILURE;
    }
    const bool good = argc > 3 && argv[3][0] != '\0' ? run_in_file(argv[1], steps, argv[3])
                                                     : run_in_memory(argv[1], steps);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
