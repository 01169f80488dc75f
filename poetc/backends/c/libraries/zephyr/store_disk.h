/* A page store on a disk of Zephyr's disk access API: memory cards, flash disks, RAM disks. The image
 * begins at sector 0, without a file system: everything that is on the disk is lost.
 */
#ifndef STORE_DISK_H
#define STORE_DISK_H

#include "store_block.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    poetc_block_store blocks; /* pass &disk.blocks.store to the step */
    const char *name;
} poetc_disk_store;

/* `name` is that of the disk, such as "SD"; kept, not copied. The disk must have sectors of
 * POETC_BLOCK_BYTES. POETC_NO_STORE: there is no such disk, or no card in it.
 */
poetc_status poetc_disk_store_open(poetc_disk_store *disk, const char *name);

#ifdef __cplusplus
}
#endif

#endif
