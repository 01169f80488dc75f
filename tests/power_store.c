/* A page store in memory whose power can go at any write, and whose transfers can fail: for tests.
 *
 * Writes and syncs are events, numbered from 0; the power goes at one of them. After it nothing
 * works any more, and `power_media` is what a restart finds.
 *
 * Every call is a transfer, numbered from 0 as well, which can fail. With `later`, the store moves
 * pages beside the processor, as late as it may: when they are waited for, or before anything else is
 * done. Then start and wait are transfers, too.
 */
#include <stdlib.h>
#include <string.h>

#include "poetc_store.h"

enum loss {
    LOSS_NONE,   /* every write is durable at once */
    LOSS_MASK,   /* of the writes since the last sync, those with their bit in `seed` survive */
    LOSS_RANDOM, /* each write unit of them survives, or not, or in part, or is spoiled */
};

enum fault {
    FAULT_ERROR,      /* nothing is moved, and the store says so */
    FAULT_LATE_ERROR, /* everything is moved, but the store says that it failed */
    FAULT_SHORT,      /* one byte is missing */
    FAULT_FLIP,       /* one bit is wrong, and the store does not know */
    FAULT_DEAD,       /* nothing works from here on */
    FAULT_TIME_OUT,   /* half is moved, and the store has waited for the rest for too long */
};

enum kind { READ, WRITE, SYNC, START_READ, START_WRITE, WAIT_READ, WAIT_WRITE };

struct call {
    uint32_t kind, offset, length;
};

#define NEVER UINT32_MAX

struct entry {
    uint32_t offset, length;
    uint8_t *data;
};

typedef struct {
    poetc_store store;
    uint8_t *live;  /* what reads see */
    uint8_t *media; /* what survives */
    uint32_t size, unit;
    struct entry *journal; /* writes since the last sync, if they can be lost */
    uint32_t entries, room;
    uint32_t events, transfers;
    struct call *calls; /* the transfers */
    uint32_t *lengths; /* of the writes among the events, 0 for a sync */
    uint32_t cut, torn; /* at event `cut`, the first `torn` bytes are written */
    bool spoil;         /* and the rest of the units that the write touches is spoiled */
    bool off;
    uint32_t loss, seed;
    uint32_t fault_at, fault;
    uint32_t rate;         /* instead: of 1000 transfers, so many fail somehow */
    poetc_transfer *first; /* what was started and is not done */
    bool dead;
    bool lies; /* sync does nothing */
} power_store;

static power_store *of(poetc_store *store)
{
    return (power_store *)(void *)store;
}

static uint32_t next_random(power_store *power)
{
    power->seed ^= power->seed << 13;
    power->seed ^= power->seed >> 17;
    power->seed ^= power->seed << 5;
    return power->seed;
}

/* A number below NEVER if this transfer fails. */
static uint32_t fault_now(power_store *power, uint32_t kind, uint32_t offset, uint32_t length)
{
    power->calls = realloc(power->calls, (power->transfers + 1) * sizeof *power->calls);
    power->calls[power->transfers].kind = kind;
    power->calls[power->transfers].offset = offset;
    power->calls[power->transfers].length = length;
    const bool now = power->transfers++ == power->fault_at;
    if (power->rate != 0 && next_random(power) % 1000u < power->rate) {
        static const uint32_t faults[] = {FAULT_ERROR, FAULT_LATE_ERROR, FAULT_SHORT, FAULT_FLIP,
                                          FAULT_TIME_OUT};
        return faults[next_random(power) % 5u];
    }
    power->dead = power->dead || (now && power->fault == FAULT_DEAD);
    if (power->dead) {
        return FAULT_DEAD;
    }
    return now ? power->fault : NEVER;
}

/* How much of a transfer is done, and what the store says. */
static uint32_t part_of(uint32_t fault, uint32_t length)
{
    return fault == FAULT_SHORT ? length - 1 : fault == FAULT_TIME_OUT ? length / 2 : length;
}

static poetc_status status_of(uint32_t fault, poetc_status failed)
{
    return fault == FAULT_TIME_OUT ? POETC_TIMED_OUT
           : fault == FAULT_LATE_ERROR ? failed
                                       : POETC_OK;
}

static void spoil_units(power_store *power, uint32_t from, uint32_t start, uint32_t end)
{
    const uint32_t first = start / power->unit * power->unit;
    const uint32_t last = (end + power->unit - 1) / power->unit * power->unit;
    for (uint32_t i = first; i < last && i < power->size; ++i) {
        if (i < start || i >= from) {
            power->media[i] = (uint8_t)(0xa5u ^ i);
        }
    }
}

static void lose_piece(power_store *power, uint32_t offset, const uint8_t *data, uint32_t length)
{
    const uint32_t what = next_random(power) % 4;
    if (what == 0) {
        return;
    }
    const uint32_t kept = what == 1 ? length : next_random(power) % length;
    memcpy(power->media + offset, data, kept);
    if (what == 3) {
        spoil_units(power, offset + kept, offset, offset + length);
    }
}

/* What becomes of the writes since the last sync. */
static void lose(power_store *power)
{
    for (uint32_t i = 0; i < power->entries; ++i) {
        const struct entry *entry = &power->journal[i];
        if (power->loss == LOSS_MASK) {
            if (i < 32 && (power->seed >> i & 1u) != 0) {
                memcpy(power->media + entry->offset, entry->data, entry->length);
            }
            continue;
        }
        for (uint32_t done = 0; done < entry->length;) {
            const uint32_t at = entry->offset + done;
            const uint32_t room = power->unit - at % power->unit;
            const uint32_t left = entry->length - done;
            const uint32_t piece = room < left ? room : left;
            lose_piece(power, at, entry->data + done, piece);
            done += piece;
        }
    }
}

/* Whether the power goes at this event. */
static bool cut_now(power_store *power, uint32_t length)
{
    power->lengths = realloc(power->lengths, (power->events + 1) * sizeof *power->lengths);
    power->lengths[power->events] = length;
    power->off = power->events++ == power->cut;
    return power->off;
}

static void forget(power_store *power)
{
    for (uint32_t i = 0; i < power->entries; ++i) {
        free(power->journal[i].data);
    }
    power->entries = 0;
}

static void remember(power_store *power, uint32_t offset, const void *data, uint32_t length)
{
    if (power->entries == power->room) {
        power->room = 2 * power->room + 16;
        power->journal = realloc(power->journal, power->room * sizeof *power->journal);
    }
    struct entry *entry = &power->journal[power->entries++];
    entry->offset = offset;
    entry->length = length;
    entry->data = malloc(length + 1);
    memcpy(entry->data, data, length);
}

static poetc_status read_bytes(power_store *power, uint32_t offset, void *data, uint32_t length,
                               uint32_t *done)
{
    const uint32_t fault = fault_now(power, READ, offset, length);
    if (power->off || fault == FAULT_DEAD || fault == FAULT_ERROR) {
        return POETC_READ_FAILED;
    }
    if (offset > power->size || length > power->size - offset) {
        return POETC_OUT_OF_RANGE;
    }
    *done = part_of(fault, length);
    memcpy(data, power->live + offset, *done);
    if (fault == FAULT_FLIP) {
        ((uint8_t *)data)[length / 2] ^= 0x10u;
    }
    return status_of(fault, POETC_READ_FAILED);
}

static poetc_status write_bytes(power_store *power, uint32_t offset, const void *data,
                                uint32_t length, uint32_t *done)
{
    const uint32_t fault = fault_now(power, WRITE, offset, length);
    if (power->off || fault == FAULT_DEAD || fault == FAULT_ERROR) {
        return POETC_WRITE_FAILED;
    }
    if (offset > power->size || length > power->size - offset) {
        return POETC_OUT_OF_RANGE;
    }
    if (cut_now(power, length)) {
        if (power->loss != LOSS_NONE) {
            remember(power, offset, data, length);
            lose(power);
            return POETC_WRITE_FAILED;
        }
        const uint32_t torn = power->torn < length ? power->torn : length;
        memcpy(power->media + offset, data, torn);
        if (power->spoil) {
            spoil_units(power, offset + torn, offset, offset + length);
        }
        return POETC_WRITE_FAILED;
    }
    *done = part_of(fault, length);
    memcpy(power->live + offset, data, *done);
    if (fault == FAULT_FLIP) {
        power->live[offset + length / 2] ^= 0x10u;
    }
    if (power->loss == LOSS_NONE) {
        memcpy(power->media + offset, power->live + offset, *done);
    } else {
        remember(power, offset, power->live + offset, *done);
    }
    return status_of(fault, POETC_WRITE_FAILED);
}

/* Does the first of the transfers that were started: the data, and the trailer behind them. */
static void move_first(power_store *power)
{
    poetc_transfer *const transfer = power->first;
    const bool in = transfer->direction == POETC_TRANSFER_IN;
    uint32_t offset = transfer->offset;
    uint32_t length = transfer->length;
    uint8_t *data = in ? transfer->data.in : NULL;
    const uint8_t *source = transfer->data.out;
    power->first = transfer->next;
    transfer->done = 0;
    for (uint32_t part = 0; part < 2; ++part) {
        uint32_t done = 0;
        transfer->status = in ? read_bytes(power, offset, data, length, &done)
                              : write_bytes(power, offset, source, length, &done);
        transfer->done += done;
        if (transfer->status != POETC_OK || done != length) {
            return;
        }
        offset += length;
        length = POETC_TRAILER_BYTES;
        data = transfer->trailer;
        source = transfer->trailer;
    }
}

static void move_all(power_store *power)
{
    while (power->first != NULL) {
        move_first(power);
    }
}

static poetc_status start_power(poetc_store *store, poetc_transfer *transfer)
{
    power_store *power = of(store);
    const bool in = transfer->direction == POETC_TRANSFER_IN;
    const uint32_t fault
        = fault_now(power, in ? START_READ : START_WRITE, transfer->offset, transfer->length);
    if (power->off || fault == FAULT_DEAD || fault == FAULT_ERROR) {
        return in ? POETC_READ_FAILED : POETC_WRITE_FAILED;
    }
    if (fault == FAULT_TIME_OUT) {
        return POETC_TIMED_OUT;
    }
    poetc_transfer **last = &power->first;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = transfer;
    transfer->next = NULL;
    return POETC_OK;
}

static poetc_status wait_power(poetc_store *store, poetc_transfer *transfer)
{
    power_store *power = of(store);
    const bool in = transfer->direction == POETC_TRANSFER_IN;
    const uint32_t kind = in ? WAIT_READ : WAIT_WRITE;
    bool queued = false;
    for (const poetc_transfer *other = power->first; other != NULL; other = other->next) {
        queued = queued || other == transfer;
    }
    for (bool more = queued; more;) {
        more = power->first != transfer;
        move_first(power);
    }
    const uint32_t fault = fault_now(power, kind, transfer->offset, transfer->length);
    if (transfer->status != POETC_OK) {
        return transfer->status;
    }
    if (power->off || fault == FAULT_DEAD || fault == FAULT_ERROR) {
        return in ? POETC_READ_FAILED : POETC_WRITE_FAILED;
    }
    return status_of(fault, in ? POETC_READ_FAILED : POETC_WRITE_FAILED);
}

static poetc_status read_power(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                               uint32_t *done)
{
    move_all(of(store));
    return read_bytes(of(store), offset, data, length, done);
}

static poetc_status write_power(poetc_store *store, uint32_t offset, const void *data,
                                uint32_t length, uint32_t *done)
{
    move_all(of(store));
    return write_bytes(of(store), offset, data, length, done);
}

static poetc_status sync_power(poetc_store *store)
{
    power_store *power = of(store);
    move_all(power);
    const uint32_t fault = fault_now(power, SYNC, 0, 0);
    if (power->off || fault == FAULT_DEAD || fault == FAULT_ERROR) {
        return POETC_WRITE_FAILED;
    }
    if (cut_now(power, 0)) {
        lose(power);
        return POETC_WRITE_FAILED;
    }
    if (!power->lies) {
        forget(power);
        memcpy(power->media, power->live, power->size);
    }
    return status_of(fault, POETC_WRITE_FAILED);
}

static const poetc_store_operations operations = {
    .read = read_power,
    .write = write_power,
    .sync = sync_power,
};

static const poetc_store_operations later_operations = {
    .read = read_power,
    .write = write_power,
    .start_read = start_power,
    .start_write = start_power,
    .wait = wait_power,
    .sync = sync_power,
};

power_store *power_new(uint32_t size, uint32_t unit);
power_store *power_new(uint32_t size, uint32_t unit)
{
    power_store *power = calloc(1, sizeof *power);
    power->store.operations = &operations;
    power->live = malloc(size);
    power->media = malloc(size);
    power->size = size;
    power->unit = unit;
    return power;
}

/* A store with this content, with power, and without faults. */
void power_on(power_store *power, const uint8_t *image);
void power_on(power_store *power, const uint8_t *image)
{
    memcpy(power->live, image, power->size);
    memcpy(power->media, image, power->size);
    forget(power);
    power->events = power->transfers = 0;
    power->cut = power->fault_at = NEVER;
    power->rate = 0;
    power->first = NULL;
    power->off = power->spoil = power->dead = power->lies = false;
    power->loss = LOSS_NONE;
}

void power_cut(power_store *power, uint32_t event, uint32_t torn, bool spoil);
void power_cut(power_store *power, uint32_t event, uint32_t torn, bool spoil)
{
    power->cut = event;
    power->torn = torn;
    power->spoil = spoil;
}

void power_loss(power_store *power, uint32_t loss, uint32_t seed);
void power_loss(power_store *power, uint32_t loss, uint32_t seed)
{
    power->loss = loss;
    power->seed = seed;
}

/* From now on transfers have two halves. */
void power_later(power_store *power);
void power_later(power_store *power)
{
    power->store.operations = &later_operations;
}

/* From now on so many of 1000 transfers fail. */
void power_storm(power_store *power, uint32_t rate, uint32_t seed);
void power_storm(power_store *power, uint32_t rate, uint32_t seed)
{
    power->rate = rate;
    power->seed = seed;
}

/* What was broken works again. */
void power_mend(power_store *power);
void power_mend(power_store *power)
{
    power->fault_at = NEVER;
    power->rate = 0;
    power->dead = false;
}

/* Of transfer `i`: kind, offset, length. */
const uint32_t *power_call(const power_store *power, uint32_t i);
const uint32_t *power_call(const power_store *power, uint32_t i)
{
    return &power->calls[i].kind;
}

void power_lie(power_store *power);
void power_lie(power_store *power)
{
    power->lies = true;
}

void power_fault(power_store *power, uint32_t transfer, uint32_t fault);
void power_fault(power_store *power, uint32_t transfer, uint32_t fault)
{
    power->fault_at = transfer;
    power->fault = fault;
}

const uint8_t *power_media(const power_store *power);
const uint8_t *power_media(const power_store *power)
{
    return power->media;
}

uint32_t power_events(const power_store *power);
uint32_t power_events(const power_store *power)
{
    return power->events;
}

uint32_t power_length(const power_store *power, uint32_t event);
uint32_t power_length(const power_store *power, uint32_t event)
{
    return power->lengths[event];
}

uint32_t power_transfers(const power_store *power);
uint32_t power_transfers(const power_store *power)
{
    return power->transfers;
}
