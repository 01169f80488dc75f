/* Trains over the serial line of the console: serial_steps.h says how, poetc's docs/layouts.md what to
 * run at the other end. In a program of your own, fill in arguments from sensors, and call model_step.
 */
#include <zephyr/device.h>
#include <zephyr/drivers/uart.h>
#include <zephyr/kernel.h>

#include "model.h"
#include "serial_steps.h"
#if MODEL_STORAGE_BYTES > 0
#include "store_disk.h"
#endif

static const struct device *const line = DEVICE_DT_GET(DT_CHOSEN(zephyr_console));

void serial_steps_receive(void *data, uint32_t bytes)
{
    unsigned char *next = data;
    while (bytes > 0) {
        if (uart_poll_in(line, next) == 0) {
            ++next;
            --bytes;
        }
    }
}

void serial_steps_send(const void *data, uint32_t bytes)
{
    const unsigned char *next = data;
    for (; bytes > 0; --bytes) {
        uart_poll_out(line, *next++);
    }
}

static poetc_store *open_store(void)
{
#if MODEL_STORAGE_BYTES > 0
    static poetc_disk_store disk;
    poetc_status status = poetc_disk_store_open(&disk, CONFIG_POETC_MODEL_DISK_NAME);
    while (status != POETC_OK) {
        serial_steps_print(poetc_status_text(status));
        k_msleep(1000);
        status = poetc_disk_store_open(&disk, CONFIG_POETC_MODEL_DISK_NAME);
    }
    return &disk.blocks.store;
#else
    return NULL;
#endif
}

int main(void)
{
    poetc_store *const store = open_store();
    for (;;) {
        serial_steps_command(store);
    }
    return 0;
}
