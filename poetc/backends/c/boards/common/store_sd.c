/* The page store of a board on a memory card: the image begins at block 0 of the card. */
#include "board.h"
#include "sd_card.h"
#include "store_block.h"

#if POETC_BLOCK_BYTES != SD_BLOCK_BYTES
#error "cards have blocks of 512 bytes"
#endif

static sd_card card;
static poetc_block_store blocks;

static poetc_status read_card(void *device, uint32_t block, uint8_t *data)
{
    return sd_card_read(device, block, data);
}

static poetc_status write_card(void *device, uint32_t block, const uint8_t *data)
{
    return sd_card_write(device, block, data);
}

static const poetc_block_operations card_operations = {
    .read_block = read_card,
    .write_block = write_card,
};

poetc_status board_open_store(poetc_store **store, bool keep)
{
    (void)keep; /* nothing is ever erased */
    poetc_block_store_init(&blocks, &card_operations, &card);
    *store = &blocks.store;
    return sd_card_open(&card);
}

poetc_status board_close_store(void)
{
    return poetc_sync(&blocks.store);
}
