/* What the example for Arduino uses of an Arduino core, for tests: the serial line is standard input
 * and output, and the SPI bus leads to the card of sd_card_model.c.
 */
#ifndef ARDUINO_H
#define ARDUINO_H

#include <stddef.h>
#include <stdint.h>

#define HIGH 0x1
#define LOW 0x0
#define INPUT 0x0
#define OUTPUT 0x1

void setup();
void loop();
void pinMode(uint8_t pin, uint8_t mode);
void digitalWrite(uint8_t pin, uint8_t value);
void delay(unsigned long ms);

class SerialLine {
public:
    void begin(unsigned long baud);
    int available();
    int read();
    size_t write(const uint8_t *buffer, size_t size);
    explicit operator bool() { return true; }
};

extern SerialLine Serial;

#endif
