/* Trains over the serial line: serial_steps.h says how, poetc's docs/layouts.md what to run at the
 * other end. In a program of your own, fill in arguments from sensors, and call model_step.
 *
 * If the model has pages or parameters on storage, they are on a memory card on the SPI bus, from
 * its block 0 on: no file system. Everything that is on the card is lost.
 */
#include <model.h>

#include "serial_steps.h"

#if MODEL_STORAGE_BYTES > 0
#include <SPI.h>
#include <sd_card.h>

/* The chip select of the card. */
const int cardSelectPin = 10;

/* What the bus can do at most in a millisecond, in bytes: waits are counted in bytes. */
const uint32_t slowHertz = 250000;
const uint32_t fastHertz = 4000000;

static SPISettings settings;
static sd_card card;
static poetc_block_store blocks;

uint32_t sd_spi_start(bool fast) {
  settings = SPISettings(fast ? fastHertz : slowHertz, MSBFIRST, SPI_MODE0);
  return (fast ? fastHertz : slowHertz) / 8000;
}

void sd_spi_select(bool selected) {
  digitalWrite(cardSelectPin, selected ? LOW : HIGH);
}

bool sd_spi_exchange(uint8_t out, uint8_t *in) {
  SPI.beginTransaction(settings);
  *in = SPI.transfer(out);
  SPI.endTransaction();
  return true;
}

static poetc_store *openStore() {
  pinMode(cardSelectPin, OUTPUT);
  digitalWrite(cardSelectPin, HIGH);
  SPI.begin();
  poetc_block_store_init(&blocks, &sd_card_operations, &card);
  poetc_status status = sd_card_open(&card);
  while (status != POETC_OK) {
    serial_steps_print(poetc_status_text(status));
    delay(1000);
    status = sd_card_open(&card);
  }
  return &blocks.store;
}
#else
static poetc_store *openStore() {
  return nullptr;
}
#endif

void serial_steps_receive(void *data, uint32_t bytes) {
  uint8_t *next = static_cast<uint8_t *>(data);
  while (bytes > 0) {
    if (Serial.available() > 0) {
      *next++ = static_cast<uint8_t>(Serial.read());
      --bytes;
    }
  }
}

void serial_steps_send(const void *data, uint32_t bytes) {
  Serial.write(static_cast<const uint8_t *>(data), bytes);
}

static poetc_store *store;

void setup() {
  Serial.begin(115200);
  while (!Serial) {
  }
  store = openStore();
}

void loop() {
  serial_steps_command(store);
}
