/* A board of your own. Copy this file to board.c and fill in the functions; the Makefile takes board.c
 * where there is one, and poetc never writes it. Everything here compiles and does nothing.
 *
 * BOARD_STORAGE chooses the auxiliary storage: a memory card over SPI, FRAM (or external RAM,
 * EEPROM: anything that writes single bytes), or flash that is erased in sectors (QSPI, SPI NOR).
 */
#include <stddef.h>

#include "board.h"
#include "store_block.h"

#define BOARD_CARD 1
#define BOARD_FRAM 2
#define BOARD_FLASH 3

#ifndef BOARD_STORAGE
#define BOARD_STORAGE BOARD_CARD
#endif

/* Clocks, pins, serial port. RAM is set up already, and the FPU is on. Interrupts that you enable need
 * handlers (start.c) and stack: give --stack.
 */
void board_init(void)
{
}

uint32_t board_steps(void)
{
    return 1;
}

/* The data of argument `i`: a parameter's initial value (once), or an input (before each step), for
 * example from a sensor, or from a table in flash. The order of arguments is in model.h.
 */
bool board_read_argument(uint32_t i, void *data, uint32_t bytes)
{
    (void)i;
    (void)data;
    (void)bytes;
    return false;
}

bool board_write_result(uint32_t i, const void *data, uint32_t bytes)
{
    (void)i;
    (void)data;
    (void)bytes;
    return true;
}

/* For example, to the serial port. */
void board_print(const char *text)
{
    (void)text;
}

/* For poetc profile only. Cortex-M3, M4 and M7 count cycles; with others, read a timer. */
#if defined(__ARM_ARCH_7M__) || defined(__ARM_ARCH_7EM__)
#define TRACE_CONTROL (*(volatile uint32_t *)0xe000edfcu)
#define CYCLE_CONTROL (*(volatile uint32_t *)0xe0001000u)
#define CYCLE_COUNT (*(volatile uint32_t *)0xe0001004u)

uint32_t board_ticks(void)
{
    TRACE_CONTROL |= 1u << 24;
    CYCLE_CONTROL |= 1u;
    return CYCLE_COUNT;
}
#else
uint32_t board_ticks(void)
{
    return 0;
}
#endif

uint32_t board_ticks_per_second(void)
{
    return 0; /* that of the processor in hertz, for example 64000000u */
}

/* The end of the program. */
void board_exit(int status)
{
    (void)status;
    for (;;) {
    }
}

#if BOARD_STORAGE == BOARD_CARD

/* A memory card: sd_card.c does everything but move bytes on the bus. */
#include "sd_card.h"

uint32_t sd_spi_start(bool fast)
{
    /* Set the clock of the bus: 100 to 400 kHz, or up to 25 MHz. Return its bytes in a millisecond:
     * 375 kHz are 46, 6 MHz are 750.
     */
    return fast ? 750u : 46u;
}

void sd_spi_select(bool selected)
{
    (void)selected; /* chip select: low if selected */
}

bool sd_spi_exchange(uint8_t out, uint8_t *in)
{
    (void)out;
    *in = 0xffu;
    return false; /* true if the byte was sent */
}

static sd_card card;
static poetc_block_store blocks;

poetc_status board_open_store(poetc_store **store, bool keep)
{
    (void)keep; /* nothing is ever erased */
    poetc_block_store_init(&blocks, &sd_card_operations, &card);
    *store = &blocks.store;
    return sd_card_open(&card);
}

poetc_status board_close_store(void)
{
    return poetc_sync(&blocks.store);
}

#elif BOARD_STORAGE == BOARD_FRAM

/* Storage that writes single bytes: no buffer, 4 bytes of RAM. What is written is durable when
 * `write_storage` returns; otherwise provide `sync`.
 */
static poetc_status read_storage(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                 uint32_t *done)
{
    (void)store;
    (void)offset;
    (void)data;
    (void)length;
    *done = 0; /* bytes that were read */
    return POETC_READ_FAILED;
}

static poetc_status write_storage(poetc_store *store, uint32_t offset, const void *data,
                                  uint32_t length, uint32_t *done)
{
    (void)store;
    (void)offset;
    (void)data;
    (void)length;
    *done = 0;
    return POETC_WRITE_FAILED;
}

static const poetc_store_operations storage_operations = {
    .read = read_storage,
    .write = write_storage,
    .start_read = NULL,
    .start_write = NULL,
    .wait = NULL,
    .sync = NULL,
};

static poetc_store storage;

poetc_status board_open_store(poetc_store **store, bool keep)
{
    (void)keep;
    storage.operations = &storage_operations;
    *store = &storage;
    return POETC_OK;
}

poetc_status board_close_store(void)
{
    return POETC_OK;
}

#else

/* Flash that is erased in sectors. Build with CFLAGS='-O2 -DPOETC_BLOCK_BYTES=4096', the size of a
 * sector; give poetc a device file with write_unit_bytes = 4096, and --static for the buffer. Every
 * write of a sector erases it: choose pages and parameters accordingly, or use FRAM.
 */
static poetc_status read_sector(void *device, uint32_t block, uint8_t *data)
{
    (void)device;
    (void)block;
    (void)data; /* POETC_BLOCK_BYTES bytes from block * POETC_BLOCK_BYTES */
    return POETC_READ_FAILED;
}

static poetc_status write_sector(void *device, uint32_t block, const uint8_t *data)
{
    (void)device;
    (void)block;
    (void)data; /* erase the sector, program it, wait for the end of both */
    return POETC_WRITE_FAILED;
}

static const poetc_block_operations sector_operations = {
    .read_block = read_sector,
    .write_block = write_sector,
};

static poetc_block_store sectors;

poetc_status board_open_store(poetc_store **store, bool keep)
{
    (void)keep;
    poetc_block_store_init(&sectors, &sector_operations, NULL);
    *store = &sectors.store;
    return POETC_OK;
}

poetc_status board_close_store(void)
{
    return poetc_sync(&sectors.store);
}

#endif
