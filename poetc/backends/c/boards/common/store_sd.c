/* The page store of a board on a memory card: the image begins at block 0 of the card. */
#include "board.h"
#include "sd_card.h"
#include "store_block.h"

#if POETC_BLOCK_BYTES != SD_BLOCK_BYTES
#error "cards have blocks of 512 bytes"
#endif

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
