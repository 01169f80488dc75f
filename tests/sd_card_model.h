/* The simulated memory card of sd_card_model.c: what tests set, and what they may ask. */
#ifndef SD_CARD_MODEL_H
#define SD_CARD_MODEL_H

#include <stdint.h>

#ifndef CARD_BLOCKS
#define CARD_BLOCKS 16
#endif
#ifndef CARD_SPEED
#define CARD_SPEED 100 /* of the bus, in bytes in a millisecond: how long waits are */
#endif
#define LOGGED_COMMANDS 4096

/* NO_FAULT to BUSY are faults of the bus, from `fault_byte` on or, the FLIPs and BUS_ONCE, only then.
 * The others are of the card, the next time that it happens: an error token instead of data, a
 * response to written data, a second byte of SEND_STATUS, all of which `fault_bit` is; or the block
 * that is read cannot be read any more, until it has been written.
 */
enum fault {
    NO_FAULT,
    FLIP_REPLY,
    FLIP_COMMAND,
    BUS_DEAD,
    BUS_ONCE,
    MUTE,
    BUSY,
    ERROR_TOKEN,
    RESPONSE,
    STATUS,
    DAMAGE
};
enum card_kind { NO_CARD, FIRST_VERSION, STANDARD, HIGH };

typedef struct {
    uint8_t memory[CARD_BLOCKS][512];
    uint32_t kind;       /* of card */
    uint32_t start;      /* how often it is asked to start before it does */
    uint32_t busy;       /* bytes for which it is busy after a write */
    uint32_t delay;      /* bytes before an answer, and before data */
    uint32_t fault;      /* which */
    uint32_t fault_byte; /* when, in bytes on the bus */
    uint32_t fault_bit;
    uint32_t error_token; /* instead of data; 0: none */
    uint32_t response;    /* to written data, if it arrived well */
    uint32_t status;      /* second byte of SEND_STATUS */
    uint32_t bytes;       /* so far */
    uint32_t commands;
    uint32_t fast; /* bytes that were sent at the fast clock */
    struct {
        uint32_t byte, index, argument; /* when it began, and what it is */
    } log[LOGGED_COMMANDS];
} settings;

extern settings card;

/* Takes the card out and in again: it is not initialised. */
void power_on(void);

#endif
