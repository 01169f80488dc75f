/* Pages in blocks, which are read and written in slices.
 *
 * A page is a sequence of blocks: each has `block_bytes` - 4 bytes of the tensor (the last one what
 * remains) and 4 bytes of CRC, which is mixed with the tag of the page, the number of the block, and
 * how many of its bytes have not been written yet. So a block that is read is known to be whole, of
 * this page and of this step.
 */
#ifndef POETC_SLICE_H
#define POETC_SLICE_H

#include "poetc_store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* No slice has more dimensions: those that it has all of count as one with the one before. */
#define POETC_SLICE_DIMENSIONS 8

typedef struct {
    uint32_t offset; /* in the store */
    uint32_t bytes;  /* of the tensor */
    uint32_t tag;
    uint32_t block_bytes; /* with the CRC; a multiple of 4 */
    uint8_t *block;       /* so many bytes of RAM */
} poetc_block_page;

/* The shape of a slice: elements are row-major, in the page and in the buffer. */
typedef struct {
    uint32_t element_bytes;
    uint32_t dimensions;
    int32_t extent[POETC_SLICE_DIMENSIONS]; /* of the tensor */
    int32_t size[POETC_SLICE_DIMENSIONS];   /* of the buffer */
} poetc_slice;

/* Read, or write, what of the slice that begins at `start` is within the tensor. What of the buffer
 * is outside is left alone. A block that is corrupt is POETC_CORRUPT.
 * Each byte is written once, after poetc_slice_clear for all slices of the page, and read when all
 * of its block is written. Where all slices of a page are written with poetc_slice_append, the bytes
 * from its first to its last one, nothing is cleared before.
 */
poetc_status poetc_slice_in(poetc_store *store, const poetc_block_page *page,
                            const poetc_slice *slice, const int32_t *start, void *buffer);
poetc_status poetc_slice_out(poetc_store *store, const poetc_block_page *page,
                             const poetc_slice *slice, const int32_t *start, const void *buffer);
poetc_status poetc_slice_append(poetc_store *store, const poetc_block_page *page,
                                const poetc_slice *slice, const int32_t *start, const void *buffer);

/* The first blocks of a slice, at most so many, are read to `raw` beside the processor, if the store
 * can do that; poetc_slice_in_ahead, with the same arguments, waits for them and reads the rest. The
 * slice is one run of bytes that are adjacent in the page. Until then `transfer` and `raw`, of
 * `blocks` blocks, must be left alone.
 */
poetc_status poetc_slice_ahead(poetc_store *store, const poetc_block_page *page,
                               const poetc_slice *slice, const int32_t *start,
                               poetc_transfer *transfer, void *raw, uint32_t blocks);
poetc_status poetc_slice_in_ahead(poetc_store *store, const poetc_block_page *page,
                                  const poetc_slice *slice, const int32_t *start,
                                  poetc_transfer *transfer, void *raw, uint32_t blocks,
                                  void *buffer);

/* Of the blocks that begin in the slice, write those empty that it writes in part only. */
poetc_status poetc_slice_clear(poetc_store *store, const poetc_block_page *page,
                               const poetc_slice *slice, const int32_t *start);

/* All of the page. */
poetc_status poetc_blocks_in(poetc_store *store, const poetc_block_page *page, void *data);
poetc_status poetc_blocks_out(poetc_store *store, const poetc_block_page *page, const void *data);

#ifdef __cplusplus
}
#endif

#endif
