#include "store_block.h"

#include <stddef.h>

#define NONE UINT32_MAX
#define TRIES 3

static void copy(uint8_t *to, const uint8_t *from, uint32_t length)
{
    for (uint32_t i = 0; i < length; ++i) {
        to[i] = from[i];
    }
}

static poetc_status flush(poetc_block_store *blocks)
{
    if (blocks->dirty) {
        const poetc_status status
            = blocks->operations->write_block(blocks->device, blocks->block, blocks->data);
        if (status != POETC_OK) {
            return status;
        }
        blocks->dirty = false;
    }
    return POETC_OK;
}

/* Not every block that the device cannot correct is damaged for good. */
static poetc_status read_block(const poetc_block_store *blocks, uint32_t block, uint8_t *data)
{
    poetc_status status = POETC_CORRUPT;
    for (int i = 0; i < TRIES && status == POETC_CORRUPT; ++i) {
        status = blocks->operations->read_block(blocks->device, block, data);
    }
    return status;
}

/* Brings a block to RAM; what was there is written first. */
static poetc_status fetch(poetc_block_store *blocks, uint32_t block)
{
    if (blocks->block == block) {
        return POETC_OK;
    }
    poetc_status status = flush(blocks);
    if (status != POETC_OK) {
        return status;
    }
    blocks->block = NONE;
    status = read_block(blocks, block, blocks->data);
    if (status == POETC_OK) {
        blocks->block = block;
    }
    return status;
}

static poetc_status read_part(poetc_block_store *blocks, uint32_t offset, uint8_t *data,
                              uint32_t length)
{
    const uint32_t block = offset / POETC_BLOCK_BYTES;
    if (length == POETC_BLOCK_BYTES && blocks->block != block) {
        return read_block(blocks, block, data);
    }
    const poetc_status status = fetch(blocks, block);
    if (status == POETC_OK) {
        copy(data, &blocks->data[offset % POETC_BLOCK_BYTES], length);
    }
    return status;
}

static poetc_status write_part(poetc_block_store *blocks, uint32_t offset, const uint8_t *data,
                               uint32_t length)
{
    const uint32_t block = offset / POETC_BLOCK_BYTES;
    if (length == POETC_BLOCK_BYTES) {
        if (blocks->block == block) {
            blocks->block = NONE;
            blocks->dirty = false;
        }
        return blocks->operations->write_block(blocks->device, block, data);
    }
    poetc_status status = fetch(blocks, block);
    if (status == POETC_CORRUPT) {
        /* A write was cut off here, and nothing in this block is needed; or it is worn out. */
        for (uint32_t i = 0; i < POETC_BLOCK_BYTES; ++i) {
            blocks->data[i] = 0;
        }
        blocks->block = block;
        blocks->lost = true;
        status = POETC_OK;
    }
    if (status == POETC_OK) {
        copy(&blocks->data[offset % POETC_BLOCK_BYTES], data, length);
        blocks->dirty = true;
    }
    return status;
}

/* What of a transfer is in the block of `offset`. */
static uint32_t part_bytes(uint32_t offset, uint32_t length)
{
    const uint32_t room = POETC_BLOCK_BYTES - offset % POETC_BLOCK_BYTES;
    return length < room ? length : room;
}

static poetc_status read_blocks(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                uint32_t *done)
{
    /* The store is the first member of its handle. */
    poetc_block_store *const blocks = (poetc_block_store *)(void *)store;
    uint8_t *const bytes = data;
    while (*done < length) {
        const uint32_t part = part_bytes(offset + *done, length - *done);
        const poetc_status status = read_part(blocks, offset + *done, bytes + *done, part);
        if (status != POETC_OK) {
            return status;
        }
        *done += part;
    }
    return POETC_OK;
}

static poetc_status write_blocks(poetc_store *store, uint32_t offset, const void *data,
                                 uint32_t length, uint32_t *done)
{
    poetc_block_store *const blocks = (poetc_block_store *)(void *)store;
    const uint8_t *const bytes = data;
    while (*done < length) {
        const uint32_t part = part_bytes(offset + *done, length - *done);
        const poetc_status status = write_part(blocks, offset + *done, bytes + *done, part);
        if (status != POETC_OK) {
            return status;
        }
        *done += part;
    }
#ifdef POETC_VERIFY_WRITES
    /* What is read back must come from the device. */
    const poetc_status status = flush(blocks);
    if (status == POETC_OK) {
        blocks->block = NONE;
    }
    return status;
#else
    return POETC_OK;
#endif
}

static poetc_status sync_blocks(poetc_store *store)
{
    poetc_block_store *const blocks = (poetc_block_store *)(void *)store;
    const poetc_status status = flush(blocks);
    if (status != POETC_OK) {
        return status;
    }
    blocks->block = NONE; /* what is read now comes from the device: whether it is there */
    if (blocks->lost) {
        blocks->lost = false;
        return POETC_CORRUPT;
    }
    return POETC_OK;
}

static const poetc_store_operations block_store_operations = {
    .read = read_blocks,
    .write = write_blocks,
    .start_read = NULL,
    .start_write = NULL,
    .wait = NULL,
    .sync = sync_blocks,
};

void poetc_block_store_init(poetc_block_store *store, const poetc_block_operations *operations,
                            void *device)
{
    store->store.operations = &block_store_operations;
    store->operations = operations;
    store->device = device;
    store->block = NONE;
    store->dirty = false;
    store->lost = false;
}
