/* Instances of one model in threads of their own: instance k does k + 1 steps on the arguments of a
 * directory; their losses are printed. With SHARED, all threads use the first.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#include "store_memory.h"

#define INSTANCES 3

static model_instance instances[INSTANCES];
static uint8_t pages[INSTANCES][MODEL_STORAGE_BYTES + 1];
static const char *directory;

static bool fill(model_instance *instance, bool first)
{
    char path[1024];
    for (uint32_t i = 0; i < MODEL_ARGUMENTS; ++i) {
        if (first || !model_argument_is_parameter(i)) {
            (void)snprintf(path, sizeof path, "%s/arg%lu.bin", directory, (unsigned long)i);
            FILE *const file = fopen(path, "rb");
            if (file == NULL) {
                return false;
            }
            const uint32_t bytes = model_argument_bytes(i);
            const bool good = fread(model_argument(instance, i), 1, bytes, file) == bytes;
            (void)fclose(file);
            if (!good) {
                return false;
            }
        }
    }
    return true;
}

static void *train(void *argument)
{
    const uint32_t k = *(const uint32_t *)argument;
#ifdef SHARED
    model_instance *const instance = &instances[0];
#else
    model_instance *const instance = &instances[k];
#endif
    poetc_memory_store store;
    poetc_memory_store_init(&store, pages[k], MODEL_STORAGE_BYTES);
    for (uint32_t step = 0; step <= k; ++step) {
        if (!fill(instance, step == 0) || model_step(instance, &store.store) != POETC_OK) {
            exit(3);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    static uint32_t numbers[INSTANCES];
    pthread_t threads[INSTANCES];
    if (argc != 2) {
        return 2;
    }
    directory = argv[1];
    for (uint32_t k = 0; k < INSTANCES; ++k) {
        numbers[k] = k;
        if (pthread_create(&threads[k], NULL, train, &numbers[k]) != 0) {
            return 4;
        }
    }
    for (uint32_t k = 0; k < INSTANCES; ++k) {
        (void)pthread_join(threads[k], NULL);
    }
    for (uint32_t k = 0; k < INSTANCES; ++k) {
        (void)printf("%.9g\n", (double)*(const float *)model_result(&instances[k], 0));
    }
    return 0;
}
