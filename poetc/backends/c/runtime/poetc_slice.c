#include "poetc_slice.h"

#include <stddef.h>

#define TAG_OF_BLOCK 0x9e3779b1u
#define NO_BLOCK UINT32_MAX

/* The trailer of a block of which bytes remain to be written has their number times this. Tags of
 * one step differ little: were it the number itself, a block of another page, or of the step before,
 * could look like one that is incomplete. OF_REMAINING is the inverse modulo 2^32. */
#define REMAINING 0x27d4eb2fu
#define OF_REMAINING 0xa0fe3bcfu

/* The block of a page that is in RAM. */
typedef struct {
    poetc_store *store;
    const poetc_block_page *page;
    uint32_t number;
    uint32_t remaining; /* bytes that have not been written yet */
    bool changed;
    bool in_order; /* bytes are written from the first to the last one */
} place;

static void copy_part(uint8_t *restrict to, const uint8_t *restrict from, uint32_t length)
{
    for (uint32_t i = 0; i != length; ++i) {
        to[i] = from[i];
    }
}

static uint32_t payload(const poetc_block_page *page)
{
    return page->block_bytes - POETC_TRAILER_BYTES;
}

/* Bytes of the tensor in a block. */
static uint32_t length_of(const poetc_block_page *page, uint32_t number)
{
    const uint32_t after = page->bytes - number * payload(page);
    return after < payload(page) ? after : payload(page);
}

/* The trailer of the block in RAM, if nothing of it remains to be written. */
static uint32_t trailer_of(const place *at, uint32_t length)
{
    const poetc_block_page *page = at->page;
    return poetc_crc32(page->block, length) ^ (page->tag + at->number * TAG_OF_BLOCK);
}

static poetc_status read_page_block(place *at, uint32_t number)
{
    const poetc_block_page *page = at->page;
    const uint32_t length = length_of(page, number);
    at->number = NO_BLOCK;
    const poetc_status status = poetc_read(at->store, page->offset + number * page->block_bytes,
                                           page->block, length + POETC_TRAILER_BYTES);
    if (status != POETC_OK) {
        return status;
    }
    at->number = number;
    at->remaining = (poetc_get_u32(page->block + length) ^ trailer_of(at, length)) * OF_REMAINING;
    if (at->remaining > length) {
        at->number = NO_BLOCK;
        return POETC_CORRUPT;
    }
    return POETC_OK;
}

/* Writes the block in RAM, if it has changed. */
static poetc_status flush_page_block(place *at)
{
    if (!at->changed) {
        return POETC_OK;
    }
    const poetc_block_page *page = at->page;
    const uint32_t length = length_of(page, at->number);
    at->changed = false;
    poetc_put_u32(page->block + length, trailer_of(at, length) ^ (at->remaining * REMAINING));
    const poetc_status status
        = poetc_write(at->store, page->offset + at->number * page->block_bytes, page->block,
                      length + POETC_TRAILER_BYTES);
#ifdef POETC_VERIFY_WRITES
    if (status == POETC_OK) {
        const uint32_t remaining = at->remaining;
        const poetc_status again = read_page_block(at, at->number);
        return again == POETC_OK && at->remaining != remaining ? POETC_CORRUPT : again;
    }
#endif
    return status;
}

static poetc_status run_in(place *at, uint32_t first, uint8_t *data, uint32_t length)
{
    while (length > 0u) {
        const uint32_t number = first / payload(at->page);
        const uint32_t begin = first % payload(at->page);
        uint32_t part = length_of(at->page, number) - begin;
        part = part < length ? part : length;
        if (number != at->number) {
            const poetc_status status = read_page_block(at, number);
            if (status != POETC_OK) {
                return status;
            }
        }
        if (at->remaining != 0u) {
            return POETC_CORRUPT;
        }
        copy_part(data, at->page->block + begin, part);
        first += part;
        data += part;
        length -= part;
    }
    return POETC_OK;
}

static poetc_status run_out(place *at, uint32_t first, const uint8_t *data, uint32_t length)
{
    while (length > 0u) {
        const uint32_t number = first / payload(at->page);
        const uint32_t begin = first % payload(at->page);
        const uint32_t whole = length_of(at->page, number);
        const uint32_t part = whole - begin < length ? whole - begin : length;
        if (number != at->number) {
            poetc_status status = flush_page_block(at);
            if (status == POETC_OK && (part == whole || (at->in_order && begin == 0u))) {
                at->number = number;
                at->remaining = whole;
            } else if (status == POETC_OK) {
                status = read_page_block(at, number);
            }
            if (status != POETC_OK) {
                return status;
            }
        }
        if (at->in_order ? at->remaining != whole - begin : at->remaining < part) {
            /* What was written before is not what should be there. */
            return POETC_CORRUPT;
        }
        copy_part(at->page->block + begin, data, part);
        at->remaining -= part;
        at->changed = true;
        first += part;
        data += part;
        length -= part;
    }
    return POETC_OK;
}

/* A run that ends within a block, which begins in it too: nothing of that has been written. */
static poetc_status run_clear(place *at, uint32_t first, uint32_t length)
{
    const uint32_t end = first + length;
    const uint32_t number = (end - 1u) / payload(at->page);
    const uint32_t begin = number * payload(at->page);
    const uint32_t whole = length_of(at->page, number);
    if (begin < first || end == begin + whole) {
        return POETC_OK;
    }
    for (uint32_t i = 0; i != whole; ++i) {
        at->page->block[i] = 0;
    }
    at->number = number;
    at->remaining = whole;
    at->changed = true;
    return flush_page_block(at);
}

/* Where in dimension `d` of a tensor the part of a slice begins that is within it, and where that
 * ends. Made anew each time: arrays of them would be on the stack. */
static int32_t low_of(const int32_t *start, uint32_t d)
{
    return start[d] > 0 ? start[d] : 0;
}

static int32_t high_of(const poetc_slice *slice, const int32_t *start, uint32_t d)
{
    const int32_t end = start[d] + slice->size[d];
    return end < slice->extent[d] ? end : slice->extent[d];
}

/* Moves all runs of a slice: stretches of bytes that are adjacent in the page and in the buffer. It
 * is read, or written, or with neither buffer cleared. */
static poetc_status move_slice(place *at, const poetc_slice *slice, const int32_t *start,
                               uint8_t *in, const uint8_t *out)
{
    int32_t index[POETC_SLICE_DIMENSIONS];
    for (uint32_t d = 0; d < slice->dimensions; ++d) {
        index[d] = low_of(start, d);
        if (high_of(slice, start, d) <= index[d]) {
            return POETC_OK;
        }
    }
    uint32_t inner = slice->dimensions;
    uint32_t run_bytes = slice->element_bytes;
    bool joined = true;
    while (joined && inner > 0u) {
        --inner;
        const int32_t count = high_of(slice, start, inner) - index[inner];
        run_bytes *= (uint32_t)count;
        joined = count == slice->extent[inner] && slice->size[inner] == slice->extent[inner];
    }
    for (;;) {
        uint32_t first = 0;
        uint32_t here = 0;
        for (uint32_t d = 0; d < slice->dimensions; ++d) {
            first = first * (uint32_t)slice->extent[d] + (uint32_t)index[d];
            here = here * (uint32_t)slice->size[d] + (uint32_t)(index[d] - start[d]);
        }
        first *= slice->element_bytes;
        here *= slice->element_bytes;
        const poetc_status status = in != NULL    ? run_in(at, first, in + here, run_bytes)
                                    : out != NULL ? run_out(at, first, out + here, run_bytes)
                                                  : run_clear(at, first, run_bytes);
        if (status != POETC_OK) {
            return status;
        }
        uint32_t d = inner;
        for (;;) {
            if (d == 0u) {
                return POETC_OK;
            }
            --d;
            if (++index[d] < high_of(slice, start, d)) {
                break;
            }
            index[d] = low_of(start, d);
        }
    }
}

static place nowhere(poetc_store *store, const poetc_block_page *page)
{
    const place at = {store, page, NO_BLOCK, 0, false, false};
    return at;
}

poetc_status poetc_slice_in(poetc_store *store, const poetc_block_page *page,
                            const poetc_slice *slice, const int32_t *start, void *buffer)
{
    place at = nowhere(store, page);
    return move_slice(&at, slice, start, buffer, NULL);
}

static poetc_status slice_out(place *at, const poetc_slice *slice, const int32_t *start,
                              const void *buffer)
{
    const poetc_status status = move_slice(at, slice, start, NULL, buffer);
    return status == POETC_OK ? flush_page_block(at) : status;
}

poetc_status poetc_slice_out(poetc_store *store, const poetc_block_page *page,
                             const poetc_slice *slice, const int32_t *start, const void *buffer)
{
    place at = nowhere(store, page);
    return slice_out(&at, slice, start, buffer);
}

poetc_status poetc_slice_append(poetc_store *store, const poetc_block_page *page,
                                const poetc_slice *slice, const int32_t *start, const void *buffer)
{
    place at = nowhere(store, page);
    at.in_order = true;
    return slice_out(&at, slice, start, buffer);
}

poetc_status poetc_slice_clear(poetc_store *store, const poetc_block_page *page,
                               const poetc_slice *slice, const int32_t *start)
{
    place at = nowhere(store, page);
    return move_slice(&at, slice, start, NULL, NULL);
}

poetc_status poetc_blocks_in(poetc_store *store, const poetc_block_page *page, void *data)
{
    place at = nowhere(store, page);
    return run_in(&at, 0, data, page->bytes);
}

poetc_status poetc_blocks_out(poetc_store *store, const poetc_block_page *page, const void *data)
{
    place at = nowhere(store, page);
    const poetc_status status = run_out(&at, 0, data, page->bytes);
    return status == POETC_OK ? flush_page_block(&at) : status;
}

/* A slice that is one run: `length` bytes from `first` of the page, and from `here` of the buffer. */
typedef struct {
    uint32_t first;
    uint32_t here;
    uint32_t length;
} run;

static run only_run(const poetc_slice *slice, const int32_t *start)
{
    run found = {0, 0, slice->element_bytes};
    for (uint32_t d = 0; d < slice->dimensions; ++d) {
        const int32_t low = low_of(start, d);
        const int32_t high = high_of(slice, start, d);
        const int32_t count = high > low ? high - low : 0;
        found.first = found.first * (uint32_t)slice->extent[d] + (uint32_t)low;
        found.here = found.here * (uint32_t)slice->size[d] + (uint32_t)(low - start[d]);
        found.length *= (uint32_t)count;
    }
    found.first *= slice->element_bytes;
    found.here *= slice->element_bytes;
    return found;
}

/* How many blocks of a run, which is not empty, are read ahead. */
static uint32_t blocks_ahead(const poetc_block_page *page, const run *part, uint32_t most)
{
    const uint32_t last = (part->first + part->length - 1u) / payload(page);
    const uint32_t count = last - part->first / payload(page) + 1u;
    return count < most ? count : most;
}

poetc_status poetc_slice_ahead(poetc_store *store, const poetc_block_page *page,
                               const poetc_slice *slice, const int32_t *start,
                               poetc_transfer *transfer, void *raw, uint32_t blocks)
{
    const run part = only_run(slice, start);
    if (part.length == 0u) {
        return POETC_OK;
    }
    const uint32_t number = part.first / payload(page);
    const uint32_t last = blocks_ahead(page, &part, blocks) - 1u;
    /* The trailer of the last block is that of the transfer. */
    return poetc_page_in_start(store, transfer, page->offset + number * page->block_bytes, raw,
                               last * page->block_bytes + length_of(page, number + last), 0);
}

poetc_status poetc_slice_in_ahead(poetc_store *store, const poetc_block_page *page,
                                  const poetc_slice *slice, const int32_t *start,
                                  poetc_transfer *transfer, void *raw, uint32_t blocks,
                                  void *buffer)
{
    run part = only_run(slice, start);
    if (part.length == 0u) {
        return POETC_OK;
    }
    const uint8_t *block = raw;
    uint8_t *data = (uint8_t *)buffer + part.here;
    uint32_t number = part.first / payload(page);
    poetc_status status = poetc_transfer_wait(store, transfer);
    for (uint32_t left = blocks_ahead(page, &part, blocks); status == POETC_OK && left > 0u; --left) {
        const uint32_t length = length_of(page, number);
        const uint32_t begin = part.first - number * payload(page);
        uint32_t count = length - begin;
        count = count < part.length ? count : part.length;
        const uint8_t *trailer = left == 1u ? transfer->trailer : block + length;
        const uint32_t crc = poetc_crc32(block, length) ^ (page->tag + number * TAG_OF_BLOCK);
        if (poetc_get_u32(trailer) != crc) {
            status = POETC_CORRUPT;
        }
        copy_part(data, block + begin, count);
        data += count;
        part.first += count;
        part.length -= count;
        block += page->block_bytes;
        ++number;
    }
    place at = nowhere(store, page);
    return status == POETC_OK ? run_in(&at, part.first, data, part.length) : status;
}
