/* The part of board.h that emulated boards share, through semihosting. In the directory in which the
 * emulator runs are
 *
 *     argN.bin   the bytes of argument N, row-major, little-endian, i1 as one byte
 *     outN.bin   the same of result N, written after the last step
 *
 * and its command line is the number of steps. Without argN.bin, argument N is zero, and a message
 * says so.
 */
#include "board.h"
#include "semihosting.h"

/* "arg12.bin"; the buffer has room for every number. */
static void file_name(char name[16], const char *kind, uint32_t number)
{
    char digits[10];
    uint32_t count = 0;
    uint32_t end = 0;
    for (; kind[end] != '\0'; ++end) {
        name[end] = kind[end];
    }
    do {
        digits[count++] = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number != 0);
    while (count > 0) {
        name[end++] = digits[--count];
    }
    for (const char *rest = ".bin"; *rest != '\0'; ++rest) {
        name[end++] = *rest;
    }
    name[end] = '\0';
}

uint32_t board_steps(void)
{
    char text[16];
    if (!semihosting_command_line(text, sizeof text)) {
        return 0;
    }
    uint32_t steps = 0;
    for (const char *digit = text; *digit != '\0'; ++digit) {
        if (*digit < '0' || *digit > '9' || steps > 99999999u) {
            return 0;
        }
        steps = steps * 10u + (uint32_t)(*digit - '0');
    }
    return steps;
}

bool board_read_argument(uint32_t i, void *data, uint32_t bytes)
{
    char name[16];
    file_name(name, "arg", i);
    const int32_t handle = semihosting_open(name, SEMIHOSTING_READ);
    if (handle < 0) {
        semihosting_print(name);
        semihosting_print(" is missing: zeros\n");
        for (uint32_t k = 0; k < bytes; ++k) {
            ((uint8_t *)data)[k] = 0;
        }
        return true;
    }
    const bool whole = semihosting_length(handle) == (int32_t)bytes;
    const bool good = whole && semihosting_read(handle, data, bytes) == bytes;
    return semihosting_close(handle) && good;
}

bool board_write_result(uint32_t i, const void *data, uint32_t bytes)
{
    char name[16];
    file_name(name, "out", i);
    const int32_t handle = semihosting_open(name, SEMIHOSTING_WRITE);
    if (handle < 0) {
        return false;
    }
    const bool good = semihosting_write(handle, data, bytes) == bytes;
    return semihosting_close(handle) && good;
}

void board_print(const char *text)
{
    semihosting_print(text);
}

void board_exit(int status)
{
    semihosting_exit(status);
}
