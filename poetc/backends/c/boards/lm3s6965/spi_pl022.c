/* The SPI bus of the LM3S6965 evaluation board: synchronous serial interface 0, a PrimeCell PL022,
 * with the card's chip select on pin 0 of port D. LM3S6965 data sheet, chapters 5, 8 and 13.
 */
#include "board.h"
#include "sd_card.h"

#define REGISTER(address) (*(volatile uint32_t *)(address))

/* System control: clocks of peripherals. */
#define RCGC1 REGISTER(0x400fe104u)
#define RCGC2 REGISTER(0x400fe108u)
#define RCGC1_SSI0 (1u << 4)
#define RCGC2_PORT_A (1u << 0)
#define RCGC2_PORT_D (1u << 3)

/* Ports: data registers are addressed by the mask of pins. */
#define PORT_A 0x40004000u
#define PORT_D 0x40007000u
#define PORT_DATA(port, pins) REGISTER((port) + ((pins) << 2))
#define PORT_DIRECTION(port) REGISTER((port) + 0x400u)
#define PORT_ALTERNATE(port) REGISTER((port) + 0x420u)
#define PORT_PULL_UP(port) REGISTER((port) + 0x510u)
#define PORT_DIGITAL(port) REGISTER((port) + 0x51cu)
#define CLOCK_PIN (1u << 2)
#define DISPLAY_SELECT_PIN (1u << 3) /* of the display on the same bus */
#define RECEIVE_PIN (1u << 4)
#define SEND_PIN (1u << 5)
#define SPI_PINS (CLOCK_PIN | RECEIVE_PIN | SEND_PIN)
#define CARD_SELECT_PIN (1u << 0)

/* The serial interface. */
#define SSI_CONTROL_0 REGISTER(0x40008000u)
#define SSI_CONTROL_1 REGISTER(0x40008004u)
#define SSI_DATA REGISTER(0x40008008u)
#define SSI_STATUS REGISTER(0x4000800cu)
#define SSI_PRESCALE REGISTER(0x40008010u)
#define ENABLE 2u
#define EIGHT_BITS 7u
#define SEND_NOT_FULL 2u
#define RECEIVE_NOT_EMPTY 4u

/* The system clock is the internal oscillator of 12 MHz, within 30%. It is divided by the prescaler,
 * 2, and by the rate + 1: 375 kHz (at most 488), or 6 MHz.
 */
#define PRESCALE 2u
#define SLOW_RATE 15u
#define SLOW_BYTES_PER_MS 61u /* at the fastest that it may be: waits are not too short then */
#define FAST_BYTES_PER_MS 975u

/* A byte takes at most 16 * 2 * 8 cycles of the clock; a loop more than one. */
#define POLLS 1000u

void board_init(void)
{
    RCGC1 |= RCGC1_SSI0;
    RCGC2 |= RCGC2_PORT_A | RCGC2_PORT_D;
    (void)RCGC2; /* the clock is there three cycles later */
    (void)RCGC2;
    (void)RCGC2;
    /* Both devices on the bus are not selected. */
    PORT_DATA(PORT_A, DISPLAY_SELECT_PIN) = DISPLAY_SELECT_PIN;
    PORT_DATA(PORT_D, CARD_SELECT_PIN) = CARD_SELECT_PIN;
    PORT_DIRECTION(PORT_A) |= DISPLAY_SELECT_PIN;
    PORT_DIRECTION(PORT_D) |= CARD_SELECT_PIN;
    PORT_ALTERNATE(PORT_A) = (PORT_ALTERNATE(PORT_A) | SPI_PINS) & ~DISPLAY_SELECT_PIN;
    PORT_PULL_UP(PORT_A) |= RECEIVE_PIN;
    PORT_DIGITAL(PORT_A) |= SPI_PINS | DISPLAY_SELECT_PIN;
    PORT_DIGITAL(PORT_D) |= CARD_SELECT_PIN;
}

uint32_t sd_spi_start(bool fast)
{
    SSI_CONTROL_1 = 0; /* master, disabled while it is set up */
    SSI_CONTROL_0 = (fast ? 0u : SLOW_RATE << 8) | EIGHT_BITS; /* mode 0 */
    SSI_PRESCALE = PRESCALE;
    SSI_CONTROL_1 = ENABLE;
    while ((SSI_STATUS & RECEIVE_NOT_EMPTY) != 0) {
        (void)SSI_DATA;
    }
    return fast ? FAST_BYTES_PER_MS : SLOW_BYTES_PER_MS;
}

void sd_spi_select(bool selected)
{
    PORT_DATA(PORT_D, CARD_SELECT_PIN) = selected ? 0 : CARD_SELECT_PIN;
}

bool sd_spi_exchange(uint8_t out, uint8_t *in)
{
    for (uint32_t left = POLLS; (SSI_STATUS & SEND_NOT_FULL) == 0; --left) {
        if (left == 0) {
            return false;
        }
    }
    SSI_DATA = out;
    for (uint32_t left = POLLS; (SSI_STATUS & RECEIVE_NOT_EMPTY) == 0; --left) {
        if (left == 0) {
            return false;
        }
    }
    *in = (uint8_t)(SSI_DATA & 0xffu);
    return true;
}
