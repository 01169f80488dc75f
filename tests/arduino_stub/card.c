/* The card of sd_card_model.c with the content of a file, on a bus of bytes. */
#include <stdio.h>
#include <stdlib.h>

#define CARD_BLOCKS 256
#define sd_spi_start model_spi_start
#define sd_spi_select model_spi_select
#define sd_spi_exchange model_spi_exchange
#include "sd_card_model.c"

void card_insert(const char *path);
void card_insert(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fread(card.memory, 1, sizeof card.memory, file) == 0) {
        perror(path);
        exit(2);
    }
    fclose(file);
    card.kind = HIGH;
    card.start = 3;
    card.busy = 5;
    card.delay = 2;
    card.response = 5;
    power_on();
}

void card_remove(const char *path);
void card_remove(const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(card.memory, 1, sizeof card.memory, file) != sizeof card.memory) {
        perror(path);
        exit(2);
    }
    fclose(file);
}

void card_select(bool selected);
void card_select(bool selected)
{
    model_spi_select(selected);
}

uint8_t card_exchange(uint8_t out, uint32_t hertz);
uint8_t card_exchange(uint8_t out, uint32_t hertz)
{
    uint8_t in = 0xff;
    /* Until it is initialised, a card need not follow more. */
    if (idle && hertz > 400000u) {
        fprintf(stderr, "too fast\n");
        exit(2);
    }
    model_spi_exchange(out, &in);
    return in;
}
