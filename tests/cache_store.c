/* A store with DMA beside a write-back data cache, on top of a store in a file.
 *
 * The processor works on lines of the cache, the DMA on memory. A start writes the lines back that the
 * transfer touches ("clean"); a wait lets the DMA write to memory, and then forgets the lines of what
 * was read ("invalidate"): whatever a kernel wrote there in between is lost, as it is on a processor.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cache_store.h"

#define LINE 32u

static cache_store *of(poetc_store *store)
{
    return (cache_store *)(void *)store;
}

typedef struct lines {
    poetc_transfer *transfer;
    uint8_t *first;
    uint32_t bytes;
    struct lines *next;
    uint8_t memory[];
} lines;

static lines *waiting;

static uint8_t *line_of(const void *address)
{
    return (uint8_t *)((uintptr_t)address & ~(uintptr_t)(LINE - 1u));
}

/* Memory has what the cache had when the lines were written back. */
static poetc_status clean(poetc_transfer *transfer, const void *data, uint32_t length)
{
    uint8_t *const first = line_of(data);
    const uint32_t bytes = (uint32_t)((uintptr_t)data - (uintptr_t)first) + length;
    const uint32_t whole = (bytes + LINE - 1u) / LINE * LINE;
    lines *const kept = malloc(sizeof *kept + whole);
    if (kept == NULL) {
        return POETC_READ_FAILED;
    }
    kept->transfer = transfer;
    kept->first = first;
    kept->bytes = whole;
    kept->next = waiting;
    memcpy(kept->memory, first, whole);
    waiting = kept;
    return POETC_OK;
}

static lines *take(const poetc_transfer *transfer)
{
    lines **at = &waiting;
    while (*at != NULL && (*at)->transfer != transfer) {
        at = &(*at)->next;
    }
    lines *const found = *at;
    if (found != NULL) {
        *at = found->next;
    }
    return found;
}

static poetc_status start_read(poetc_store *store, poetc_transfer *transfer)
{
    (void)store;
#if POETC_CACHE_LINE_BYTES > 4
    const poetc_status status = clean(transfer, transfer->trailer, POETC_TRAILER_BYTES);
    if (status != POETC_OK) {
        return status;
    }
#endif
    return clean(transfer, transfer->data.in, transfer->length);
}

static poetc_status start_write(poetc_store *store, poetc_transfer *transfer)
{
    cache_store *const cache = of(store);
    uint32_t done = 0;
    poetc_status status
        = poetc_write(cache->inner, transfer->offset, transfer->data.out, transfer->length);
    if (status == POETC_OK) {
        status = poetc_write(cache->inner, transfer->offset + transfer->length, transfer->trailer,
                             POETC_TRAILER_BYTES);
        done = transfer->length + POETC_TRAILER_BYTES;
    }
    transfer->done = done;
    return status;
}

/* The DMA writes to memory, and the cache forgets what it has of these lines. */
static poetc_status receive(cache_store *cache, lines *kept, uint32_t offset, void *data,
                            uint32_t length)
{
    const uint32_t at = (uint32_t)((uintptr_t)data - (uintptr_t)kept->first);
    const poetc_status status = poetc_read(cache->inner, offset, kept->memory + at, length);
    memcpy(kept->first, kept->memory, kept->bytes);
    free(kept);
    return status;
}

static poetc_status wait(poetc_store *store, poetc_transfer *transfer)
{
    cache_store *const cache = of(store);
    if (transfer->direction == POETC_TRANSFER_OUT) {
        return POETC_OK;
    }
    const uint32_t end = transfer->offset + transfer->length;
    poetc_status status
        = receive(cache, take(transfer), transfer->offset, transfer->data.in, transfer->length);
    if (status != POETC_OK) {
        return status;
    }
    ++cache->read;
#if POETC_CACHE_LINE_BYTES > 4
    status = receive(cache, take(transfer), end, transfer->trailer, POETC_TRAILER_BYTES);
#else
    /* Where records share lines with the stack, this would forget return addresses. */
    status = poetc_read(cache->inner, end, transfer->trailer, POETC_TRAILER_BYTES);
#endif
    transfer->done = transfer->length + POETC_TRAILER_BYTES;
    return status;
}

static poetc_status read_now(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                             uint32_t *done)
{
    poetc_store *const inner = of(store)->inner;
    return inner->operations->read(inner, offset, data, length, done);
}

static poetc_status write_now(poetc_store *store, uint32_t offset, const void *data,
                              uint32_t length, uint32_t *done)
{
    poetc_store *const inner = of(store)->inner;
    return inner->operations->write(inner, offset, data, length, done);
}

static const poetc_store_operations operations = {
    .read = read_now,
    .write = write_now,
    .start_read = start_read,
    .start_write = start_write,
    .wait = wait,
    .sync = NULL,
};

void cache_store_open(cache_store *cache, poetc_store *inner)
{
    cache->store.operations = &operations;
    cache->inner = inner;
    cache->read = 0;
}
