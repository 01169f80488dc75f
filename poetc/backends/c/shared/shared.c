/* A model in the process of another program, which calls what is exported here. Pages, and
 * parameters on storage, are in memory that the caller provides.
 */
#include <stddef.h>

#include "model.h"
#include "store_memory.h"

#define EXPORTED __attribute__((visibility("default")))

poetc_store *poetc_shared_store(void);
EXPORTED uint32_t poetc_shared_storage_bytes(void);
EXPORTED void poetc_shared_init(void *storage);
EXPORTED void *poetc_shared_argument(uint32_t i);
EXPORTED const void *poetc_shared_result(uint32_t i);
EXPORTED poetc_status poetc_shared_step(const void *const *arguments, void *const *results);
EXPORTED const char *poetc_shared_text(poetc_status status);

static poetc_memory_store memory;

poetc_store *poetc_shared_store(void)
{
    return &memory.store;
}

uint32_t poetc_shared_storage_bytes(void)
{
    return MODEL_STORAGE_BYTES;
}

void poetc_shared_init(void *storage)
{
    poetc_memory_store_init(&memory, storage, MODEL_STORAGE_BYTES);
}

void *poetc_shared_argument(uint32_t i)
{
    return model_argument(i);
}

const void *poetc_shared_result(uint32_t i)
{
    return model_result(i);
}

/* The pointers are those of the buffers of the caller, by number. */
poetc_status poetc_shared_step(const void *const *arguments, void *const *results)
{
#ifdef MODEL_STEP_ON
    return MODEL_STEP_ON(&memory.store, arguments, results);
#else
    (void)arguments;
    (void)results;
    return model_step(&memory.store);
#endif
}

const char *poetc_shared_text(poetc_status status)
{
    return poetc_status_text(status);
}
