/* A board on the host: the console is standard input and output, the disk "SD" the file of the
 * environment variable DISK, which can be made to fail.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>
#include <zephyr/storage/disk_access.h>

const struct device host_console = {"console"};

int uart_poll_in(const struct device *dev, unsigned char *p_char)
{
    struct pollfd line = {0, POLLIN, 0};
    (void)dev;
    if (poll(&line, 1, 1000) < 0 || (line.revents & (POLLHUP | POLLERR)) != 0) {
        exit(0);
    }
    return (line.revents & POLLIN) != 0 && read(0, p_char, 1) == 1 ? 0 : -1;
}

void uart_poll_out(const struct device *dev, unsigned char out_char)
{
    (void)dev;
    if (write(1, &out_char, 1) != 1) {
        exit(2);
    }
}

int32_t k_msleep(int32_t ms)
{
    (void)ms;
    exit(3); /* the sample waits for a disk that is not there */
}

static FILE *disk;

/* Whether there is a disk of that name; the environment variable FAILS counts down to an error. */
static int find(const char *pdrv)
{
    static long left = -1;
    const char *path = getenv("DISK");
    const char *fails = getenv("FAILS");
    if (strcmp(pdrv, "SD") != 0 || path == NULL) {
        return -ENODEV;
    }
    if (disk == NULL) {
        disk = fopen(path, "r+b");
        left = fails == NULL ? -1 : strtol(fails, NULL, 10);
    }
    if (left >= 0 && left-- == 0) {
        return -ETIMEDOUT;
    }
    return disk == NULL ? -ENODEV : 0;
}

int disk_access_init(const char *pdrv)
{
    return find(pdrv);
}

int disk_access_status(const char *pdrv)
{
    return find(pdrv) == 0 ? DISK_STATUS_OK : DISK_STATUS_NOMEDIA;
}

int disk_access_read(const char *pdrv, uint8_t *data_buf, uint32_t start_sector,
                     uint32_t num_sector)
{
    const int found = find(pdrv);
    if (found != 0) {
        return found;
    }
    memset(data_buf, 0, 512u * num_sector);
    fseek(disk, 512L * start_sector, SEEK_SET);
    (void)fread(data_buf, 512, num_sector, disk);
    return ferror(disk) ? -EIO : 0;
}

int disk_access_write(const char *pdrv, const uint8_t *data_buf, uint32_t start_sector,
                      uint32_t num_sector)
{
    const int found = find(pdrv);
    if (found != 0) {
        return found;
    }
    fseek(disk, 512L * start_sector, SEEK_SET);
    return fwrite(data_buf, 512, num_sector, disk) == num_sector ? 0 : -EIO;
}

int disk_access_ioctl(const char *pdrv, uint8_t cmd, void *buff)
{
    const int found = find(pdrv);
    if (found != 0) {
        return found;
    }
    switch (cmd) {
    case DISK_IOCTL_GET_SECTOR_SIZE:
        *(uint32_t *)buff = 512;
        return 0;
    case DISK_IOCTL_CTRL_SYNC:
        return fflush(disk) == 0 ? 0 : -EIO;
    default:
        return -EINVAL;
    }
}
