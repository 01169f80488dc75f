/* A model in the process of another program, which calls what is exported here. Pages, and
 * parameters on storage, are in memory that the caller provides.
 */
#include "model.h"
#include "store_memory.h"

#define EXPORTED __attribute__((visibility("default")))

poetc_store *poetc_shared_store(void);
EXPORTED uint32_t poetc_shared_storage_bytes(void);
EXPORTED void poetc_shared_init(void *storage);
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

const char *poetc_shared_text(poetc_status status)
{
    return poetc_status_text(status);
}
