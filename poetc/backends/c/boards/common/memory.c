/* The four functions that compilers may call without being asked to, for programs without a C
 * library. Compiled with -fno-tree-loop-distribute-patterns, or they would call themselves.
 */
#include <stddef.h>
#include <stdint.h>

void *memcpy(void *restrict to, const void *restrict from, size_t length);
void *memmove(void *to, const void *from, size_t length);
void *memset(void *to, int value, size_t length);
int memcmp(const void *a, const void *b, size_t length);

/* Words may alias anything, as these functions do. */
typedef uint32_t __attribute__((may_alias)) word;

static int aligned(const void *a, const void *b)
{
    return (((uintptr_t)a | (uintptr_t)b) & 3u) == 0;
}

void *memcpy(void *restrict to, const void *restrict from, size_t length)
{
    uint8_t *target = to;
    const uint8_t *source = from;
    if (aligned(to, from)) {
        for (; length >= 4; length -= 4, target += 4, source += 4) {
            *(word *)(void *)target = *(const word *)(const void *)source;
        }
    }
    for (; length > 0; --length) {
        *target++ = *source++;
    }
    return to;
}

void *memmove(void *to, const void *from, size_t length)
{
    uint8_t *target = to;
    const uint8_t *source = from;
    if ((uintptr_t)target - (uintptr_t)source >= length) {
        return memcpy(to, from, length);
    }
    for (; length > 0; --length) {
        target[length - 1] = source[length - 1];
    }
    return to;
}

void *memset(void *to, int value, size_t length)
{
    uint8_t *target = to;
    const uint8_t byte = (uint8_t)value;
    if (aligned(to, to)) {
        const uint32_t four = byte * 0x01010101u;
        for (; length >= 4; length -= 4, target += 4) {
            *(word *)(void *)target = four;
        }
    }
    for (; length > 0; --length) {
        *target++ = byte;
    }
    return to;
}

int memcmp(const void *a, const void *b, size_t length)
{
    const uint8_t *left = a;
    const uint8_t *right = b;
    for (; length > 0; --length, ++left, ++right) {
        if (*left != *right) {
            return *left < *right ? -1 : 1;
        }
    }
    return 0;
}
