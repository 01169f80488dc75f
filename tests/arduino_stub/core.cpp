/* Runs a sketch on the host; with CARD, with a memory card whose content is in the file that the
 * command line names. The program ends when nobody is at the other end of the line any more.
 */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "Arduino.h"
#include "SPI.h"

SerialLine Serial;

static bool begun, stopped;
static const char *image;

#ifdef CARD
extern "C" void card_insert(const char *path);
extern "C" void card_remove(const char *path);
extern "C" void card_select(bool selected);
extern "C" uint8_t card_exchange(uint8_t out, uint32_t hertz);

SPIBus SPI;
static bool bus_begun;
static uint32_t clock_hertz; /* 0: outside of a transaction */

void SPIBus::begin() { bus_begun = true; }
void SPIBus::beginTransaction(SPISettings settings) { clock_hertz = settings.hertz; }
void SPIBus::endTransaction() { clock_hertz = 0; }
uint8_t SPIBus::transfer(uint8_t data)
{
    if (!bus_begun || clock_hertz == 0) {
        fprintf(stderr, "a transfer outside of a transaction\n");
        exit(2);
    }
    return card_exchange(data, clock_hertz);
}
#endif

static uint8_t modes[64];

void pinMode(uint8_t pin, uint8_t mode) { modes[pin] = mode; }

void digitalWrite(uint8_t pin, uint8_t value)
{
    if (modes[pin] != OUTPUT) {
        fprintf(stderr, "pin %d is not an output\n", pin);
        exit(2);
    }
#ifdef CARD
    card_select(value == LOW);
#else
    (void)value;
#endif
}

void delay(unsigned long ms) { usleep((useconds_t)ms * 10u); }

void SerialLine::begin(unsigned long) { begun = true; }

int SerialLine::available()
{
    struct pollfd line = {0, POLLIN, 0};
    if (!begun || poll(&line, 1, 1000) < 0 || (line.revents & (POLLHUP | POLLERR)) != 0) {
        stopped = true;
#ifdef CARD
        card_remove(image);
#endif
        exit(begun ? 0 : 2);
    }
    return (line.revents & POLLIN) != 0 ? 1 : 0;
}

int SerialLine::read()
{
    uint8_t byte = 0;
    return ::read(0, &byte, 1) == 1 ? byte : -1;
}

size_t SerialLine::write(const uint8_t *buffer, size_t size)
{
    size_t done = 0;
    while (done < size) {
        const ssize_t part = ::write(1, buffer + done, size - done);
        if (part <= 0) {
            break;
        }
        done += (size_t)part;
    }
    return done;
}

int main(int count, char **words)
{
    image = count > 1 ? words[1] : NULL;
#ifdef CARD
    card_insert(image);
#endif
    setup();
    for (;;) {
        loop();
    }
}
