/* A page store in memory: for tests, and for boards with external RAM in the address space. */
#ifndef POETC_STORE_MEMORY_H
#define POETC_STORE_MEMORY_H

#include "poetc_store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    poetc_store store; /* pass &memory.store to the step */
    const uint8_t *bytes;
    uint8_t *writable; /* the same, or null */
    uint32_t size;
} poetc_memory_store;

/* The store keeps its pages in `bytes`, which the caller provides and keeps. */
void poetc_memory_store_init(poetc_memory_store *memory, void *bytes, uint32_t size);

/* The same for bytes that are not written, such as a table in flash: POETC_WRITE_FAILED. */
void poetc_memory_store_init_const(poetc_memory_store *memory, const void *bytes, uint32_t size);

#ifdef __cplusplus
}
#endif

#endif
