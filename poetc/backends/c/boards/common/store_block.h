/* A page store on a device that reads and writes whole blocks: memory cards, flash that is erased in
 * sectors. It has one block in RAM. A block of which only a part is written stays there until another
 * one is needed or `sync`; blocks that are written as a whole go directly.
 *
 * A block of which a part is written, but which is damaged, counts as empty. What was written to it
 * before is lost then, since the last `sync` too, and the next one says so: POETC_CORRUPT.
 *
 * POETC_BLOCK_BYTES must divide the write unit of the device file (STORAGE_UNIT in the header of the
 * model), so that a write which is cut off spoils no other unit.
 */
#ifndef POETC_STORE_BLOCK_H
#define POETC_STORE_BLOCK_H

#include "poetc_store.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef POETC_BLOCK_BYTES
#define POETC_BLOCK_BYTES 512
#endif

/* What the device does. POETC_CORRUPT from `read_block` says that the device knows the block to be
 * damaged; it is asked again then. `write_block` returns when the block would survive a loss of power.
 */
typedef struct {
    poetc_status (*read_block)(void *device, uint32_t block, uint8_t *data);
    poetc_status (*write_block)(void *device, uint32_t block, const uint8_t *data);
} poetc_block_operations;

typedef struct {
    poetc_store store; /* pass &block.store to the step */
    const poetc_block_operations *operations;
    void *device;
    uint32_t block; /* the one in `data`; UINT32_MAX: none */
    bool dirty;     /* not written yet */
    bool lost;      /* a damaged block was taken for an empty one since the last `sync` */
    uint8_t data[POETC_BLOCK_BYTES];
} poetc_block_store;

void poetc_block_store_init(poetc_block_store *store, const poetc_block_operations *operations,
                            void *device);

#ifdef __cplusplus
}
#endif

#endif
