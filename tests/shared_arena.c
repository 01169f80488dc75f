/* Two models that never run at the same time, in one arena: what two_models.c does, with parameters
 * saved and loaded at each change.
 */
#include <stdio.h>
#include <stdlib.h>

#include "a.h"
#include "b.h"
#include "model_data.h"
#include "store_memory.h"

static union {
    a_instance a;
    b_instance b;
} arena;

#define MODEL(name, macro, letter) \
    static bool name##_run(const char *directory, bool first, bool last) \
    { \
        static uint8_t kept[macro##_PARAMETERS_BYTES]; \
        static uint8_t pages[macro##_STORAGE_BYTES + 1]; \
        poetc_memory_store paging; \
        poetc_memory_store store; \
        name##_instance *instance; \
        poetc_memory_store_init(&paging, pages, macro##_STORAGE_BYTES); \
        poetc_memory_store_init(&store, kept, sizeof kept); \
        bool good = name##_open(&arena, sizeof arena, &instance) == POETC_OK \
                    && (first || name##_load(instance, &store.store, 0) == POETC_OK); \
        for (uint32_t i = 0; i < macro##_ARGUMENTS && good; ++i) { \
            if (first || !name##_argument_is_parameter(i)) { \
                good = move(directory, letter, "arg", i, name##_argument(instance, i), \
                            name##_argument_bytes(i), true); \
            } \
        } \
        good = good && name##_step(instance, &paging.store) == POETC_OK \
               && name##_save(instance, &store.store, 0) == POETC_OK; \
        for (uint32_t i = 0; i < macro##_RESULTS && good && last; ++i) { \
            static uint8_t copy[macro##_ARENA_BYTES]; \
            const uint8_t *const data = (const uint8_t *)name##_result(instance, i); \
            for (uint32_t k = 0; k < name##_result_bytes(i); ++k) { \
                copy[k] = data[k]; \
            } \
            good = move(directory, letter, "out", i, copy, name##_result_bytes(i), false); \
        } \
        return good; \
    }

MODEL(a, A, 'a')
MODEL(b, B, 'b')

/* What is refused: one byte too few, and one byte too far. */
static bool refused(void)
{
    a_instance *instance = &arena.a;
    bool good = a_open(&arena, A_ARENA_BYTES - 1, &instance) == POETC_TOO_SMALL && instance == NULL;
    uint8_t *const odd = arena.a.bytes + 1;
    good = good && a_open(NULL, A_ARENA_BYTES, &instance) == POETC_TOO_SMALL && instance == NULL;
    good = good && a_open(odd, A_ARENA_BYTES, &instance) == POETC_MISALIGNED && instance == NULL;
    return good && a_open(&arena, A_ARENA_BYTES, &instance) == POETC_OK && instance == &arena.a
           && a_argument(instance, A_ARGUMENTS) == NULL && a_argument_bytes(A_ARGUMENTS) == 0
           && a_result(instance, UINT32_MAX) == NULL && a_result_bytes(A_RESULTS) == 0
           && !a_argument_is_parameter(A_ARGUMENTS);
}

int main(int argc, char **argv)
{
    if (argc != 3 || !refused()) {
        return 2;
    }
    const int steps = atoi(argv[2]);
    for (int step = 0; step < steps; ++step) {
        if (!a_run(argv[1], step == 0, step + 1 == steps)
            || !b_run(argv[1], step == 0, step + 1 == steps)) {
            return 3;
        }
    }
    return 0;
}
