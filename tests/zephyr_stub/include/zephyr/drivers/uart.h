#ifndef ZEPHYR_UART_H
#define ZEPHYR_UART_H

#include <zephyr/device.h>

int uart_poll_in(const struct device *dev, unsigned char *p_char);
void uart_poll_out(const struct device *dev, unsigned char out_char);

#endif
