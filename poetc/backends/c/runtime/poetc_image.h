/* Storage image: parameters that live in auxiliary storage from step to step.
 *
 * Each parameter that a step updates has a page in two banks. A step reads one bank, writes new
 * values to the other, and makes them the current ones by writing one record. Wherever the power
 * goes, the store holds all of the old values or all of the new ones, and the step can be
 * repeated.
 *
 * Record n is at the offset n * unit_bytes, four numbers of 4 bytes, least significant first:
 * layout id, sequence, tag, CRC-32 of the 12 bytes before. The newest valid record is the state.
 * With the sequence s it is record s & 1, the values are in bank s & 1, and their pages have its
 * tag: a hash of the step that wrote them, so that pages of two programs that do the same step with
 * other inputs are never taken for those of one.
 */
#ifndef POETC_IMAGE_H
#define POETC_IMAGE_H

#include "poetc_store.h"

#ifdef __cplusplus
extern "C" {
#endif

#define POETC_RECORD_BYTES 16

/* A step: what it begins with, and the tag of what it writes. */
typedef struct {
    uint32_t sequence; /* of the current values: new ones have the next */
    uint32_t old_tag;  /* of the current values */
    uint32_t new_tag;  /* of the new ones */
} poetc_state;

/* Sets sequence and old tag to those of the newest record; POETC_NO_IMAGE if none has this layout
 * id.
 */
poetc_status poetc_image_open(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                              poetc_state *state);

/* Makes the pages with the new tag current, if those that the step began with still are, or none
 * (then this is a new image). Otherwise another program has done a step meanwhile, and this one is
 * POETC_IN_USE. If the record cannot be written, it is erased again, so that the old values
 * remain; if the store then fails, too, poetc_image_open tells which of the two it holds.
 */
poetc_status poetc_image_commit(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                                const poetc_state *state);

/* The tag with one more word, or with the bytes of an argument, in its hash. */
uint32_t poetc_tag_word(uint32_t tag, uint32_t word);
uint32_t poetc_tag_bytes(uint32_t tag, const void *data, uint32_t length);

/* Pages of updated parameters. Compiled with -DPOETC_VERIFY_WRITES, what is written is read back
 * into `data` and checked, so that a bad write is found while the old values are still there.
 */
poetc_status poetc_parameter_in(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                uint32_t tag);
poetc_status poetc_parameter_out(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                 uint32_t tag);

/* The first half of writing one; poetc_page_wait is the second, and does the reading back. */
poetc_status poetc_parameter_out_start(poetc_store *store, poetc_transfer *transfer,
                                       uint32_t offset, void *data, uint32_t length,
                                       uint32_t tag);

#ifdef __cplusplus
}
#endif

#endif
