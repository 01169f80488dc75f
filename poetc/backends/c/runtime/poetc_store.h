/* Page store: the auxiliary storage to which a step moves tensors, and from which it reads them
 * back. A port implements `poetc_store_operations`; generated code calls `poetc_page_...`.
 *
 * A page is the bytes of one tensor, followed by their CRC-32 (4 bytes, least significant first).
 * Nothing about pages is kept in RAM. Every transfer is checked for its length, and every page that
 * is read for its CRC; what fails is reported to the caller and never used.
 */
#ifndef POETC_STORE_H
#define POETC_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "poetc_version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    POETC_OK = 0,
    POETC_READ_FAILED,    /* the store could not read */
    POETC_WRITE_FAILED,   /* the store could not write */
    POETC_SHORT_TRANSFER, /* the store moved fewer bytes than it was asked for */
    POETC_CORRUPT,        /* a page is not what was written (CRC) */
    POETC_OUT_OF_RANGE,   /* beyond the end of the store */
    POETC_NO_STORE,       /* a step that pages was given no store */
    POETC_BUSY,           /* a transfer was started before the last one was waited for */
    POETC_IDLE,           /* waited for a transfer that was not started */
    POETC_NO_IMAGE,       /* the store holds no parameters of this model (poetc_image.h) */
    POETC_TIMED_OUT,      /* the store did not answer in time */
    POETC_PLAN_DAMAGED,   /* no plan (poetc_plan.h), or not what was sent, or of another version */
    POETC_PLAN_FOREIGN,   /* a plan is for another model */
    POETC_PLAN_TOO_LARGE, /* a plan needs more RAM or storage than there is */
    POETC_PLAN_INVALID,   /* a plan says what would not compute the model's results */
    POETC_BYTE_ORDER,     /* this and the next: the results would be others (poetc_check.h) */
    POETC_FLOAT_ROUNDING, /* floats are not rounded to the nearest, ties to even */
    POETC_FLOAT_DENORMALS, /* denormal floats become zero */
    POETC_FLOAT_EXPRESSIONS, /* the compiler changes what floats are computed */
    POETC_IN_USE,         /* another program uses the store */
    POETC_CANCELLED,      /* the program's own hook has ended the step */
    POETC_TOO_SMALL,      /* memory for an arena has fewer bytes than that needs */
    POETC_MISALIGNED,     /* memory for an arena does not begin at a multiple of its alignment */
    POETC_WRONG_SIZE      /* a tensor has another number of elements */
} poetc_status;

/* A short description, for messages. */
const char *poetc_status_text(poetc_status status);

#define POETC_TRAILER_BYTES 4u

/* What the page of a tensor with `length` bytes takes: the trailer, and whole words. */
#define POETC_PAGE_BYTES(length) (((length) + POETC_TRAILER_BYTES + 3u) / 4u * 4u)

typedef struct poetc_store poetc_store;

enum { POETC_TRANSFER_NONE = 0, POETC_TRANSFER_IN, POETC_TRANSFER_OUT };

/* The line of a data cache that the DMA of the store does not go through; 4 if there is none. The
 * bytes that a transfer moves then share a line with nothing else, until it is waited for.
 */
#define POETC_CACHE_LINE_BYTES 4

#if POETC_CACHE_LINE_BYTES > 4
#define POETC_ON_LINES __attribute__((aligned(POETC_CACHE_LINE_BYTES)))
#else
#define POETC_ON_LINES
#endif

/* For functions of generated code that are to stay apart, and there once: what several kernels
 * share, and kernels in tiles, whose stack and instructions would add up in the step.
 */
#if defined(__clang__)
#define POETC_APART __attribute__((noinline))
#elif defined(__GNUC__)
#define POETC_APART __attribute__((noinline, noclone))
#else
#define POETC_APART
#endif

/* A page on its way between its start and the wait for it. Before its first use it is all zeros, or
 * poetc_transfers_init has seen it.
 */
typedef struct poetc_transfer {
    /* What a store moves: `length` bytes from `data.out`, or to `data.in`, and then the 4 bytes of
     * the trailer. On storage they are one behind the other, from `offset` on.
     */
    uint8_t trailer[POETC_CACHE_LINE_BYTES] POETC_ON_LINES;
    uint32_t offset;
    uint32_t length;
    union {
        const void *out;
        void *in;
    } data;
    uint8_t direction;
    bool verify; /* `data` is read back, and checked, when it has been written */
    uint32_t tag;
    uint32_t done; /* how many bytes the store has moved, the trailer among them */
    /* For the store, from the start to the wait. */
    poetc_status status;
    struct poetc_transfer *next;
} poetc_transfer;

/* Offsets and lengths are in bytes. Each operation returns POETC_OK and sets *done to the bytes
 * that it moved, or says what went wrong. Moving fewer bytes than asked for is POETC_OK with a
 * smaller *done; the caller reports it. A read that finds the storage itself damaged (an error
 * that its own code could not correct) returns POETC_CORRUPT, any other failure
 * POETC_READ_FAILED or POETC_TIMED_OUT. No operation may wait for ever.
 */
typedef struct {
    poetc_status (*read)(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                         uint32_t *done);
    poetc_status (*write)(poetc_store *store, uint32_t offset, const void *data, uint32_t length,
                          uint32_t *done);
    /* A store that can transfer beside the processor (DMA) has these as well; others have null.
     * Several transfers may be started before the first is waited for: they queue, and are done one
     * after the other in the order of their starts. The others above and below may be called
     * meanwhile, and come after all that was started. `wait` returns when a transfer is over, and
     * says how it ended; `done` is set then. If a start fails, nothing was started.
     */
    poetc_status (*start_read)(poetc_store *store, poetc_transfer *transfer);
    poetc_status (*start_write)(poetc_store *store, poetc_transfer *transfer);
    poetc_status (*wait)(poetc_store *store, poetc_transfer *transfer);
    /* Returns when everything that was written before would survive a loss of power. Null if that
     * holds whenever `write` or `wait` returns. Only parameters on storage need it.
     */
    poetc_status (*sync)(poetc_store *store);
} poetc_store_operations;

/* The handle of a store, the first member of what a port adds to it. */
struct poetc_store {
    const poetc_store_operations *operations;
};

/* Write `length` bytes and their CRC to the page at `offset`; read them back and check the CRC. */
poetc_status poetc_page_out(poetc_store *store, uint32_t offset, const void *data,
                            uint32_t length);
poetc_status poetc_page_in(poetc_store *store, uint32_t offset, void *data, uint32_t length);

/* The same for pages with a tag: one that was written with another tag is POETC_CORRUPT. The tag is
 * mixed into the CRC and takes no bytes; a page without one has the tag 0.
 */
poetc_status poetc_page_out_tagged(poetc_store *store, uint32_t offset, const void *data,
                                   uint32_t length, uint32_t tag);
poetc_status poetc_page_in_tagged(poetc_store *store, uint32_t offset, void *data,
                                  uint32_t length, uint32_t tag);

/* None of `count` transfers is under way. */
void poetc_transfers_init(poetc_transfer *transfers, uint32_t count);

/* A page-out or page-in in two halves. Between them `transfer` and `data` must be left alone, but
 * `data` of a page-out may be read. A store without asynchronous operations transfers everything
 * in the first half. The page is written, or the data good, only when `poetc_page_wait` returns
 * POETC_OK. Whatever it returns, the transfer is over then.
 */
poetc_status poetc_page_out_start(poetc_store *store, poetc_transfer *transfer, uint32_t offset,
                                  const void *data, uint32_t length, uint32_t tag);
poetc_status poetc_page_in_start(poetc_store *store, poetc_transfer *transfer, uint32_t offset,
                                 void *data, uint32_t length, uint32_t tag);
poetc_status poetc_page_wait(poetc_store *store, poetc_transfer *transfer);

/* The end of a transfer, of which nothing is checked but its length. */
poetc_status poetc_transfer_wait(poetc_store *store, poetc_transfer *transfer);

/* The end of a step that has failed: waits for those of `count` transfers that are under way, so
 * that nothing uses their data any more. Returns `status`.
 */
poetc_status poetc_pages_abandon(poetc_store *store, poetc_transfer *transfers, uint32_t count,
                                 poetc_status status);

/* Bytes as they are: all of them, or a status that says why not. */
poetc_status poetc_read(poetc_store *store, uint32_t offset, void *data, uint32_t length);
poetc_status poetc_write(poetc_store *store, uint32_t offset, const void *data, uint32_t length);
poetc_status poetc_sync(poetc_store *store);

/* Four bytes of storage as a number, least significant first. */
uint32_t poetc_get_u32(const uint8_t *bytes);
void poetc_put_u32(uint8_t *bytes, uint32_t value);

/* CRC-32 (polynomial 0x04c11db7 reflected, as in zlib and Ethernet). A program that is compiled
 * with POETC_OWN_CRC32 defines it itself, with the CRC unit of its processor for example.
 */
uint32_t poetc_crc32(const void *data, uint32_t length);

#ifdef __cplusplus
}
#endif

#endif
