/* A memory card in SPI mode on the host, for tests of the driver: SD Physical Layer Simplified
 * Specification, chapter 7, with faults. It implements the three functions that the driver asks of a
 * board.
 */
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "sd_card.h"
#include "sd_card_model.h"

enum { BLOCKS = CARD_BLOCKS };
#define NONE UINT32_MAX

settings card;

static bool selected, idle, app, check, is_fast;
static uint8_t frame[6], queue[1200], block[515];
static uint32_t frame_bytes, queued, sent, received, target, busy;
static uint32_t damaged = NONE; /* a block */
static enum { COMMANDS, TOKEN, DATA } state;

/* Bit by bit, unlike the driver. */
static uint32_t crc(const uint8_t *data, uint32_t length, uint32_t polynomial, uint32_t width)
{
    uint32_t value = 0;
    for (uint32_t i = 0; i < length * 8u; ++i) {
        const uint32_t bit = (uint32_t)(data[i / 8u] >> (7u - i % 8u)) & 1u;
        const uint32_t top = (value >> (width - 1u)) & 1u;
        value = (value << 1) ^ ((bit ^ top) != 0 ? polynomial : 0);
    }
    return value & ((1u << width) - 1u);
}

void power_on(void)
{
    selected = app = check = is_fast = false;
    idle = true;
    frame_bytes = queued = sent = received = busy = 0;
    state = COMMANDS;
    card.bytes = card.commands = card.fast = 0;
    damaged = NONE;
}

/* Whether the card has that fault now, which it does not have again. */
static bool fails(uint32_t fault)
{
    const bool now = card.fault == fault && card.bytes > card.fault_byte;
    if (now) {
        card.fault = NO_FAULT;
    }
    return now;
}

static void put(uint32_t byte)
{
    queue[queued++] = (uint8_t)byte;
}

static void answer(uint32_t r1)
{
    queued = sent = 0;
    for (uint32_t i = 0; i < card.delay; ++i) {
        put(0xff);
    }
    put(r1 | (idle ? 1u : 0u));
}

static bool find(uint32_t argument)
{
    target = card.kind == HIGH ? argument : argument / 512u;
    const bool aligned = card.kind == HIGH || argument % 512u == 0;
    if (!aligned || target >= BLOCKS || idle) {
        answer(target >= BLOCKS ? 0x40u : 0x20u);
        return false;
    }
    answer(0);
    return true;
}

static void read_block(void)
{
    for (uint32_t i = 0; i < card.delay; ++i) {
        put(0xff);
    }
    if (fails(DAMAGE)) {
        damaged = target;
    }
    if (card.error_token != 0 || target == damaged || fails(ERROR_TOKEN)) {
        put(card.error_token != 0 ? card.error_token : target == damaged ? 4u : card.fault_bit);
        return;
    }
    put(0xfe);
    for (uint32_t i = 0; i < 512u; ++i) {
        put(card.memory[target][i]);
    }
    const uint32_t sum = crc(card.memory[target], 512, 0x1021, 16);
    put(sum >> 8);
    put(sum & 0xffu);
}

static void command(void)
{
    const uint32_t index = frame[0] & 0x3fu;
    const uint32_t argument = (uint32_t)frame[1] << 24 | (uint32_t)frame[2] << 16
                              | (uint32_t)frame[3] << 8 | frame[4];
    const bool good = frame[5] == ((crc(frame, 5, 0x09, 7) << 1) | 1u);
    const bool application = app;
    app = false;
    if (card.commands < LOGGED_COMMANDS) {
        card.log[card.commands].byte = card.bytes - (uint32_t)sizeof frame;
        card.log[card.commands].index = index;
        card.log[card.commands].argument = argument;
    }
    ++card.commands;
    if (!good && (check || index == 0 || index == 8)) {
        answer(0x08);
        return;
    }
    switch (index) {
    case 0:
        idle = true;
        check = false;
        answer(0);
        break;
    case 8:
        answer(card.kind == FIRST_VERSION ? 0x04 : 0);
        if (card.kind != FIRST_VERSION) {
            put(0);
            put(0);
            put(1);
            put(argument & 0xffu);
        }
        break;
    case 59:
        check = (argument & 1u) != 0;
        answer(0);
        break;
    case 55:
        app = true;
        answer(0);
        break;
    case 41:
        if (!application) {
            answer(0x04);
            break;
        }
        if (card.start > 0) {
            --card.start;
        } else if (card.kind != HIGH || (argument & 0x40000000u) != 0) {
            idle = false;
        }
        answer(0);
        break;
    case 58:
        answer(0);
        put(card.kind == HIGH ? 0xc0 : 0x80);
        put(0xff);
        put(0x80);
        put(0);
        break;
    case 16:
        answer(argument == 512u ? 0 : 0x40u);
        break;
    case 13:
        answer(0);
        put(fails(STATUS) ? card.fault_bit : card.status);
        break;
    case 17:
        if (find(argument)) {
            read_block();
        }
        break;
    case 24:
        if (find(argument)) {
            state = TOKEN;
        }
        break;
    default:
        answer(0x04);
    }
}

static void data_received(void)
{
    state = COMMANDS;
    queued = sent = 0;
    const uint32_t sum = (uint32_t)block[512] << 8 | block[513];
    if (check && sum != crc(block, 512, 0x1021, 16)) {
        put(0xebu);
    } else {
        const uint32_t response = fails(RESPONSE) ? card.fault_bit : card.response;
        if (response == 0x05u) {
            memcpy(card.memory[target], block, 512);
            damaged = target == damaged ? NONE : damaged;
        }
        put(0xe0u | response);
    }
    busy = card.busy;
}

static void take(uint8_t byte)
{
    if (state == TOKEN) {
        received = 0;
        state = byte == 0xfeu ? DATA : TOKEN;
    } else if (state == DATA) {
        block[received++] = byte;
        if (received == 514u) {
            data_received();
        }
    } else if (frame_bytes > 0 || (byte & 0xc0u) == 0x40u) {
        frame[frame_bytes++] = byte;
        if (frame_bytes == 6u) {
            frame_bytes = 0;
            command();
        }
    }
}

uint32_t sd_spi_start(bool fast)
{
    is_fast = fast;
    return fast ? CARD_SPEED : (CARD_SPEED + 4) / 5;
}

void sd_spi_select(bool select)
{
    selected = select;
    if (!select) {
        frame_bytes = queued = sent = 0;
        state = COMMANDS;
    }
}

bool sd_spi_exchange(uint8_t out, uint8_t *in)
{
    const uint32_t byte = card.bytes++;
    const bool reached = byte >= card.fault_byte;
    const bool now = byte == card.fault_byte;
    card.fast += is_fast;
    if ((card.fault == BUS_DEAD && reached) || (card.fault == BUS_ONCE && now)) {
        return false;
    }
    uint8_t reply = 0xffu;
    if (selected && card.kind != NO_CARD) {
        const bool answering = sent < queued;
        if (answering) {
            reply = queue[sent++];
        } else if (busy > 0) {
            --busy;
            reply = 0;
        }
        if (card.fault == FLIP_COMMAND && now) {
            out ^= (uint8_t)(1u << card.fault_bit);
        }
        if (!answering) {
            take(out);
        }
        if (card.fault == FLIP_REPLY && now) {
            reply ^= (uint8_t)(1u << card.fault_bit);
        }
        if (card.fault == BUSY && reached) {
            reply = 0;
        }
    }
    *in = card.fault == MUTE && reached ? 0xffu : reply;
    return true;
}
