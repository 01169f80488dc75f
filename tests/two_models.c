/* Two models in one program: DIRECTORY/a/argN.bin and DIRECTORY/b/argN.bin to outN.bin beside them,
 * after STEPS steps of each, by turns. C99 and C++17.
 */
#include <stdio.h>
#include <stdlib.h>

#include "a.h"
#include "b.h"
#include "model_data.h"
#include "store_memory.h"

#define MODEL(name, macro, letter) \
    static bool fill_##name(const char *directory, bool first) \
    { \
        bool good = true; \
        for (uint32_t i = 0; i < macro##_ARGUMENTS; ++i) { \
            if (first || !name##_argument_is_parameter(i)) { \
                good = good && move(directory, letter, "arg", i, name##_argument(i), \
                                    name##_argument_bytes(i), true); \
            } \
        } \
        return good; \
    } \
    static bool write_##name(const char *directory) \
    { \
        static uint8_t copy[macro##_ARENA_BYTES + 1]; \
        bool good = true; \
        for (uint32_t i = 0; i < macro##_RESULTS; ++i) { \
            const uint8_t *const data = (const uint8_t *)name##_result(i); \
            for (uint32_t k = 0; k < name##_result_bytes(i); ++k) { \
                copy[k] = data[k]; \
            } \
            good = good \
                   && move(directory, letter, "out", i, copy, name##_result_bytes(i), false); \
        } \
        return good; \
    }

MODEL(a, A, 'a')
MODEL(b, B, 'b')

int main(int argc, char **argv)
{
    static uint8_t a_pages[A_STORAGE_BYTES + 1];
    static uint8_t b_pages[B_STORAGE_BYTES + 1];
    poetc_memory_store a_store;
    poetc_memory_store b_store;
    if (argc != 3) {
        return 2;
    }
    poetc_memory_store_init(&a_store, a_pages, A_STORAGE_BYTES);
    poetc_memory_store_init(&b_store, b_pages, B_STORAGE_BYTES);
    for (int step = 0; step < atoi(argv[2]); ++step) {
        if (!fill_a(argv[1], step == 0) || !fill_b(argv[1], step == 0)) {
            return 3;
        }
        const poetc_status one = a_step(&a_store.store);
        const poetc_status other = b_step(&b_store.store);
        if (one != POETC_OK || other != POETC_OK) {
            (void)fprintf(stderr, "%s, %s\n", poetc_status_text(one), poetc_status_text(other));
            return 4;
        }
    }
    return write_a(argv[1]) && write_b(argv[1]) ? 0 : 5;
}
