/* What a board does for firmware.c, the example that runs steps on a microcontroller. Everything
 * else (kernels, arena, page store interface) does not know the board.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "poetc_store.h"

/* Clocks and pins. RAM is set up, and the floating-point unit is on. Called once, first. */
void board_init(void);

/* How many steps to run; 0 is an error, reported by the firmware. */
uint32_t board_steps(void);

/* Fills `data` with the `bytes` bytes of argument `i`: parameters once, inputs before each step.
 * Booleans are one byte each, 0 or 1. False: there are none, and the firmware stops.
 */
bool board_read_argument(uint32_t i, void *data, uint32_t bytes);

/* Takes result `i`, after the last step. */
bool board_write_result(uint32_t i, const void *data, uint32_t bytes);

/* Makes the page store ready and sets *store to its handle, which is static data of the board. With
 * `keep`, what it holds must be kept: the image of parameters. Called if the model has storage.
 */
poetc_status board_open_store(poetc_store **store, bool keep);

/* Everything that was written stays. */
poetc_status board_close_store(void);

/* Shows text; lines end with '\n'. */
void board_print(const char *text);

/* The end; does not return. `status` is 0 if every step ended with POETC_OK. */
void board_exit(int status);

/* The deepest that the stack has been, in bytes, and its size; 0 where that is not known. start.c
 * has both.
 */
uint32_t board_stack_used(void);
uint32_t board_stack_bytes(void);

/* For poetc profile only: a clock that runs all the time, wraps at 2^32, and is fast enough to time a
 * kernel, such as a counter of cycles; and how fast it is.
 */
uint32_t board_ticks(void);
uint32_t board_ticks_per_second(void);

#endif
