/* Compares the results of one step with those that are expected. For the machine that runs the
 * example, or the emulator of a board.
 *
 *     DIRECTORY/outN.bin       result N, as the example writes it
 *     DIRECTORY/storage.bin    the storage, if parameters are there
 *     DIRECTORY/expected.bin   what is expected, in the order of compare_pieces.h
 *
 * A difference is relative to what compare_pieces.h says: the largest element that is expected, as a
 * rule. Integers and booleans are to be the same. The exit status is 0 if nothing differs by more
 * than TOLERANCE.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare_pieces.h"

/* A result, or a part of one that is a page of its own: `page` is its offset in the storage. What is
 * not stored is in a file of its own. */
typedef enum { EXACT, FLOAT32, FLOAT16, BFLOAT16 } kind;

typedef struct {
    unsigned long result;
    kind numbers;
    double scale;
    unsigned long bytes;
    bool stored;
    long page;
} piece;

static const piece pieces[] = COMPARE_PIECES;
enum { PIECES = sizeof pieces / sizeof pieces[0] };

static FILE *open_file(const char *directory, const char *name)
{
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = NULL;
    if (length < 0 || (size_t)length >= sizeof path) {
        fprintf(stderr, "path too long: %s\n", directory);
    } else {
        file = fopen(path, "rb");
        if (file == NULL) {
            perror(path);
        }
    }
    if (file == NULL) {
        exit(EXIT_FAILURE);
    }
    return file;
}

/* Bytes of a file, which the caller frees. */
static unsigned char *read_bytes(FILE *file, unsigned long bytes, const char *name)
{
    unsigned char *const data = malloc(bytes + 1u);
    if (data == NULL || fread(data, 1, bytes, file) != bytes) {
        fprintf(stderr, "%s has less than was expected\n", name);
        exit(EXIT_FAILURE);
    }
    return data;
}

static unsigned char *read_storage(const char *directory, long offset, unsigned long bytes)
{
    FILE *const file = open_file(directory, "storage.bin");
    if (fseek(file, offset, SEEK_SET) != 0) {
        perror("storage.bin");
        exit(EXIT_FAILURE);
    }
    unsigned char *const data = read_bytes(file, bytes, "storage.bin");
    fclose(file);
    return data;
}

static unsigned char *load_result(const char *directory, const piece *one)
{
    if (one->stored) {
        return read_storage(directory, one->page, one->bytes);
    }
    char name[40];
    (void)snprintf(name, sizeof name, "out%lu.bin", one->result);
    FILE *const file = open_file(directory, name);
    unsigned char *const data = read_bytes(file, one->bytes, name);
    fclose(file);
    return data;
}

/* The float with these bytes, which are in the order of the machine. */
static double number(kind numbers, const unsigned char *bytes)
{
    float value;
    if (numbers == FLOAT32) {
        memcpy(&value, bytes, sizeof value);
        return (double)value;
    }
    uint16_t half;
    memcpy(&half, bytes, sizeof half);
    if (numbers == BFLOAT16) {
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
        return (double)value;
    }
    const int exponent = half >> 10 & 0x1f;
    const int fraction = half & 0x3ff;
    double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    if (exponent == 0x1f) {
        size = fraction == 0 ? HUGE_VAL : (double)NAN;
    }
    return (half & 0x8000) != 0 ? -size : size;
}

/* The largest difference between elements. */
static double difference(const piece *one, const unsigned char *got, const unsigned char *expected)
{
    double largest = 0.0;
    const unsigned long size = one->numbers == FLOAT32 ? 4u : 2u;
    for (unsigned long i = 0; i + size <= one->bytes; i += size) {
        const double a = number(one->numbers, got + i);
        const double b = number(one->numbers, expected + i);
        if (a == b || (isnan(a) && isnan(b))) {
            continue;
        }
        const double error = a < b ? b - a : a - b;
        if (!(error <= DBL_MAX) || one->scale == 0.0) {
            return HUGE_VAL;
        }
        largest = error / one->scale > largest ? error / one->scale : largest;
    }
    return largest;
}

static bool compare(const char *directory, double tolerance)
{
    FILE *const file = open_file(directory, "expected.bin");
    bool good = true;
    for (size_t i = 0; i != PIECES;) {
        const piece *const first = &pieces[i];
        double largest = 0.0;
        bool same = true;
        for (; i != PIECES && pieces[i].result == first->result; ++i) {
            unsigned char *const expected = read_bytes(file, pieces[i].bytes, "expected.bin");
            unsigned char *const got = load_result(directory, &pieces[i]);
            same = same && memcmp(got, expected, pieces[i].bytes) == 0;
            if (first->numbers != EXACT) {
                const double here = difference(&pieces[i], got, expected);
                largest = here > largest ? here : largest;
            }
            free(expected);
            free(got);
        }
        printf("out%lu: ", first->result);
        if (first->numbers != EXACT) {
            const bool near = largest <= tolerance;
            printf("relative difference %.1e%s\n", largest, near ? "" : ", too much");
            good = good && near;
        } else {
            printf("%s\n", same ? "the same" : "not the same, but has to be");
            good = good && same;
        }
    }
    fclose(file);
    return good;
}

/* Whether the storage, if there is one, holds the parameters after one step. */
static bool has_state(const char *directory)
{
#ifdef COMPARE_STATE
    /* The layout and the sequence number; what follows depends on the program. */
    static const unsigned char state[] = COMPARE_STATE;
    unsigned char *const found = read_storage(directory, COMPARE_STATE_OFFSET, sizeof state);
    const bool same = memcmp(found, state, sizeof state) == 0;
    free(found);
    if (!same) {
        fprintf(stderr, "storage.bin does not have the parameters after one step\n");
    }
    return same;
#else
    (void)directory;
    return true;
#endif
}

int main(int argc, char **argv)
{
    char *end = NULL;
    const double tolerance = argc == 3 ? strtod(argv[2], &end) : -1.0;
    if (argc != 3 || end == argv[2] || *end != '\0' || !(tolerance >= 0.0)) {
        fprintf(stderr, "usage: %s DIRECTORY TOLERANCE\n", argv[0]);
        return 2;
    }
    return has_state(argv[1]) && compare(argv[1], tolerance) ? EXIT_SUCCESS : EXIT_FAILURE;
}
