/* A page store in memory: for tests, and for boards with external RAM in the address space. */
#ifndef POETC_STORE_MEMORY_H
#define POETC_STORE_MEMORY_H

#include "poetc_store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    poetc_store store; /* pass &memory.store to the step */
    uint8_t *bytes;
    uint32_t size;
} poetc_memory_store;

/* The store keeps its pages in `bytes`, which the caller provides and keeps. */
void poetc_memory_store_init(poetc_memory_store *memory, void *bytes, uint32_t size);

#ifdef __cplusplus
}
#endif

#endif
