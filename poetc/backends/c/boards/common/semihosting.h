/* Files, messages and the end of the program on the machine that emulates or debugs the board, by
 * Arm's semihosting (Semihosting for AArch32 and AArch64, 2.0). Without an emulator or a debugger the
 * first call faults.
 */
#ifndef SEMIHOSTING_H
#define SEMIHOSTING_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    SEMIHOSTING_READ = 1,  /* "rb" */
    SEMIHOSTING_KEEP = 3,  /* "r+b" */
    SEMIHOSTING_WRITE = 5, /* "wb" */
    SEMIHOSTING_FRESH = 7  /* "w+b" */
} semihosting_mode;

/* A handle, or a negative number. */
int32_t semihosting_open(const char *path, semihosting_mode mode);
bool semihosting_close(int32_t handle);
bool semihosting_seek(int32_t handle, uint32_t offset);
/* The bytes that were moved. */
uint32_t semihosting_read(int32_t handle, void *data, uint32_t length);
uint32_t semihosting_write(int32_t handle, const void *data, uint32_t length);
/* The length of a file, or a negative number. */
int32_t semihosting_length(int32_t handle);
void semihosting_print(const char *text);
/* The command line, ended by a zero byte; false if it is longer than `size` - 1. */
bool semihosting_command_line(char *text, uint32_t size);
void semihosting_exit(int status);

#endif
