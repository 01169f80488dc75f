#include "poetc_store.h"

#include <stddef.h>

const unsigned int POETC_RUNTIME = POETC_RUNTIME_ID;

const char *poetc_status_text(poetc_status status)
{
    switch (status) {
    case POETC_OK:
        return "ok";
    case POETC_READ_FAILED:
        return "the page store could not read";
    case POETC_WRITE_FAILED:
        return "the page store could not write";
    case POETC_SHORT_TRANSFER:
        return "the page store moved too few bytes";
    case POETC_CORRUPT:
        return "a page is corrupt";
    case POETC_OUT_OF_RANGE:
        return "beyond the end of the page store";
    case POETC_NO_STORE:
        return "no page store";
    case POETC_BUSY:
        return "the last transfer has not been waited for";
    case POETC_IDLE:
        return "no transfer to wait for";
    case POETC_NO_IMAGE:
        return "the page store holds no parameters of this model, format 2 (poetc pack makes them)";
    case POETC_TIMED_OUT:
        return "the page store did not answer in time";
    case POETC_IN_USE:
        return "another program uses the page store";
    case POETC_CANCELLED:
        return "cancelled";
    case POETC_TOO_SMALL:
        return "too little memory for the arena";
    case POETC_MISALIGNED:
        return "memory for the arena is not aligned";
    case POETC_WRONG_SIZE:
        return "not the number of elements";
    case POETC_PLAN_DAMAGED:
        return "no plan, or a damaged one";
    case POETC_PLAN_FOREIGN:
        return "the plan is for another model";
    case POETC_PLAN_TOO_LARGE:
        return "the plan needs more RAM or storage than there is";
    case POETC_PLAN_INVALID:
        return "the plan is invalid";
    case POETC_BYTE_ORDER:
        return "the target is big-endian";
    case POETC_FLOAT_ROUNDING:
        return "floats are not rounded to the nearest";
    case POETC_FLOAT_DENORMALS:
        return "denormal floats become zero: no -ffast-math for linking, no flush-to-zero";
    case POETC_FLOAT_EXPRESSIONS:
        return "other floats are computed: compile with -fno-fast-math -ffp-contract=off";
    }
    return "unknown status";
}

#ifndef POETC_OWN_CRC32
uint32_t poetc_crc32(const void *data, uint32_t length)
{
    /* The CRCs of all half bytes: 64 bytes instead of 1 KB for whole bytes. */
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
        0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
        0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
    };
    const uint8_t *bytes = data;
    uint32_t crc = 0xffffffffu;
    /* A word at a time takes fewer instructions than a byte at a time. */
    for (; length >= 4u; length -= 4u) {
        crc ^= poetc_get_u32(bytes);
        bytes += 4;
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
    }
    for (; length > 0u; --length) {
        crc ^= *bytes;
        ++bytes;
        crc = (crc >> 4) ^ table[crc & 15u];
        crc = (crc >> 4) ^ table[crc & 15u];
    }
    return ~crc;
}
#endif

static poetc_status complete(poetc_status status, uint32_t done, uint32_t length)
{
    if (status != POETC_OK) {
        return status;
    }
    return done == length ? POETC_OK : POETC_SHORT_TRANSFER;
}

poetc_status poetc_read(poetc_store *store, uint32_t offset, void *data, uint32_t length)
{
    if (store == NULL) {
        return POETC_NO_STORE;
    }
    uint32_t done = 0;
    const poetc_status status = store->operations->read(store, offset, data, length, &done);
    return complete(status, done, length);
}

poetc_status poetc_write(poetc_store *store, uint32_t offset, const void *data, uint32_t length)
{
    if (store == NULL) {
        return POETC_NO_STORE;
    }
    uint32_t done = 0;
    const poetc_status status = store->operations->write(store, offset, data, length, &done);
    return complete(status, done, length);
}

poetc_status poetc_sync(poetc_store *store)
{
    if (store == NULL) {
        return POETC_NO_STORE;
    }
    return store->operations->sync == NULL ? POETC_OK : store->operations->sync(store);
}

uint32_t poetc_get_u32(const uint8_t *bytes)
{
    return bytes[0] | ((uint32_t)bytes[1] << 8) | ((uint32_t)bytes[2] << 16)
           | ((uint32_t)bytes[3] << 24);
}

void poetc_put_u32(uint8_t *bytes, uint32_t value)
{
    bytes[0] = (uint8_t)(value & 0xffu);
    bytes[1] = (uint8_t)((value >> 8) & 0xffu);
    bytes[2] = (uint8_t)((value >> 16) & 0xffu);
    bytes[3] = (uint8_t)(value >> 24);
}

poetc_status poetc_page_out_tagged(poetc_store *store, uint32_t offset, const void *data,
                                   uint32_t length, uint32_t tag)
{
    uint8_t trailer[POETC_TRAILER_BYTES];
    const poetc_status status = poetc_write(store, offset, data, length);
    if (status != POETC_OK) {
        return status;
    }
    poetc_put_u32(trailer, poetc_crc32(data, length) ^ tag);
    return poetc_write(store, offset + length, trailer, POETC_TRAILER_BYTES);
}

static poetc_status check(const uint8_t *trailer, const void *data, uint32_t length, uint32_t tag)
{
    return poetc_get_u32(trailer) == (poetc_crc32(data, length) ^ tag) ? POETC_OK : POETC_CORRUPT;
}

poetc_status poetc_page_in_tagged(poetc_store *store, uint32_t offset, void *data,
                                  uint32_t length, uint32_t tag)
{
    uint8_t trailer[POETC_TRAILER_BYTES] = {0};
    poetc_status status = poetc_read(store, offset, data, length);
    if (status == POETC_OK) {
        status = poetc_read(store, offset + length, trailer, POETC_TRAILER_BYTES);
    }
    return status == POETC_OK ? check(trailer, data, length, tag) : status;
}

poetc_status poetc_page_out(poetc_store *store, uint32_t offset, const void *data,
                            uint32_t length)
{
    return poetc_page_out_tagged(store, offset, data, length, 0);
}

poetc_status poetc_page_in(poetc_store *store, uint32_t offset, void *data, uint32_t length)
{
    return poetc_page_in_tagged(store, offset, data, length, 0);
}

void poetc_transfers_init(poetc_transfer *transfers, uint32_t count)
{
    for (uint32_t i = 0; i < count; ++i) {
        transfers[i].direction = POETC_TRANSFER_NONE;
    }
}

static poetc_status prepare(const poetc_store *store, poetc_transfer *transfer, uint32_t offset,
                            uint32_t length, uint32_t tag)
{
    if (store == NULL) {
        return POETC_NO_STORE;
    }
    if (transfer->direction != POETC_TRANSFER_NONE) {
        return POETC_BUSY;
    }
    transfer->offset = offset;
    transfer->length = length;
    transfer->verify = false;
    transfer->tag = tag;
    transfer->done = 0;
    return POETC_OK;
}

/* A transfer that could not be started is none. */
static poetc_status started(poetc_transfer *transfer, poetc_status status)
{
    if (status != POETC_OK) {
        transfer->direction = POETC_TRANSFER_NONE;
    }
    return status;
}

poetc_status poetc_page_out_start(poetc_store *store, poetc_transfer *transfer, uint32_t offset,
                                  const void *data, uint32_t length, uint32_t tag)
{
    poetc_status status = prepare(store, transfer, offset, length, tag);
    if (status != POETC_OK) {
        return status;
    }
    transfer->direction = POETC_TRANSFER_OUT;
    transfer->data.out = data;
    poetc_put_u32(transfer->trailer, poetc_crc32(data, length) ^ tag);
    if (store->operations->start_write != NULL) {
        status = store->operations->start_write(store, transfer);
    } else {
        status = poetc_write(store, offset, data, length);
        if (status == POETC_OK) {
            status = poetc_write(store, offset + length, transfer->trailer, POETC_TRAILER_BYTES);
        }
    }
    return started(transfer, status);
}

poetc_status poetc_page_in_start(poetc_store *store, poetc_transfer *transfer, uint32_t offset,
                                 void *data, uint32_t length, uint32_t tag)
{
    poetc_status status = prepare(store, transfer, offset, length, tag);
    if (status != POETC_OK) {
        return status;
    }
    transfer->direction = POETC_TRANSFER_IN;
    transfer->data.in = data;
    if (store->operations->start_read != NULL) {
        status = store->operations->start_read(store, transfer);
    } else {
        status = poetc_read(store, offset, data, length);
        if (status == POETC_OK) {
            status = poetc_read(store, offset + length, transfer->trailer, POETC_TRAILER_BYTES);
        }
    }
    return started(transfer, status);
}

/* Waits until the store has done the transfer, if it does so beside the processor. */
static poetc_status finish(poetc_store *store, poetc_transfer *transfer)
{
    const bool in = transfer->direction == POETC_TRANSFER_IN;
    poetc_status status = POETC_OK;
    if ((in ? store->operations->start_read : store->operations->start_write) != NULL) {
        status = store->operations->wait(store, transfer);
        status = complete(status, transfer->done, transfer->length + POETC_TRAILER_BYTES);
    }
    transfer->direction = POETC_TRANSFER_NONE;
    return status;
}

poetc_status poetc_page_wait(poetc_store *store, poetc_transfer *transfer)
{
    if (store == NULL) {
        return POETC_NO_STORE;
    }
    const bool in = transfer->direction == POETC_TRANSFER_IN;
    if (!in && transfer->direction != POETC_TRANSFER_OUT) {
        return POETC_IDLE;
    }
    const poetc_status status = finish(store, transfer);
    if (status == POETC_OK && in) {
        return check(transfer->trailer, transfer->data.in, transfer->length, transfer->tag);
    }
    if (status == POETC_OK && transfer->verify) {
        return poetc_page_in_tagged(store, transfer->offset, transfer->data.in, transfer->length,
                                    transfer->tag);
    }
    return status;
}

poetc_status poetc_pages_abandon(poetc_store *store, poetc_transfer *transfers, uint32_t count,
                                 poetc_status status)
{
    for (uint32_t i = 0; i < count; ++i) {
        if (transfers[i].direction != POETC_TRANSFER_NONE) {
            /* How they end is of no use any more. */
            (void)finish(store, &transfers[i]);
        }
    }
    return status;
}
