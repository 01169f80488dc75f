#include "store_disk.h"

#include <errno.h>
#include <zephyr/storage/disk_access.h>

static poetc_status status_of(int result, poetc_status failed)
{
    switch (result) {
    case 0:
        return POETC_OK;
    case -ETIMEDOUT:
        return POETC_TIMED_OUT;
    case -EINVAL:
        return POETC_OUT_OF_RANGE;
    default:
        return failed;
    }
}

static poetc_status read_sector(void *device, uint32_t block, uint8_t *data)
{
    const poetc_disk_store *const disk = device;
    return status_of(disk_access_read(disk->name, data, block, 1), POETC_READ_FAILED);
}

/* A block store does not write again what was written: it must be durable. */
static poetc_status write_sector(void *device, uint32_t block, const uint8_t *data)
{
    const poetc_disk_store *const disk = device;
    int result = disk_access_write(disk->name, data, block, 1);
    if (result == 0) {
        result = disk_access_ioctl(disk->name, DISK_IOCTL_CTRL_SYNC, NULL);
    }
    return status_of(result, POETC_WRITE_FAILED);
}

static const poetc_block_operations disk_operations = {
    .read_block = read_sector,
    .write_block = write_sector,
};

poetc_status poetc_disk_store_open(poetc_disk_store *disk, const char *name)
{
    uint32_t sector_bytes = 0;
    disk->name = name;
    poetc_block_store_init(&disk->blocks, &disk_operations, disk);
    if (disk_access_init(name) != 0 || disk_access_status(name) != DISK_STATUS_OK) {
        return POETC_NO_STORE;
    }
    if (disk_access_ioctl(name, DISK_IOCTL_GET_SECTOR_SIZE, &sector_bytes) != 0) {
        return POETC_READ_FAILED;
    }
    return sector_bytes == POETC_BLOCK_BYTES ? POETC_OK : POETC_NO_STORE;
}
