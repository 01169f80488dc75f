/* SD cards (standard, high and extended capacity) over SPI: SD Physical Layer Simplified
 * Specification, chapter 7. The board provides the three functions at the end.
 *
 * Every command has a CRC-7 and every block a CRC-16, which the card is told to check and which are
 * checked here. A transfer that a CRC shows to be bad is repeated, twice at most. Every wait ends:
 * the time is counted in bytes on the bus.
 */
#ifndef SD_CARD_H
#define SD_CARD_H

#include <stdbool.h>
#include <stdint.h>

#include "store_block.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SD_BLOCK_BYTES 512

typedef struct {
    uint32_t bytes_per_ms; /* on the bus, at its present speed */
    bool by_blocks;        /* addresses are blocks, not bytes: SDHC and SDXC */
} sd_card;

/* Finds and initialises the card; also after it was exchanged. POETC_NO_STORE: there is none. */
poetc_status sd_card_open(sd_card *card);

/* A block of SD_BLOCK_BYTES; the device is an `sd_card`. POETC_CORRUPT: the card could not correct
 * what it read. POETC_TIMED_OUT: it does not answer, or is busy for too long. POETC_OK from a write
 * says that the card has programmed the block.
 */
poetc_status sd_card_read(void *device, uint32_t block, uint8_t *data);
poetc_status sd_card_write(void *device, uint32_t block, const uint8_t *data);

/* Both, for a page store on a card (store_block.h). */
extern const poetc_block_operations sd_card_operations;

/* Of the board: pins and clock of the bus (mode 0, most significant bit first), at 100 to 400 kHz or,
 * `fast`, at up to 25 MHz. Returns the bytes that it moves in a millisecond, at least 1.
 */
uint32_t sd_spi_start(bool fast);
/* Drives the card's chip select low, or high. */
void sd_spi_select(bool selected);
/* Sends a byte and sets *in to the one that came meanwhile. False: the bus does not work. */
bool sd_spi_exchange(uint8_t out, uint8_t *in);

#ifdef __cplusplus
}
#endif

#endif
