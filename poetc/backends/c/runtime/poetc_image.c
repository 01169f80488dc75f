#include "poetc_image.h"

/* Reads record `slot`; *valid says whether it is one of this layout. */
static poetc_status read_once(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                              uint32_t slot, bool *valid, uint32_t *sequence)
{
    uint8_t record[POETC_RECORD_BYTES] = {0};
    const poetc_status status = poetc_read(store, slot * unit_bytes, record, POETC_RECORD_BYTES);
    *sequence = poetc_get_u32(record + 8);
    *valid = status == POETC_OK && poetc_get_u32(record) == POETC_RECORD_MAGIC
             && poetc_get_u32(record + 4) == layout_id && (*sequence & 1u) == slot
             && poetc_get_u32(record + 12) == poetc_crc32(record, 12);
    /* A record may be damaged: the power went while it was written. */
    return status == POETC_CORRUPT ? POETC_OK : status;
}

static poetc_status read_record(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                                uint32_t slot, bool *valid, uint32_t *sequence)
{
    poetc_status status = read_once(store, layout_id, unit_bytes, slot, valid, sequence);
    if (status == POETC_OK && !*valid) {
        /* Not to go back a step because of one bad transfer. */
        status = read_once(store, layout_id, unit_bytes, slot, valid, sequence);
    }
    return status;
}

/* The sequence of the newer record. Record `last` is read last, so that a store with one block in
 * RAM has its block then.
 */
static poetc_status newest(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                           uint32_t last, uint32_t *sequence)
{
    bool valid[2] = {false, false};
    uint32_t found[2] = {0, 0};
    for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t slot = i == 0 ? 1u - last : last;
        const poetc_status status
            = read_record(store, layout_id, unit_bytes, slot, &valid[slot], &found[slot]);
        if (status != POETC_OK) {
            return status;
        }
    }
    if (!valid[0] && !valid[1]) {
        return POETC_NO_IMAGE;
    }
    /* Sequences wrap: the newer of two is less than half of all numbers ahead. */
    const bool second = valid[1] && (!valid[0] || found[1] - found[0] < 0x80000000u);
    *sequence = found[second ? 1 : 0];
    return POETC_OK;
}

poetc_status poetc_image_open(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                              uint32_t *sequence)
{
    return newest(store, layout_id, unit_bytes, 1, sequence);
}

static poetc_status write_record(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                                 uint32_t sequence)
{
    const uint32_t slot = sequence & 1u;
    uint8_t record[POETC_RECORD_BYTES];
    poetc_put_u32(record, POETC_RECORD_MAGIC);
    poetc_put_u32(record + 4, layout_id);
    poetc_put_u32(record + 8, sequence);
    poetc_put_u32(record + 12, poetc_crc32(record, 12));
    poetc_status status = poetc_write(store, slot * unit_bytes, record, POETC_RECORD_BYTES);
    if (status == POETC_OK) {
        status = poetc_sync(store);
    }
    if (status == POETC_OK) {
        bool valid = false;
        uint32_t found = 0;
        status = read_record(store, layout_id, unit_bytes, slot, &valid, &found);
        if (status == POETC_OK && !(valid && found == sequence)) {
            status = POETC_CORRUPT;
        }
    }
    return status;
}

static poetc_status erase_record(poetc_store *store, uint32_t unit_bytes, uint32_t slot)
{
    const uint8_t blank[POETC_RECORD_BYTES] = {0};
    const poetc_status status = poetc_write(store, slot * unit_bytes, blank, POETC_RECORD_BYTES);
    return status == POETC_OK ? poetc_sync(store) : status;
}

poetc_status poetc_image_commit(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                                uint32_t sequence)
{
    /* All new values first; then the record that says so, before anyone writes the old bank. */
    poetc_status status = poetc_sync(store);
    if (status != POETC_OK) {
        return status;
    }
    /* If the state is not the one that the step began with, another program has done a step. */
    uint32_t present = 0;
    status = newest(store, layout_id, unit_bytes, sequence & 1u, &present);
    if (status == POETC_OK && present != sequence - 1u) {
        return POETC_IN_USE;
    }
    if (status != POETC_OK && status != POETC_NO_IMAGE) {
        return status;
    }
    status = write_record(store, layout_id, unit_bytes, sequence);
    if (status != POETC_OK) {
        /* What went wrong first is what the caller should know. */
        (void)erase_record(store, unit_bytes, sequence & 1u);
    }
    return status;
}

poetc_status poetc_parameter_in(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                uint32_t sequence)
{
    return poetc_page_in_tagged(store, offset, data, length, sequence);
}

poetc_status poetc_parameter_out(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                 uint32_t sequence)
{
    const poetc_status status = poetc_page_out_tagged(store, offset, data, length, sequence);
#ifdef POETC_VERIFY_WRITES
    if (status == POETC_OK) {
        return poetc_page_in_tagged(store, offset, data, length, sequence);
    }
#endif
    return status;
}

poetc_status poetc_parameter_out_start(poetc_store *store, poetc_transfer *transfer,
                                       uint32_t offset, void *data, uint32_t length,
                                       uint32_t sequence)
{
    const poetc_status status
        = poetc_page_out_start(store, transfer, offset, data, length, sequence);
#ifdef POETC_VERIFY_WRITES
    transfer->verify = true;
#endif
    return status;
}
