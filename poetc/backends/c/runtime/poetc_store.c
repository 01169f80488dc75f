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
#ifdef __OPTIMIZE_SIZE__
/* The CRCs of all half bytes: 64 bytes instead of 1 KB, for nearly twice the time. */
static const uint32_t crc_table[16] = {
    0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u,
    0x4db26158u, 0x5005713cu, 0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu,
    0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu,
};

static uint32_t crc_of_byte(uint32_t crc)
{
    crc = (crc >> 4) ^ crc_table[crc & 15u];
    return (crc >> 4) ^ crc_table[crc & 15u];
}
#else
/* The CRCs of all bytes. */
static const uint32_t crc_table[256] = {
    0x00000000u, 0x77073096u, 0xee0e612cu, 0x990951bau, 0x076dc419u, 0x706af48fu, 0xe963a535u,
    0x9e6495a3u, 0x0edb8832u, 0x79dcb8a4u, 0xe0d5e91eu, 0x97d2d988u, 0x09b64c2bu, 0x7eb17cbdu,
    0xe7b82d07u, 0x90bf1d91u, 0x1db71064u, 0x6ab020f2u, 0xf3b97148u, 0x84be41deu, 0x1adad47du,
    0x6ddde4ebu, 0xf4d4b551u, 0x83d385c7u, 0x136c9856u, 0x646ba8c0u, 0xfd62f97au, 0x8a65c9ecu,
    0x14015c4fu, 0x63066cd9u, 0xfa0f3d63u, 0x8d080df5u, 0x3b6e20c8u, 0x4c69105eu, 0xd56041e4u,
    0xa2677172u, 0x3c03e4d1u, 0x4b04d447u, 0xd20d85fdu, 0xa50ab56bu, 0x35b5a8fau, 0x42b2986cu,
    0xdbbbc9d6u, 0xacbcf940u, 0x32d86ce3u, 0x45df5c75u, 0xdcd60dcfu, 0xabd13d59u, 0x26d930acu,
    0x51de003au, 0xc8d75180u, 0xbfd06116u, 0x21b4f4b5u, 0x56b3c423u, 0xcfba9599u, 0xb8bda50fu,
    0x2802b89eu, 0x5f058808u, 0xc60cd9b2u, 0xb10be924u, 0x2f6f7c87u, 0x58684c11u, 0xc1611dabu,
    0xb6662d3du, 0x76dc4190u, 0x01db7106u, 0x98d220bcu, 0xefd5102au, 0x71b18589u, 0x06b6b51fu,
    0x9fbfe4a5u, 0xe8b8d433u, 0x7807c9a2u, 0x0f00f934u, 0x9609a88eu, 0xe10e9818u, 0x7f6a0dbbu,
    0x086d3d2du, 0x91646c97u, 0xe6635c01u, 0x6b6b51f4u, 0x1c6c6162u, 0x856530d8u, 0xf262004eu,
    0x6c0695edu, 0x1b01a57bu, 0x8208f4c1u, 0xf50fc457u, 0x65b0d9c6u, 0x12b7e950u, 0x8bbeb8eau,
    0xfcb9887cu, 0x62dd1ddfu, 0x15da2d49u, 0x8cd37cf3u, 0xfbd44c65u, 0x4db26158u, 0x3ab551ceu,
    0xa3bc0074u, 0xd4bb30e2u, 0x4adfa541u, 0x3dd895d7u, 0xa4d1c46du, 0xd3d6f4fbu, 0x4369e96au,
    0x346ed9fcu, 0xad678846u, 0xda60b8d0u, 0x44042d73u, 0x33031de5u, 0xaa0a4c5fu, 0xdd0d7cc9u,
    0x5005713cu, 0x270241aau, 0xbe0b1010u, 0xc90c2086u, 0x5768b525u, 0x206f85b3u, 0xb966d409u,
    0xce61e49fu, 0x5edef90eu, 0x29d9c998u, 0xb0d09822u, 0xc7d7a8b4u, 0x59b33d17u, 0x2eb40d81u,
    0xb7bd5c3bu, 0xc0ba6cadu, 0xedb88320u, 0x9abfb3b6u, 0x03b6e20cu, 0x74b1d29au, 0xead54739u,
    0x9dd277afu, 0x04db2615u, 0x73dc1683u, 0xe3630b12u, 0x94643b84u, 0x0d6d6a3eu, 0x7a6a5aa8u,
    0xe40ecf0bu, 0x9309ff9du, 0x0a00ae27u, 0x7d079eb1u, 0xf00f9344u, 0x8708a3d2u, 0x1e01f268u,
    0x6906c2feu, 0xf762575du, 0x806567cbu, 0x196c3671u, 0x6e6b06e7u, 0xfed41b76u, 0x89d32be0u,
    0x10da7a5au, 0x67dd4accu, 0xf9b9df6fu, 0x8ebeeff9u, 0x17b7be43u, 0x60b08ed5u, 0xd6d6a3e8u,
    0xa1d1937eu, 0x38d8c2c4u, 0x4fdff252u, 0xd1bb67f1u, 0xa6bc5767u, 0x3fb506ddu, 0x48b2364bu,
    0xd80d2bdau, 0xaf0a1b4cu, 0x36034af6u, 0x41047a60u, 0xdf60efc3u, 0xa867df55u, 0x316e8eefu,
    0x4669be79u, 0xcb61b38cu, 0xbc66831au, 0x256fd2a0u, 0x5268e236u, 0xcc0c7795u, 0xbb0b4703u,
    0x220216b9u, 0x5505262fu, 0xc5ba3bbeu, 0xb2bd0b28u, 0x2bb45a92u, 0x5cb36a04u, 0xc2d7ffa7u,
    0xb5d0cf31u, 0x2cd99e8bu, 0x5bdeae1du, 0x9b64c2b0u, 0xec63f226u, 0x756aa39cu, 0x026d930au,
    0x9c0906a9u, 0xeb0e363fu, 0x72076785u, 0x05005713u, 0x95bf4a82u, 0xe2b87a14u, 0x7bb12baeu,
    0x0cb61b38u, 0x92d28e9bu, 0xe5d5be0du, 0x7cdcefb7u, 0x0bdbdf21u, 0x86d3d2d4u, 0xf1d4e242u,
    0x68ddb3f8u, 0x1fda836eu, 0x81be16cdu, 0xf6b9265bu, 0x6fb077e1u, 0x18b74777u, 0x88085ae6u,
    0xff0f6a70u, 0x66063bcau, 0x11010b5cu, 0x8f659effu, 0xf862ae69u, 0x616bffd3u, 0x166ccf45u,
    0xa00ae278u, 0xd70dd2eeu, 0x4e048354u, 0x3903b3c2u, 0xa7672661u, 0xd06016f7u, 0x4969474du,
    0x3e6e77dbu, 0xaed16a4au, 0xd9d65adcu, 0x40df0b66u, 0x37d83bf0u, 0xa9bcae53u, 0xdebb9ec5u,
    0x47b2cf7fu, 0x30b5ffe9u, 0xbdbdf21cu, 0xcabac28au, 0x53b39330u, 0x24b4a3a6u, 0xbad03605u,
    0xcdd70693u, 0x54de5729u, 0x23d967bfu, 0xb3667a2eu, 0xc4614ab8u, 0x5d681b02u, 0x2a6f2b94u,
    0xb40bbe37u, 0xc30c8ea1u, 0x5a05df1bu, 0x2d02ef8du,
};

static uint32_t crc_of_byte(uint32_t crc)
{
    return (crc >> 8) ^ crc_table[crc & 255u];
}
#endif

uint32_t poetc_crc32(const void *data, uint32_t length)
{
    const uint8_t *bytes = data;
    uint32_t crc = 0xffffffffu;
    /* A word at a time takes fewer instructions than a byte at a time. */
    for (; length >= 4u; length -= 4u) {
        crc ^= poetc_get_u32(bytes);
        bytes += 4;
        crc = crc_of_byte(crc_of_byte(crc_of_byte(crc_of_byte(crc))));
    }
    for (; length > 0u; --length) {
        crc = crc_of_byte(crc ^ *bytes);
        ++bytes;
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

poetc_status poetc_transfer_wait(poetc_store *store, poetc_transfer *transfer)
{
    if (store == NULL) {
        return POETC_NO_STORE;
    }
    return transfer->direction == POETC_TRANSFER_NONE ? POETC_IDLE : finish(store, transfer);
}

poetc_status poetc_page_wait(poetc_store *store, poetc_transfer *transfer)
{
    const bool in = transfer->direction == POETC_TRANSFER_IN;
    const poetc_status status = poetc_transfer_wait(store, transfer);
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
