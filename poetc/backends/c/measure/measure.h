/* The program that measures: runs each kernel and some transfers, and prints a line for each.
 *
 *     poetc-measure 1 <board> <core> <ticks per second> <bytes of a block of the store> <compiler>
 *     nothing <ticks>                              what measuring itself takes
 *     kernel <key> <ticks>
 *     out <offset> <bytes> <ticks>                 page-out, and page-in, at an offset of the store
 *     in <offset> <bytes> <ticks>
 *     sync, commit, open <ticks>
 *     end
 *
 * `poetc profile --from` reads it. In an emulator there is no clock worth reading: 0 ticks per
 * second, and instructions are counted from outside, between measure_begin and measure_end.
 */
#ifndef POETC_MEASURE_H
#define POETC_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

/* Generated: one entry for each kernel, as
 *
 *     measure_kernel("5f1d0c0ab9c5b1a7");
 *     do {
 *         measure_fill(at(0), 64, 4, sample_0, 64);
 *         measure_begin();
 *         kernel_0(at(0), at(256));
 *         measure_end();
 *     } while (measure_again());
 */
void measured_kernels(void);
void *measured_buffer(void);

void measure_kernel(const char *key);
void measure_begin(void);
void measure_end(void);
/* Prints the line when it has been measured often enough, and returns false. */
bool measure_again(void);

/* Fills a buffer with elements of `size` bytes, drawn from `count` samples; all of them in order, if
 * there are as many samples as elements.
 */
void measure_fill(void *data, uint32_t elements, uint32_t size, const void *samples,
                  uint32_t count);

#endif
