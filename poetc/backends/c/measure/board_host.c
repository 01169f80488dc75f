/* What measure.c needs from a board, on a host: POSIX clock, standard output, the store in memory. */
#define _POSIX_C_SOURCE 199309L

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "board.h"
#include "measured.h"
#include "store_memory.h"

#define NS_PER_TICK 4u

static uint8_t content[MEASURED_STORAGE_BYTES];
static poetc_memory_store memory;

void board_init(void)
{
}

uint32_t board_ticks(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    /* Wraps after 17 s, longer than any kernel takes. */
    const uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return (uint32_t)(ns / NS_PER_TICK);
}

uint32_t board_ticks_per_second(void)
{
    return 1000000000u / NS_PER_TICK;
}

poetc_status board_open_store(poetc_store **store, bool keep)
{
    (void)keep;
    poetc_memory_store_init(&memory, content, sizeof content);
    *store = &memory.store;
    return POETC_OK;
}

poetc_status board_close_store(void)
{
    return POETC_OK;
}

void board_print(const char *text)
{
    (void)fputs(text, stdout);
}

void board_exit(int status)
{
    exit(status);
}
