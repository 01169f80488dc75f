/* What a program uses of the Pico SDK, for tests. */
static inline void stdio_init_all(void)
{
}
