/* Runs a step of the model on arguments that are compiled in, writes results to standard output, and
 * ends with the status of the step, which must be that of model_check.
 */
#include "arguments.h"
#include "model.h"

#ifdef BARE
#include "bare_linux.h"

static void put(const void *data, uint32_t length)
{
    (void)system_call(WRITE, 1, data, (long)length);
}
#else
#include <stdio.h>
#include <stdlib.h>

static void put(const void *data, uint32_t length)
{
    if (fwrite(data, 1, length, stdout) != length) {
        abort();
    }
}
#endif

static poetc_status run(void)
{
    for (uint32_t i = 0; i < MODEL_ARGUMENTS; ++i) {
        const uint8_t *from = argument[i];
        uint8_t *to = model_argument(i);
        for (uint32_t k = 0; k < model_argument_bytes(i); ++k) {
            to[k] = from[k];
        }
    }
    const poetc_status status = model_step(NULL);
    if (model_check() != status) {
        put("?", 1);
    }
    for (uint32_t i = 0; status == POETC_OK && i < MODEL_RESULTS; ++i) {
        put(model_result(i), model_result_bytes(i));
    }
    return status;
}

#ifdef BARE
void begin(void);
__attribute__((used)) void begin(void)
{
#if defined(__arm__) && defined(CONTROL)
    const uint32_t control = CONTROL;
    __asm__ volatile("vmsr fpscr, %0" : : "r"(control));
#endif
    (void)system_call(EXIT, (long)run(), NULL, 0);
}
#else
/* Word 1, if there is one, is what to set in the processor's control register. */
int main(int argc, char **argv)
{
    if (argc > 1) {
        unsigned control;
        __asm__ volatile("stmxcsr %0" : "=m"(control));
        control |= (unsigned)strtoul(argv[1], NULL, 0);
        __asm__ volatile("ldmxcsr %0" : : "m"(control));
    }
    return (int)run();
}
#endif
