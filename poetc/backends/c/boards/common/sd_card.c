#include "sd_card.h"

enum {
    GO_IDLE_STATE = 0,
    SEND_IF_COND = 8,
    SEND_STATUS = 13,
    SET_BLOCKLEN = 16,
    READ_SINGLE_BLOCK = 17,
    WRITE_BLOCK = 24,
    SD_SEND_OP_COND = 41, /* after APP_CMD */
    APP_CMD = 55,
    READ_OCR = 58,
    CRC_ON_OFF = 59
};

/* Bits of the answer R1. */
enum { IDLE = 0x01, ILLEGAL = 0x04, BAD_CRC = 0x08, OUT_OF_RANGE = 0x60, NO_ANSWER = 0x80 };

#define START_TOKEN 0xfeu
#define HIGH_CAPACITY 0x40000000u /* the host knows it (ACMD41), the card has it (OCR) */
#define CHECK_PATTERN 0x1aau      /* 2.7 to 3.6 V, and a byte that comes back */

/* Greatest times in milliseconds: 1 s for initialisation, 100 ms for a read, 500 ms for a write
 * (SDXC), with a margin.
 */
#define START_MS 1500u
#define READ_MS 150u
#define WRITE_MS 600u
#define TRIES 3

static uint8_t crc7(uint8_t crc, uint8_t byte)
{
    for (int bit = 0; bit < 8; ++bit) {
        crc = (uint8_t)(crc << 1);
        if (((byte ^ crc) & 0x80u) != 0) {
            crc ^= 0x09u;
        }
        byte = (uint8_t)(byte << 1);
    }
    return crc & 0x7fu;
}

/* CRC-16 with the polynomial x^16 + x^12 + x^5 + 1, eight bits at once. */
static uint16_t crc16(uint16_t crc, uint8_t byte)
{
    uint32_t x = ((uint32_t)crc >> 8) ^ byte;
    x ^= x >> 4;
    return (uint16_t)(((uint32_t)crc << 8) ^ (x << 12) ^ (x << 5) ^ x);
}

/* A bus that fails reads as ones, on which every wait ends. */
static uint8_t receive(void)
{
    uint8_t byte = 0xffu;
    return sd_spi_exchange(0xffu, &byte) ? byte : 0xffu;
}

static bool send(uint8_t byte)
{
    uint8_t ignored;
    return sd_spi_exchange(byte, &ignored);
}

/* Waits until the card is not busy; it holds the line low while it is. */
static bool wait_ready(const sd_card *card, uint32_t time_ms)
{
    for (uint32_t left = time_ms * card->bytes_per_ms; left > 0; --left) {
        if (receive() == 0xffu) {
            return true;
        }
    }
    return false;
}

/* The card lets go of the line eight clocks after it is deselected. */
static void release(void)
{
    sd_spi_select(false);
    (void)receive();
}

/* Sends a command and returns the answer R1. The card stays selected. */
static uint8_t command(const sd_card *card, uint8_t index, uint32_t argument)
{
    const uint8_t frame[5] = {(uint8_t)(0x40u | index), (uint8_t)(argument >> 24),
                              (uint8_t)((argument >> 16) & 0xffu),
                              (uint8_t)((argument >> 8) & 0xffu), (uint8_t)(argument & 0xffu)};
    uint8_t crc = 0;
    sd_spi_select(true);
    /* After power-on the line means nothing yet. */
    if (!wait_ready(card, WRITE_MS) && index != GO_IDLE_STATE) {
        return NO_ANSWER;
    }
    for (uint32_t i = 0; i < sizeof frame; ++i) {
        crc = crc7(crc, frame[i]);
        if (!send(frame[i])) {
            return NO_ANSWER;
        }
    }
    if (!send((uint8_t)((uint8_t)(crc << 1) | 1u))) {
        return NO_ANSWER;
    }
    for (int i = 0; i < 10; ++i) {
        const uint8_t answer = receive();
        if ((answer & NO_ANSWER) == 0) {
            return answer;
        }
    }
    return NO_ANSWER;
}

static uint32_t receive_u32(void)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i) {
        value = (value << 8) | receive();
    }
    return value;
}

/* A command that answers R1 only, repeated if the card received it with errors. */
static uint8_t simple_command(const sd_card *card, uint8_t index, uint32_t argument)
{
    uint8_t answer = NO_ANSWER;
    for (int i = 0; i < TRIES; ++i) {
        answer = command(card, index, argument);
        release();
        if ((answer & BAD_CRC) == 0 || answer == NO_ANSWER) {
            break;
        }
    }
    return answer;
}

static bool reset_card(const sd_card *card)
{
    for (int i = 0; i < 10; ++i) {
        const uint8_t answer = command(card, GO_IDLE_STATE, 0);
        release();
        if (answer == IDLE) {
            return true;
        }
    }
    return false;
}

/* Leaves idle state: what takes the card most time. */
static bool start_card(const sd_card *card, bool second_version)
{
    /* The two commands and their answers take at least 20 bytes. */
    for (uint32_t left = START_MS * card->bytes_per_ms / 20u + 1u; left > 0; --left) {
        if ((simple_command(card, APP_CMD, 0) & ~(uint32_t)IDLE) != 0) {
            return false;
        }
        const uint8_t answer
            = simple_command(card, SD_SEND_OP_COND, second_version ? HIGH_CAPACITY : 0);
        if (answer == 0) {
            return true;
        }
        if (answer != IDLE) {
            return false;
        }
    }
    return false;
}

static poetc_status open_card(sd_card *card)
{
    card->by_blocks = false;
    card->bytes_per_ms = sd_spi_start(false);
    sd_spi_select(false);
    for (int i = 0; i < 10; ++i) { /* at least 74 clocks */
        (void)receive();
    }
    if (!reset_card(card)) {
        return POETC_NO_STORE;
    }
    const uint8_t version = command(card, SEND_IF_COND, CHECK_PATTERN);
    const uint32_t echo = receive_u32();
    release();
    const bool second_version = (version & ~(uint32_t)IDLE) == 0;
    if (second_version ? (echo & 0xfffu) != CHECK_PATTERN : (version & ILLEGAL) == 0) {
        return POETC_READ_FAILED;
    }
    if ((simple_command(card, CRC_ON_OFF, 1) & ~(uint32_t)IDLE) != 0) {
        return POETC_READ_FAILED;
    }
    if (!start_card(card, second_version)) {
        return POETC_READ_FAILED;
    }
    if (second_version) {
        const uint8_t answer = command(card, READ_OCR, 0);
        card->by_blocks = (receive_u32() & HIGH_CAPACITY) != 0;
        release();
        if ((answer & ~(uint32_t)IDLE) != 0) {
            return POETC_READ_FAILED;
        }
    }
    if (!card->by_blocks
        && (simple_command(card, SET_BLOCKLEN, SD_BLOCK_BYTES) & ~(uint32_t)IDLE) != 0) {
        return POETC_READ_FAILED;
    }
    card->bytes_per_ms = sd_spi_start(true);
    return POETC_OK;
}

poetc_status sd_card_open(sd_card *card)
{
    const poetc_status status = open_card(card);
    release();
    return status;
}

/* The address of a block; false: a card that counts bytes does not reach it. */
static bool address_of(const sd_card *card, uint32_t block, uint32_t *address)
{
    *address = card->by_blocks ? block : block * SD_BLOCK_BYTES;
    return card->by_blocks || block <= UINT32_MAX / SD_BLOCK_BYTES;
}

/* What an answer to a read or write means, if it is not good. */
static poetc_status refusal(uint8_t answer, poetc_status failed)
{
    if (answer == NO_ANSWER) {
        return POETC_TIMED_OUT;
    }
    return (answer & OUT_OF_RANGE) != 0 ? POETC_OUT_OF_RANGE : failed;
}

/* *again: a CRC says that the bus is to blame. */
static poetc_status try_read(const sd_card *card, uint32_t address, uint8_t *data, bool *again)
{
    const uint8_t answer = command(card, READ_SINGLE_BLOCK, address);
    *again = answer != NO_ANSWER && (answer & BAD_CRC) != 0;
    if ((answer & ~(uint32_t)IDLE) != 0) {
        return refusal(answer, POETC_READ_FAILED);
    }
    uint8_t token = 0xffu;
    for (uint32_t left = READ_MS * card->bytes_per_ms; left > 0 && token == 0xffu; --left) {
        if (!sd_spi_exchange(0xffu, &token)) {
            return POETC_READ_FAILED;
        }
    }
    if (token != START_TOKEN) {
        /* An error token: bit 3 out of range, bit 2 the card's own code could not correct it. */
        if ((token & 0xf0u) != 0) {
            return token == 0xffu ? POETC_TIMED_OUT : POETC_READ_FAILED;
        }
        if ((token & 8u) != 0) {
            return POETC_OUT_OF_RANGE;
        }
        return (token & 4u) != 0 ? POETC_CORRUPT : POETC_READ_FAILED;
    }
    uint16_t crc = 0;
    for (uint32_t i = 0; i < SD_BLOCK_BYTES; ++i) {
        data[i] = receive();
        crc = crc16(crc, data[i]);
    }
    const uint32_t high = receive();
    const bool good = (high << 8 | receive()) == crc;
    /* A line that is stuck at zero has a good CRC, but does not go high afterwards. */
    if (!good || receive() != 0xffu) {
        *again = true;
        return POETC_READ_FAILED;
    }
    return POETC_OK;
}

poetc_status sd_card_read(void *device, uint32_t block, uint8_t *data)
{
    const sd_card *const card = device;
    uint32_t address;
    if (!address_of(card, block, &address)) {
        return POETC_OUT_OF_RANGE;
    }
    poetc_status status = POETC_READ_FAILED;
    bool again = true;
    for (int i = 0; i < TRIES && again; ++i) {
        status = try_read(card, address, data, &again);
        release();
    }
    return status;
}

static poetc_status try_write(const sd_card *card, uint32_t address, const uint8_t *data,
                               bool *again)
{
    const uint8_t answer = command(card, WRITE_BLOCK, address);
    *again = answer != NO_ANSWER && (answer & BAD_CRC) != 0;
    if ((answer & ~(uint32_t)IDLE) != 0) {
        return refusal(answer, POETC_WRITE_FAILED);
    }
    uint16_t crc = 0;
    bool sent = send(0xffu) && send(START_TOKEN);
    for (uint32_t i = 0; i < SD_BLOCK_BYTES && sent; ++i) {
        sent = send(data[i]);
        crc = crc16(crc, data[i]);
    }
    sent = sent && send((uint8_t)(crc >> 8)) && send((uint8_t)(crc & 0xffu));
    if (!sent) {
        return POETC_WRITE_FAILED;
    }
    const uint8_t response = receive() & 0x1fu;
    if (response != 0x05u) {
        *again = response == 0x0bu;
        /* The card may be busy all the same. */
        (void)wait_ready(card, WRITE_MS);
        return POETC_WRITE_FAILED;
    }
    return wait_ready(card, WRITE_MS) ? POETC_OK : POETC_TIMED_OUT;
}

/* Whether the card has programmed what it accepted. */
static poetc_status written(const sd_card *card)
{
    for (int i = 0; i < TRIES; ++i) {
        const uint8_t answer = command(card, SEND_STATUS, 0);
        const uint8_t errors = receive();
        release();
        if (answer == NO_ANSWER) {
            return POETC_TIMED_OUT;
        }
        if ((answer & BAD_CRC) == 0) {
            const bool good = (answer & ~(uint32_t)IDLE) == 0 && errors == 0;
            return good ? POETC_OK : POETC_WRITE_FAILED;
        }
    }
    return POETC_WRITE_FAILED;
}

poetc_status sd_card_write(void *device, uint32_t block, const uint8_t *data)
{
    const sd_card *const card = device;
    uint32_t address;
    if (!address_of(card, block, &address)) {
        return POETC_OUT_OF_RANGE;
    }
    poetc_status status = POETC_WRITE_FAILED;
    bool again = true;
    for (int i = 0; i < TRIES && again; ++i) {
        status = try_write(card, address, data, &again);
        release();
    }
    return status == POETC_OK ? written(card) : status;
}

const poetc_block_operations sd_card_operations = {
    .read_block = sd_card_read,
    .write_block = sd_card_write,
};
