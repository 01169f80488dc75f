/* In an emulator, time says nothing: instructions are counted from outside. */
#include "board.h"

uint32_t board_ticks(void)
{
    return 0;
}

uint32_t board_ticks_per_second(void)
{
    return 0;
}
