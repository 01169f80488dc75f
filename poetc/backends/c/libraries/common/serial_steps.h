/* Training over a serial line: an example that works on any board without sensors. Another program
 * at the other end, such as poetc's examples/serial_line.py, sends commands of one byte:
 *
 *     s   do a step. What it needs is asked for with lines "argument I BYTES", each of which is
 *         answered with the bytes of argument I and nothing else: parameters before the first step
 *         (and after one that failed), inputs before each. At the end: "status: ok", or why not.
 *     r   send results: for each a line "result I BYTES" and its bytes, then "status: ok".
 *
 * Everything is row-major, little-endian as the target is, booleans one byte each.
 */
#ifndef SERIAL_STEPS_H
#define SERIAL_STEPS_H

#include "poetc_store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Waits for a command and obeys it. `store` may be null if the model does not page. */
void serial_steps_command(poetc_store *store);

/* Sends a line of text. */
void serial_steps_print(const char *text);

/* Of the board: wait until all of the bytes have come, or been taken. */
void serial_steps_receive(void *data, uint32_t bytes);
void serial_steps_send(const void *data, uint32_t bytes);

#ifdef __cplusplus
}
#endif

#endif
