/* Loads plans, one after the other, and runs a step of those that are accepted.
 *
 *     plan_driver DIRECTORY PLANS OUT MOST
 *
 * DIRECTORY has argN.bin and, for parameters on storage, image.bin. PLANS are the bytes of each plan
 * after their number (4 bytes); OUT gets three numbers of 4 bytes for each: the status of loading, that
 * of the step, and a CRC of all results and of the values in the store at MODEL_PAGES (-D). After MOST steps,
 * plans are loaded only: the status of their step is 0xffffffff.
 *
 * With one word more, the step of the first plan is done again and again: in time n, call n of the page
 * store fails, and the step is repeated without a fault. The output has the number of calls that were
 * made to fail, the number of steps that said OK in spite of that, and of repeated ones whose CRC was
 * not that of the step without faults.
 *
 * Each plan is in a block of its own of exactly its size, so that a sanitizer sees what is read
 * beside it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "store_memory.h"

#ifndef MODEL_PAGES
#define MODEL_PAGES {0, 0}
#endif

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(2);
}

static uint8_t *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) {
        fail(path);
    }
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*bytes + 1);
    if (data == NULL || fread(data, 1, *bytes, file) != *bytes) {
        fail(path);
    }
    fclose(file);
    return data;
}

static uint8_t *read_in(const char *directory, const char *name, size_t *bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return read_file(path, bytes);
}

static uint8_t *argument[MODEL_ARGUMENTS + 1];
static uint8_t *image;
static size_t image_bytes;
static uint8_t *pages;
static poetc_memory_store memory;

/* A store of which one call fails. */
static poetc_store faulty;
static uint32_t calls, fault = UINT32_MAX;

static poetc_status faulty_read(poetc_store *store, uint32_t offset, void *data, uint32_t length,
                                uint32_t *done)
{
    (void)store;
    return calls++ == fault ? POETC_READ_FAILED
                            : memory.store.operations->read(&memory.store, offset, data, length, done);
}

static poetc_status faulty_write(poetc_store *store, uint32_t offset, const void *data,
                                 uint32_t length, uint32_t *done)
{
    (void)store;
    return calls++ == fault ? POETC_WRITE_FAILED
                            : memory.store.operations->write(&memory.store, offset, data, length, done);
}

static poetc_status faulty_sync(poetc_store *store)
{
    (void)store;
    return calls++ == fault ? POETC_WRITE_FAILED : POETC_OK;
}

static const poetc_store_operations faulty_operations = {
    .read = faulty_read,
    .write = faulty_write,
    .sync = faulty_sync,
};

static poetc_status step(uint32_t *crc, bool fresh)
{
    *crc = 0;
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        void *place = model_argument(i);
        if (place != NULL) {
            memcpy(place, argument[i], model_argument_bytes(i));
        }
    }
    if (fresh) {
        memset(pages, 0xa5, MODEL_STORAGE_BYTES);
        memcpy(pages, image, image_bytes);
    }
    calls = 0;
    const poetc_status status = model_step(&faulty);
    if (status != POETC_OK) {
        return status;
    }
    for (uint32_t i = 0; i != MODEL_RESULTS; ++i) {
        const void *place = model_result(i);
        if (place != NULL) {
            *crc = *crc * 31u + poetc_crc32(place, model_result_bytes(i));
        }
    }
    /* Offsets and lengths: what is behind a page, and the record, depend on the program. */
    static const uint32_t values[][2] = {MODEL_PAGES};
    for (size_t i = 0; i != sizeof values / sizeof values[0]; ++i) {
        *crc = *crc * 31u + poetc_crc32(pages + values[i][0], values[i][1]);
    }
    return status;
}

static void with_faults(uint32_t record[3])
{
    uint32_t right;
    if (step(&right, true) != POETC_OK) {
        fail("the step fails");
    }
    record[0] = calls;
    for (uint32_t n = 0; n < record[0]; ++n) {
        uint32_t crc;
        fault = n;
        record[1] += step(&crc, true) == POETC_OK;
        fault = UINT32_MAX;
        record[2] += step(&crc, false) != POETC_OK || crc != right;
    }
}

int main(int argc, char **argv)
{
    if (argc != 5 && argc != 6) {
        fail("usage: plan_driver DIRECTORY PLANS OUT MOST");
    }
    unsigned long left = strtoul(argv[4], NULL, 10);
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        char name[32];
        size_t bytes;
        snprintf(name, sizeof name, "arg%lu.bin", (unsigned long)i);
        argument[i] = read_in(argv[1], name, &bytes);
        if (bytes != model_argument_bytes(i)) {
            fail(name);
        }
    }
    image = read_in(argv[1], "image.bin", &image_bytes);
    pages = malloc(MODEL_STORAGE_BYTES + 1);
    poetc_memory_store_init(&memory, pages, MODEL_STORAGE_BYTES);
    faulty.operations = &faulty_operations;
    size_t total;
    uint8_t *plans = read_file(argv[2], &total);
    FILE *out = fopen(argv[3], "wb");
    uint8_t *current = NULL;
    for (size_t at = 0; at < total;) {
        const uint32_t bytes = poetc_get_u32(plans + at);
        uint8_t *plan = malloc(bytes != 0 ? bytes : 1);
        memcpy(plan, plans + at + 4, bytes);
        at += 4 + bytes;
        uint32_t crc = 0;
        const poetc_status loaded = model_load_plan(plan, bytes);
        uint32_t stepped = (uint32_t)loaded;
        if (loaded == POETC_OK) {
            stepped = left > 0 ? (uint32_t)step(&crc, true) : UINT32_MAX;
            left -= left > 0 ? 1 : 0;
        }
        free(loaded == POETC_OK ? current : plan);
        current = loaded == POETC_OK ? plan : current;
        uint32_t numbers[3] = {(uint32_t)loaded, stepped, crc};
        if (argc == 6) {
            memset(numbers, 0, sizeof numbers);
            with_faults(numbers);
            at = total;
        }
        uint8_t record[12];
        for (uint32_t k = 0; k < 3; ++k) {
            poetc_put_u32(record + 4 * k, numbers[k]);
        }
        if (fwrite(record, 1, sizeof record, out) != sizeof record) {
            fail(argv[3]);
        }
    }
    free(current);
    free(plans);
    free(pages);
    free(image);
    for (uint32_t i = 0; i != MODEL_ARGUMENTS; ++i) {
        free(argument[i]);
    }
    return fclose(out) == 0 ? 0 : 2;
}
