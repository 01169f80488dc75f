#include "poetc_image.h"

/* What a record says, and whether it is one of this layout. */
typedef struct {
    bool valid;
    uint32_t sequence;
    uint32_t tag;
} image_record;

static poetc_status read_once(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                              uint32_t slot, image_record *found)
{
    uint8_t record[POETC_RECORD_BYTES] = {0};
    const poetc_status status = poetc_read(store, slot * unit_bytes, record, POETC_RECORD_BYTES);
    found->sequence = poetc_get_u32(record + 4);
    found->tag = poetc_get_u32(record + 8);
    found->valid = status == POETC_OK && poetc_get_u32(record) == layout_id
                   && (found->sequence & 1u) == slot
                   && poetc_get_u32(record + 12) == poetc_crc32(record, 12);
    /* A record may be damaged: the power went while it was written. */
    return status == POETC_CORRUPT ? POETC_OK : status;
}

static poetc_status read_record(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                                uint32_t slot, image_record *found)
{
    poetc_status status = read_once(store, layout_id, unit_bytes, slot, found);
    if (status == POETC_OK && !found->valid) {
        /* Not to go back a step because of one bad transfer. */
        status = read_once(store, layout_id, unit_bytes, slot, found);
    }
    return status;
}

/* The newer record. Record `last` is read last, so that a store with one block in RAM has its block
 * then.
 */
static poetc_status newest(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                           uint32_t last, image_record *found)
{
    image_record other;
    poetc_status status = read_record(store, layout_id, unit_bytes, 1u - last, &other);
    if (status == POETC_OK) {
        status = read_record(store, layout_id, unit_bytes, last, found);
    }
    if (status != POETC_OK) {
        return status;
    }
    /* Sequences wrap: the newer of two is less than half of all numbers ahead. */
    if (other.valid && (!found->valid || other.sequence - found->sequence < 0x80000000u)) {
        *found = other;
    }
    return found->valid ? POETC_OK : POETC_NO_IMAGE;
}

poetc_status poetc_image_open(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                              poetc_state *state)
{
    image_record found = {false, 0, 0};
    const poetc_status status = newest(store, layout_id, unit_bytes, 1, &found);
    if (status == POETC_OK) {
        state->sequence = found.sequence;
        state->old_tag = found.tag;
    }
    return status;
}

static poetc_status write_record(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                                 uint32_t sequence, uint32_t tag)
{
    const uint32_t slot = sequence & 1u;
    uint8_t record[POETC_RECORD_BYTES];
    poetc_put_u32(record, layout_id);
    poetc_put_u32(record + 4, sequence);
    poetc_put_u32(record + 8, tag);
    poetc_put_u32(record + 12, poetc_crc32(record, 12));
    poetc_status status = poetc_write(store, slot * unit_bytes, record, POETC_RECORD_BYTES);
    if (status == POETC_OK) {
        status = poetc_sync(store);
    }
    if (status == POETC_OK) {
        image_record found = {false, 0, 0};
        status = read_record(store, layout_id, unit_bytes, slot, &found);
        const bool ours = found.valid && found.sequence == sequence && found.tag == tag;
        if (status == POETC_OK && !ours) {
            /* An older record is still there if the write was lost; no other program wrote that. */
            const bool theirs = found.valid && found.sequence - sequence < 0x80000000u;
            status = theirs ? POETC_IN_USE : POETC_CORRUPT;
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
                                const poetc_state *state)
{
    const uint32_t sequence = state->sequence + 1u;
    /* All new values first; then the record that says so, before anyone writes the old bank. */
    poetc_status status = poetc_sync(store);
    if (status != POETC_OK) {
        return status;
    }
    /* If the state is not the one that the step began with, another program has done a step. */
    image_record present = {false, 0, 0};
    status = newest(store, layout_id, unit_bytes, sequence & 1u, &present);
    if (status == POETC_OK
        && (present.sequence != state->sequence || present.tag != state->old_tag)) {
        return POETC_IN_USE;
    }
    if (status != POETC_OK && status != POETC_NO_IMAGE) {
        return status;
    }
    status = write_record(store, layout_id, unit_bytes, sequence, state->new_tag);
    if (status != POETC_OK && status != POETC_IN_USE) {
        /* What went wrong first is what the caller should know. */
        (void)erase_record(store, unit_bytes, sequence & 1u);
    }
    return status;
}

uint32_t poetc_tag_word(uint32_t tag, uint32_t word)
{
    /* No two words give the same; the shifts bring high bits, such as signs, to all others. */
    tag ^= word;
    tag = (tag ^ (tag >> 16)) * 0x9e3779b1u;
    return tag ^ (tag >> 15);
}

uint32_t poetc_tag_bytes(uint32_t tag, const void *data, uint32_t length)
{
    const uint8_t *bytes = data;
    for (; length >= 4u; length -= 4u) {
        tag = poetc_tag_word(tag, poetc_get_u32(bytes));
        bytes += 4;
    }
    for (; length > 0u; --length) {
        tag = poetc_tag_word(tag, *bytes);
        ++bytes;
    }
    return tag;
}

poetc_status poetc_parameter_in(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                uint32_t tag)
{
    return poetc_page_in_tagged(store, offset, data, length, tag);
}

poetc_status poetc_parameter_out(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                 uint32_t tag)
{
    const poetc_status status = poetc_page_out_tagged(store, offset, data, length, tag);
#ifdef POETC_VERIFY_WRITES
    if (status == POETC_OK) {
        return poetc_page_in_tagged(store, offset, data, length, tag);
    }
#endif
    return status;
}

poetc_status poetc_parameter_out_start(poetc_store *store, poetc_transfer *transfer,
                                       uint32_t offset, void *data, uint32_t length,
                                       uint32_t tag)
{
    const poetc_status status
        = poetc_page_out_start(store, transfer, offset, data, length, tag);
#ifdef POETC_VERIFY_WRITES
    transfer->verify = true;
#endif
    return status;
}
