/* A store with DMA beside a data cache with lines of 32 bytes (cache_store.c). */
#ifndef CACHE_STORE_H
#define CACHE_STORE_H

#include "poetc_store.h"

typedef struct {
    poetc_store store;
    poetc_store *inner;
    uint32_t read; /* transfers that were read beside the processor */
} cache_store;

void cache_store_open(cache_store *cache, poetc_store *inner);

#endif
