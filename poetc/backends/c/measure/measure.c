#include "measure.h"

#include <stddef.h>

#include "board.h"
#include "measured.h"
#include "poetc_image.h"

/* Repeated where there is a clock: an odd number of times, up to this many ticks in all. */
#define MOST_SAMPLES 15u
#define SHARE_OF_SECOND 8u

static struct {
    uint32_t begin;
    uint32_t count;
    uint32_t total;
    uint32_t ticks[MOST_SAMPLES];
} samples;

static void print_number(uint32_t number)
{
    char text[11];
    uint32_t start = sizeof text - 1;
    text[start] = '\0';
    do {
        --start;
        text[start] = (char)('0' + (char)(number % 10u));
        number /= 10u;
    } while (number != 0);
    board_print(" ");
    board_print(&text[start]);
}

__attribute__((noinline)) void measure_begin(void)
{
    samples.begin = board_ticks();
}

__attribute__((noinline)) void measure_end(void)
{
    const uint32_t ticks = board_ticks() - samples.begin;
    /* In order, for the median. */
    uint32_t at = samples.count++;
    for (; at > 0 && samples.ticks[at - 1] > ticks; --at) {
        samples.ticks[at] = samples.ticks[at - 1];
    }
    samples.ticks[at] = ticks;
    samples.total += ticks;
}

static void print_median(void)
{
    print_number(samples.ticks[samples.count / 2u]);
    board_print("\n");
    samples.count = 0;
    samples.total = 0;
}

bool measure_again(void)
{
    const uint32_t second = board_ticks_per_second();
    const bool enough = second == 0 || samples.count == MOST_SAMPLES
                        || (samples.count >= 3u && samples.count % 2u == 1u
                            && samples.total >= second / SHARE_OF_SECOND);
    if (enough) {
        print_median();
    }
    return !enough;
}

void measure_kernel(const char *key)
{
    board_print("kernel ");
    board_print(key);
}

void measure_fill(void *data, uint32_t elements, uint32_t size, const void *source, uint32_t count)
{
    uint8_t *to = data;
    const uint8_t *const from = source;
    uint32_t random = 0x2545f491u;
    for (uint32_t i = 0; i < elements; ++i) {
        uint32_t pick = i;
        if (count != elements) {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            pick = random % count;
        }
        for (uint32_t k = 0; k < size; ++k) {
            *to++ = from[pick * size + k];
        }
    }
}

static bool failed(poetc_status status)
{
    if (status != POETC_OK) {
        board_print("failed: ");
        board_print(poetc_status_text(status));
        board_print("\n");
    }
    return status != POETC_OK;
}

/* Where pages are, behind the records of the image, and how large: within blocks of 512 bytes, across
 * them, whole ones.
 */
static const uint16_t pages[][2] = {
    {0, 4},       {132, 60},    {512, 508},   {1276, 200}, {1536, 1020}, {2676, 508},
    {3328, 1500}, {4976, 2044}, {7168, 2044}, {9376, 600}, {10240, 28},  {10776, 1200},
};
#define PAGES (sizeof pages / sizeof pages[0])

static uint32_t offset_of(uint32_t page)
{
    return 2u * MEASURED_UNIT_BYTES + pages[page][0];
}

static bool measure_page(poetc_store *store, bool out, uint32_t page)
{
    const uint32_t offset = offset_of(page);
    const uint32_t bytes = pages[page][1];
    void *const data = measured_buffer();
    poetc_status status = POETC_OK;
    measure_fill(data, bytes, 1, &pages[0][0], sizeof pages);
    if (out) {
        measure_begin();
        status = poetc_page_out(store, offset, data, bytes);
        measure_end();
    } else {
        measure_begin();
        status = poetc_page_in(store, offset, data, bytes);
        measure_end();
    }
    if (failed(status)) {
        return false;
    }
    board_print(out ? "out" : "in");
    print_number(offset);
    print_number(bytes);
    print_median();
    return true;
}

static bool measure_sync(poetc_store *store)
{
    measure_begin();
    const poetc_status status = poetc_sync(store);
    measure_end();
    board_print("sync");
    print_median();
    return !failed(status);
}

/* The records are in the first two blocks, away from all pages. */
static bool measure_image(poetc_store *store, uint32_t sequence)
{
    poetc_state state = {sequence - 1u, 0, 0};
    measure_begin();
    const poetc_status commit = poetc_image_commit(store, 1u, MEASURED_UNIT_BYTES, &state);
    measure_end();
    if (failed(commit)) {
        return false;
    }
    board_print("commit");
    print_median();
    measure_begin();
    const poetc_status open = poetc_image_open(store, 1u, MEASURED_UNIT_BYTES, &state);
    measure_end();
    if (failed(open)) {
        return false;
    }
    board_print("open");
    print_median();
    return true;
}

static bool measure_transfers(poetc_store *store)
{
    /* Media write for the first time at their own pace. */
    for (uint32_t page = 0; page < PAGES; ++page) {
        if (failed(poetc_page_out(store, offset_of(page), measured_buffer(), pages[page][1]))) {
            return false;
        }
    }
    const poetc_state first = {0, 0, 0};
    const poetc_state second = {1u, 0, 0};
    if (failed(poetc_image_commit(store, 1u, MEASURED_UNIT_BYTES, &first))
        || failed(poetc_image_commit(store, 1u, MEASURED_UNIT_BYTES, &second))) {
        return false;
    }
    /* Several times where there is a clock; poetc takes the median of each. */
    const uint32_t rounds = board_ticks_per_second() == 0 ? 1u : 7u;
    for (uint32_t round = 0; round < rounds; ++round) {
        if (!measure_sync(store)) {
            return false;
        }
        for (uint32_t page = 0; page < PAGES; ++page) {
            if (!measure_page(store, true, page)) {
                return false;
            }
        }
        for (uint32_t page = 0; page < PAGES; ++page) {
            if (!measure_page(store, false, page)) {
                return false;
            }
        }
        for (uint32_t page = PAGES; page > 0; --page) {
            if (!measure_page(store, page % 2u == 0, page - 1u)) {
                return false;
            }
        }
        if (!measure_image(store, 3u + round)) {
            return false;
        }
    }
    return true;
}

int main(void)
{
    board_init();
    board_print("poetc-measure 1 " MEASURED_ON);
    print_number(board_ticks_per_second());
    print_number(MEASURED_BLOCK_BYTES);
    board_print(" " __VERSION__ "\nnothing");
    do {
        measure_begin();
        measure_end();
    } while (measure_again());
    measured_kernels();
    poetc_store *store = NULL;
    bool good = !failed(board_open_store(&store, false)) && measure_transfers(store);
    good = good && !failed(board_close_store());
    board_print(good ? "end\n" : "incomplete\n");
    board_exit(good ? 0 : 1);
    return good ? 0 : 1;
}
