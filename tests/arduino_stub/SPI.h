/* The SPI library of an Arduino core, for tests. */
#ifndef SPI_H
#define SPI_H

#include <stdint.h>

#define MSBFIRST 1
#define SPI_MODE0 0

class SPISettings {
public:
    SPISettings() : hertz(4000000) {}
    SPISettings(uint32_t clock, uint8_t, uint8_t) : hertz(clock) {}
    uint32_t hertz;
};

class SPIBus {
public:
    void begin();
    void beginTransaction(SPISettings settings);
    void endTransaction();
    uint8_t transfer(uint8_t data);
};

extern SPIBus SPI;

#endif
