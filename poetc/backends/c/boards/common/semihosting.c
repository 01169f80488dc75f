#include "semihosting.h"

enum {
    SYS_OPEN = 0x01,
    SYS_CLOSE = 0x02,
    SYS_WRITE0 = 0x04,
    SYS_WRITE = 0x05,
    SYS_READ = 0x06,
    SYS_SEEK = 0x0a,
    SYS_FLEN = 0x0c,
    SYS_GET_CMDLINE = 0x15,
    SYS_EXIT_EXTENDED = 0x20
};

#define APPLICATION_EXIT 0x20026u

static int32_t call(uint32_t operation, const void *parameters)
{
    register uint32_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = parameters;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return (int32_t)r0;
}

int32_t semihosting_open(const char *path, semihosting_mode mode)
{
    uint32_t length = 0;
    while (path[length] != '\0') {
        ++length;
    }
    const uint32_t parameters[3] = {(uint32_t)(uintptr_t)path, (uint32_t)mode, length};
    return call(SYS_OPEN, parameters);
}

bool semihosting_close(int32_t handle)
{
    return call(SYS_CLOSE, &handle) == 0;
}

bool semihosting_seek(int32_t handle, uint32_t offset)
{
    const uint32_t parameters[2] = {(uint32_t)handle, offset};
    return call(SYS_SEEK, parameters) == 0;
}

/* These return what was left; more than `length` is an error. */
static uint32_t moved(uint32_t left, uint32_t length)
{
    return left > length ? 0 : length - left;
}

uint32_t semihosting_read(int32_t handle, void *data, uint32_t length)
{
    const uint32_t parameters[3] = {(uint32_t)handle, (uint32_t)(uintptr_t)data, length};
    return moved((uint32_t)call(SYS_READ, parameters), length);
}

uint32_t semihosting_write(int32_t handle, const void *data, uint32_t length)
{
    const uint32_t parameters[3] = {(uint32_t)handle, (uint32_t)(uintptr_t)data, length};
    return moved((uint32_t)call(SYS_WRITE, parameters), length);
}

int32_t semihosting_length(int32_t handle)
{
    return call(SYS_FLEN, &handle);
}

void semihosting_print(const char *text)
{
    (void)call(SYS_WRITE0, text);
}

bool semihosting_command_line(char *text, uint32_t size)
{
    const uint32_t parameters[2] = {(uint32_t)(uintptr_t)text, size};
    return call(SYS_GET_CMDLINE, parameters) == 0;
}

void semihosting_exit(int status)
{
    const uint32_t parameters[2] = {APPLICATION_EXIT, (uint32_t)status};
    (void)call(SYS_EXIT_EXTENDED, parameters);
}
