#include "store_memory.h"

#include <stddef.h>
#include <string.h>

static bool in_range(const poetc_memory_store *memory, uint32_t offset, uint32_t length)
{
    return offset <= memory->size && length <= memory->size - offset;
}

static poetc_status read_memory(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                uint32_t *done)
{
    /* The store is the first member of its handle. */
    const poetc_memory_store *memory = (const poetc_memory_store *)(const void *)store;
    if (!in_range(memory, offset, length)) {
        return POETC_OUT_OF_RANGE;
    }
    (void)memcpy(data, memory->bytes + offset, length);
    *done = length;
    return POETC_OK;
}

static poetc_status write_memory(poetc_store *store, uint32_t offset, const void *data,
                                 uint32_t length, uint32_t *done)
{
    const poetc_memory_store *memory = (const poetc_memory_store *)(const void *)store;
    if (!in_range(memory, offset, length)) {
        return POETC_OUT_OF_RANGE;
    }
    if (memory->writable == NULL) {
        return POETC_WRITE_FAILED;
    }
    (void)memcpy(memory->writable + offset, data, length);
    *done = length;
    return POETC_OK;
}

static const poetc_store_operations memory_operations = {
    .read = read_memory,
    .write = write_memory,
    .start_read = NULL,
    .start_write = NULL,
    .wait = NULL,
    .sync = NULL,
};

void poetc_memory_store_init(poetc_memory_store *memory, void *bytes, uint32_t size)
{
    memory->store.operations = &memory_operations;
    memory->bytes = bytes;
    memory->writable = bytes;
    memory->size = size;
}

void poetc_memory_store_init_const(poetc_memory_store *memory, const void *bytes, uint32_t size)
{
    memory->store.operations = &memory_operations;
    memory->bytes = bytes;
    memory->writable = NULL;
    memory->size = size;
}
