#ifndef ZEPHYR_DISK_ACCESS_H
#define ZEPHYR_DISK_ACCESS_H

#include <stddef.h>
#include <stdint.h>

#define DISK_IOCTL_GET_SECTOR_COUNT 1
#define DISK_IOCTL_GET_SECTOR_SIZE 2
#define DISK_IOCTL_CTRL_SYNC 5
#define DISK_STATUS_OK 0x00
#define DISK_STATUS_UNINIT 0x01
#define DISK_STATUS_NOMEDIA 0x02

int disk_access_init(const char *pdrv);
int disk_access_status(const char *pdrv);
int disk_access_read(const char *pdrv, uint8_t *data_buf, uint32_t start_sector,
                     uint32_t num_sector);
int disk_access_write(const char *pdrv, const uint8_t *data_buf, uint32_t start_sector,
                      uint32_t num_sector);
int disk_access_ioctl(const char *pdrv, uint8_t cmd, void *buff);

#endif
