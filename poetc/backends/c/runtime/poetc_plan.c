#include "poetc_plan.h"

#include <stddef.h>

/* A plan, byte by byte, is in poetc/backends/plan/plan.py. */
#define MAGIC 0x01505450u /* "PTP", version 1 */
#define HEADER_BYTES 24u
#define CRC_BYTES 4u
#define MAX_BYTES (1u << 28)
#define WORD_BYTES 4u
#define NO_OPERATION UINT32_MAX

enum { STEP_RUN, STEP_PAGE_IN, STEP_PAGE_OUT, STEP_WAIT };

/* Beside the place of a tensor, which is POETC_PLACE if it is not in the arena, or not any more. */
#define ON_STORAGE 1u
#define ARRIVING 2u
#define LEAVING 0x80000000u

/* A plan while it is read. `at` counts bits. */
typedef struct {
    const poetc_model *model;
    const uint8_t *bytes;
    uint32_t at;
    uint32_t end;
    bool ended; /* more was read than there is */
    uint32_t arena_bytes;
    uint32_t storage_bytes;
    uint32_t steps;
    uint32_t pages;
    uint32_t image_pages;
    uint32_t operations; /* that the plan can name */
    uint32_t named;      /* where their identities are, if they have some */
    uint32_t places;     /* where those of arguments are */
    uint32_t listed;     /* where the list of pages is */
    uint32_t place_bits;
    uint32_t storage_bits;
    uint32_t tensor_bits;
    uint32_t operation_bits;
    uint32_t page_bits;
} reader;

/* A page: its tensor, and its place on storage, of parameters in bank 0. */
typedef struct {
    uint32_t tensor;
    uint32_t offset;
    enum { PAGE_OF_STEP, PAGE_CONSTANT, PAGE_OLD, PAGE_NEW } kind;
} page;

/* A walk through a plan: to check it or, with `run`, to do what it says. */
struct poetc_plan_walk {
    reader plan;
    bool run;
    poetc_store *store;
    poetc_state state; /* if there are parameters on storage */
    uint32_t old_bank;
    uint32_t new_bank;
    /* Transfers that began, that the plan has waited for, and that are over: one that finds no slot
     * waits for the first that has one.
     */
    uint32_t started;
    uint32_t waited;
    uint32_t over;
    uint32_t waited_at; /* the last transfer that was waited for is before this */
    poetc_transfer slot[POETC_PLAN_TRANSFERS];
};

typedef poetc_plan_walk walk;

/* Reading */

static uint32_t bit_length(uint32_t value)
{
    uint32_t bits = 0;
    for (; value != 0; value >>= 1) {
        ++bits;
    }
    return bits;
}

/* Bits for numbers less than `count`. */
static uint32_t width(uint32_t count)
{
    return count == 0 ? 0 : bit_length(count - 1u);
}

/* The bits from `at` on; those beyond the end are 0. */
static uint32_t bits_at(const reader *r, uint32_t at, uint32_t bits)
{
    uint32_t value = 0;
    for (uint32_t have = 0; have < bits && at < r->end;) {
        const uint32_t from = at & 7u;
        const uint32_t left = bits - have;
        const uint32_t some = left < 8u - from ? left : 8u - from;
        value |= (((uint32_t)r->bytes[at >> 3] >> from) & ((1u << some) - 1u)) << have;
        have += some;
        at += some;
    }
    return value;
}

static uint32_t take(reader *r, uint32_t bits)
{
    const uint32_t at = r->at;
    if (bits > r->end - at) {
        r->ended = true;
        r->at = r->end;
        return 0;
    }
    r->at += bits;
    return bits_at(r, at, bits);
}

static uint32_t take_place(reader *r)
{
    return take(r, r->place_bits) * WORD_BYTES;
}

static uint32_t get_u16(const uint8_t *bytes)
{
    return bytes[0] | ((uint32_t)bytes[1] << 8);
}

/* The number of an operation in the table, NO_OPERATION if there is none. */
static uint32_t table_number(const reader *r, uint32_t number)
{
    const poetc_model *const model = r->model;
    if (number >= r->operations) {
        return NO_OPERATION;
    }
    if (model->blocks == NULL) {
        return number;
    }
    const uint32_t identity = bits_at(r, r->named + 32u * number, 32);
    for (uint32_t i = 0; i < model->operations; ++i) {
        if (model->operation[i].identity == identity) {
            return i;
        }
    }
    return NO_OPERATION;
}

static poetc_status open_operations(reader *r)
{
    r->operations = r->model->operations;
    if (r->model->blocks == NULL) {
        return POETC_OK;
    }
    r->operations = take(r, 16);
    r->named = r->at;
    for (uint32_t i = 0; i < r->operations; ++i) {
        (void)take(r, 32);
        if (r->ended) {
            return POETC_PLAN_INVALID;
        }
        if (table_number(r, i) == NO_OPERATION) {
            return POETC_PLAN_FOREIGN;
        }
    }
    return POETC_OK;
}

/* Whether these bytes are a whole plan for this model that there is room for. */
static poetc_status open_plan(const poetc_model *model, const uint8_t *bytes, uint32_t length,
                              reader *r)
{
    if (bytes == NULL || length < HEADER_BYTES + CRC_BYTES
        || poetc_get_u32(bytes) != MAGIC) {
        return POETC_PLAN_DAMAGED;
    }
    const uint32_t whole = poetc_get_u32(bytes + 8);
    if (whole < HEADER_BYTES + CRC_BYTES || whole > length || whole > MAX_BYTES
        || poetc_crc32(bytes, whole - CRC_BYTES) != poetc_get_u32(bytes + (whole - CRC_BYTES))) {
        return POETC_PLAN_DAMAGED;
    }
    if (poetc_get_u32(bytes + 4) != model->identity) {
        return POETC_PLAN_FOREIGN;
    }
    r->model = model;
    r->bytes = bytes;
    r->at = HEADER_BYTES * 8u;
    r->end = (whole - CRC_BYTES) * 8u;
    r->ended = false;
    r->arena_bytes = poetc_get_u32(bytes + 12);
    r->storage_bytes = poetc_get_u32(bytes + 16);
    r->steps = get_u16(bytes + 20);
    r->pages = get_u16(bytes + 22);
    if (r->arena_bytes > model->arena_bytes || r->storage_bytes > model->storage_bytes) {
        return POETC_PLAN_TOO_LARGE;
    }
    const uint32_t start = model->image == NULL ? 0 : model->image->pages_start;
    if (r->arena_bytes % WORD_BYTES != 0 || r->storage_bytes % WORD_BYTES != 0
        || r->storage_bytes < start) {
        return POETC_PLAN_INVALID;
    }
    r->image_pages = model->image == NULL ? 0 : 2u * model->arguments;
    r->place_bits = bit_length(r->arena_bytes / WORD_BYTES);
    r->storage_bits = bit_length(r->storage_bytes / WORD_BYTES);
    r->tensor_bits = width(model->tensors);
    r->page_bits = width(r->image_pages + r->pages);
    const poetc_status status = open_operations(r);
    r->operation_bits = width(r->operations);
    r->places = r->at;
    return status;
}

/* Tensors and their places */

static uint32_t padded(const poetc_model *model, uint32_t tensor)
{
    return (model->bytes[tensor] + (WORD_BYTES - 1u)) & ~(WORD_BYTES - 1u);
}

static uint32_t where(const poetc_model *model, uint32_t tensor)
{
    return model->place[tensor] & POETC_PLACE;
}

static void put(const poetc_model *model, uint32_t tensor, uint32_t place)
{
    model->place[tensor] = (model->place[tensor] & ~POETC_PLACE) | place;
}

static bool moves(const poetc_model *model, uint32_t tensor)
{
    return (model->place[tensor] & (ARRIVING | LEAVING)) != 0;
}

static bool is_readable(const poetc_model *model, uint32_t tensor)
{
    return where(model, tensor) != POETC_PLACE && (model->place[tensor] & ARRIVING) == 0;
}

static bool overlap(uint32_t a, uint32_t a_bytes, uint32_t b, uint32_t b_bytes)
{
    return a_bytes != 0 && b_bytes != 0 && a < b + b_bytes && b < a + a_bytes;
}

/* Whether a tensor in the arena has a byte in common with these. */
static bool lies_in(const poetc_model *model, uint32_t tensor, uint32_t place, uint32_t bytes)
{
    const uint32_t own = where(model, tensor);
    return own != POETC_PLACE && overlap(place, bytes, own, padded(model, tensor));
}

/* Whether bytes are within the arena, and no transfer uses them. */
static bool is_free(const reader *r, uint32_t place, uint32_t bytes)
{
    if (place > r->arena_bytes || bytes > r->arena_bytes - place) {
        return false;
    }
    for (uint32_t tensor = 0; tensor < r->model->tensors; ++tensor) {
        if (moves(r->model, tensor) && lies_in(r->model, tensor, place, bytes)) {
            return false;
        }
    }
    return true;
}

/* Bytes hold something new: tensors `first` to `last`, if anything. Others are gone. */
static void overwrite(const poetc_model *model, uint32_t place, uint32_t bytes, uint32_t first,
                      uint32_t last)
{
    for (uint32_t tensor = 0; tensor < model->tensors; ++tensor) {
        const bool stays = first <= tensor && tensor <= last;
        if (!stays && lies_in(model, tensor, place, bytes)) {
            put(model, tensor, POETC_PLACE);
        }
    }
}

/* Pages */

static uint32_t page_bytes(const poetc_model *model, uint32_t tensor)
{
    const uint32_t bytes = model->bytes[tensor];
    if (model->blocks == NULL || bytes == 0) {
        return POETC_PAGE_BYTES(bytes);
    }
    const uint32_t part = model->blocks->bytes - POETC_TRAILER_BYTES;
    return padded(model, tensor) + (bytes + part - 1u) / part * POETC_TRAILER_BYTES;
}

static page listed_page(const reader *r, uint32_t i)
{
    const uint32_t at = r->listed + i * (r->tensor_bits + r->storage_bits);
    const page found = {
        bits_at(r, at, r->tensor_bits),
        bits_at(r, at + r->tensor_bits, r->storage_bits) * WORD_BYTES,
        PAGE_OF_STEP,
    };
    return found;
}

/* False: there is no such page. */
static bool find_page(const reader *r, uint32_t number, page *found)
{
    const poetc_model *const model = r->model;
    if (number >= r->image_pages) {
        if (number - r->image_pages >= r->pages) {
            return false;
        }
        *found = listed_page(r, number - r->image_pages);
        return true;
    }
    const bool is_new = number >= model->arguments;
    const uint32_t i = is_new ? number - model->arguments : number;
    const poetc_argument *const argument = &model->argument[i];
    found->offset = argument->page;
    found->tensor = is_new ? argument->new_value : i;
    if (is_new) {
        found->kind = PAGE_NEW;
    } else {
        found->kind = argument->new_value == POETC_NO_TENSOR ? PAGE_CONSTANT : PAGE_OLD;
    }
    return argument->page != POETC_IN_ARENA && found->tensor != POETC_NO_TENSOR;
}

/* Whether a tensor is a parameter on storage, or the new value of one. */
static bool is_of_image(const poetc_model *model, uint32_t tensor)
{
    for (uint32_t i = 0; i < model->arguments; ++i) {
        if (model->argument[i].page != POETC_IN_ARENA
            && (i == tensor || model->argument[i].new_value == tensor)) {
            return true;
        }
    }
    return false;
}

static bool check_pages(reader *r)
{
    const poetc_model *const model = r->model;
    const uint32_t start = model->image == NULL ? 0 : model->image->pages_start;
    r->listed = r->at;
    for (uint32_t i = 0; i < r->pages; ++i) {
        const uint32_t tensor = take(r, r->tensor_bits);
        const uint32_t offset = take(r, r->storage_bits) * WORD_BYTES;
        if (r->ended || tensor >= model->tensors || is_of_image(model, tensor) || offset < start
            || offset > r->storage_bytes
            || page_bytes(model, tensor) > r->storage_bytes - offset
            || (i > 0 && listed_page(r, i - 1u).tensor >= tensor)) {
            return false;
        }
    }
    return true;
}

/* The page of a tensor. False: it has none. */
static bool page_of(const reader *r, uint32_t tensor, page *found)
{
    const poetc_model *const model = r->model;
    for (uint32_t i = 0; i < model->arguments; ++i) {
        if (model->argument[i].page != POETC_IN_ARENA
            && (i == tensor || model->argument[i].new_value == tensor)) {
            return find_page(r, i == tensor ? i : model->arguments + i, found);
        }
    }
    for (uint32_t i = 0; i < r->pages; ++i) {
        *found = listed_page(r, i);
        if (found->tensor == tensor) {
            return true;
        }
    }
    return false;
}

/* A page is about to be written: those that it overlaps are gone. False if one is being written. */
static bool drop_pages(const reader *r, const page *written)
{
    const poetc_model *const model = r->model;
    if (written->kind != PAGE_OF_STEP) {
        /* Parameters have places of their own. */
        return true;
    }
    const uint32_t bytes = page_bytes(model, written->tensor);
    for (uint32_t i = 0; i < r->pages; ++i) {
        const page other = listed_page(r, i);
        if (overlap(written->offset, bytes, other.offset, page_bytes(model, other.tensor))) {
            if ((model->place[other.tensor] & LEAVING) != 0) {
                return false;
            }
            model->place[other.tensor] &= ~ON_STORAGE;
        }
    }
    return true;
}

/* Steps. Each is checked, also while the plan runs. */

static bool may_share(const poetc_kernel *kernel, uint32_t result, uint32_t operand)
{
    for (uint32_t i = 0; i < kernel->pairs; ++i) {
        if (kernel->pair[2u * i] == result && kernel->pair[2u * i + 1u] == operand) {
            return true;
        }
    }
    return false;
}

/* Whether an operand, or after them a result, is on storage while the kernel runs. */
static bool is_streamed(const poetc_kernel *kernel, uint32_t position)
{
    for (uint32_t i = 0; i < kernel->streamed; ++i) {
        if (kernel->stream[i] == position) {
            return true;
        }
    }
    return false;
}

static bool is_made_in_tiles(const poetc_kernel *kernel, uint32_t result)
{
    return is_streamed(kernel, kernel->operands + result);
}

/* Puts result `i` of an operation where the plan says: in the arena, or to its page. */
static bool place_result(reader *r, const poetc_operation *operation, uint32_t i)
{
    const poetc_model *const model = r->model;
    const uint32_t tensor = operation->result + i;
    const uint32_t bytes = padded(model, tensor);
    if (is_made_in_tiles(operation->kernel, i)) {
        page to = {0, 0, PAGE_OF_STEP};
        const bool good = !moves(model, tensor) && page_of(r, tensor, &to) && drop_pages(r, &to);
        put(model, tensor, POETC_PLACE);
        return good;
    }
    const uint32_t place = take_place(r);
    if (r->ended || moves(model, tensor) || !is_free(r, place, bytes)) {
        return false;
    }
    for (uint32_t o = 0; o < operation->kernel->operands; ++o) {
        const uint32_t operand = operation->operand[o];
        if (is_streamed(operation->kernel, o)) {
            continue;
        }
        const bool same = where(model, operand) == place && padded(model, operand) == bytes;
        if (lies_in(model, operand, place, bytes)
            && !(same && may_share(operation->kernel, i, o))) {
            return false;
        }
    }
    for (uint32_t k = 0; k < i; ++k) {
        if (lies_in(model, operation->result + k, place, bytes)) {
            return false;
        }
    }
    put(model, tensor, place);
    return true;
}

static bool is_workspace(const reader *r, const poetc_operation *operation, uint32_t place)
{
    const poetc_model *const model = r->model;
    const poetc_kernel *const kernel = operation->kernel;
    if (r->ended || !is_free(r, place, kernel->workspace_bytes)) {
        return false;
    }
    for (uint32_t o = 0; o < kernel->operands; ++o) {
        if (!is_streamed(kernel, o)
            && lies_in(model, operation->operand[o], place, kernel->workspace_bytes)) {
            return false;
        }
    }
    for (uint32_t k = 0; k < kernel->results; ++k) {
        if (lies_in(model, operation->result + k, place, kernel->workspace_bytes)) {
            return false;
        }
    }
    return true;
}

static poetc_status run_operation(walk *w)
{
    reader *const r = &w->plan;
    const poetc_model *const model = r->model;
    const uint32_t number = table_number(r, take(r, r->operation_bits));
    if (r->ended || number == NO_OPERATION) {
        return POETC_PLAN_INVALID;
    }
    const poetc_operation *const operation = &model->operation[number];
    const poetc_kernel *const kernel = operation->kernel;
    for (uint32_t o = 0; o < kernel->operands; ++o) {
        if (!is_streamed(kernel, o) && !is_readable(model, operation->operand[o])) {
            return POETC_PLAN_INVALID;
        }
    }
    for (uint32_t i = 0; i < kernel->results; ++i) {
        if (!place_result(r, operation, i)) {
            return POETC_PLAN_INVALID;
        }
    }
    /* Now that pages of results are about to be made, which may lie over those of others. */
    for (uint32_t o = 0; o < kernel->operands; ++o) {
        const uint32_t operand = operation->operand[o];
        if (is_streamed(kernel, o)
            && ((model->place[operand] & ON_STORAGE) == 0 || moves(model, operand))) {
            return POETC_PLAN_INVALID;
        }
    }
    uint32_t workspace = 0;
    if (kernel->workspace_bytes != 0) {
        workspace = take_place(r);
        if (!is_workspace(r, operation, workspace)) {
            return POETC_PLAN_INVALID;
        }
    }
    if (w->run && kernel->tiles == NULL) {
        kernel->run(operation, workspace);
    } else if (w->run) {
        const poetc_status status = kernel->tiles(operation, workspace, w);
        if (status != POETC_OK) {
            return status;
        }
    }
    const uint32_t first = operation->result;
    const uint32_t last = first + kernel->results - 1u;
    overwrite(model, workspace, kernel->workspace_bytes, first, last);
    for (uint32_t i = 0; i < kernel->results; ++i) {
        if (is_made_in_tiles(kernel, i)) {
            model->place[first + i] |= ON_STORAGE;
        } else {
            overwrite(model, where(model, first + i), padded(model, first + i), first, last);
        }
    }
    return POETC_OK;
}

/* The end of the first transfer that is not over. */
static poetc_status end_transfer(walk *w)
{
    return poetc_page_wait(w->store, &w->slot[w->over++ % POETC_PLAN_TRANSFERS]);
}

static poetc_status take_slot(walk *w, poetc_transfer **slot)
{
    const bool full = w->started - w->over == POETC_PLAN_TRANSFERS;
    *slot = &w->slot[w->started++ % POETC_PLAN_TRANSFERS];
    return full ? end_transfer(w) : POETC_OK;
}

/* Of a page of this step: not that of any other. Without parameters on storage nothing tells pages
 * apart.
 */
static uint32_t step_tag(const walk *w, const page *p)
{
    return w->plan.model->image == NULL ? 0 : w->state.new_tag + 1u + p->tensor;
}

/* The tag of this step: of its plan, its place in the sequence, and all arguments in RAM. */
static void tag_walk(walk *w)
{
    const reader *const r = &w->plan;
    const poetc_model *const model = r->model;
    uint32_t tag = poetc_get_u32(r->bytes + r->end / 8u);
    tag = model->image->tagged_word(tag, w->state.sequence);
    for (uint32_t i = 0; i < model->arguments; ++i) {
        if (model->argument[i].page == POETC_IN_ARENA) {
            tag = model->image->tagged_all(tag, model->arena + where(model, i), model->bytes[i]);
        }
    }
    w->state.new_tag = tag;
}

/* The page where and as it is in this step. */
static poetc_block_page page_now(const walk *w, const page *p)
{
    const poetc_model *const model = w->plan.model;
    poetc_block_page now = {p->offset, model->bytes[p->tensor], step_tag(w, p), 0, NULL};
    if (model->blocks != NULL) {
        now.block_bytes = model->blocks->bytes;
        now.block = model->blocks->block;
    }
    if (p->kind == PAGE_OLD) {
        now.offset += w->old_bank;
        now.tag = w->state.old_tag;
    } else if (p->kind == PAGE_NEW) {
        now.offset += w->new_bank;
        now.tag = w->state.new_tag;
    } else if (p->kind == PAGE_CONSTANT) {
        now.tag = 0;
    }
    return now;
}

static poetc_status page_in(walk *w)
{
    reader *const r = &w->plan;
    const poetc_model *const model = r->model;
    page from = {0, 0, PAGE_OF_STEP};
    const bool found = find_page(r, take(r, r->page_bits), &from);
    const uint32_t place = take_place(r);
    if (r->ended || !found || (model->place[from.tensor] & ON_STORAGE) == 0
        || moves(model, from.tensor) || !is_free(r, place, padded(model, from.tensor))) {
        return POETC_PLAN_INVALID;
    }
    put(model, from.tensor, place);
    overwrite(model, place, padded(model, from.tensor), from.tensor, from.tensor);
    model->place[from.tensor] |= ARRIVING;
    if (!w->run) {
        ++w->started;
        return POETC_OK;
    }
    const poetc_block_page now = page_now(w, &from);
    if (model->blocks != NULL) {
        /* In blocks, pages are moved where they stand. */
        ++w->started;
        ++w->over;
        return model->blocks->page_in(w->store, &now, model->arena + place);
    }
    poetc_transfer *slot = NULL;
    const poetc_status status = take_slot(w, &slot);
    return status != POETC_OK ? status
                              : poetc_page_in_start(w->store, slot, now.offset,
                                                    model->arena + place, now.bytes, now.tag);
}

static poetc_status page_out(walk *w)
{
    reader *const r = &w->plan;
    const poetc_model *const model = r->model;
    page to = {0, 0, PAGE_OF_STEP};
    const bool found = find_page(r, take(r, r->page_bits), &to);
    if (r->ended || !found || to.kind == PAGE_OLD || to.kind == PAGE_CONSTANT
        || !is_readable(model, to.tensor) || moves(model, to.tensor) || !drop_pages(r, &to)) {
        return POETC_PLAN_INVALID;
    }
    model->place[to.tensor] |= LEAVING;
    if (!w->run) {
        ++w->started;
        return POETC_OK;
    }
    uint8_t *const data = model->arena + where(model, to.tensor);
    const poetc_block_page now = page_now(w, &to);
    if (model->blocks != NULL) {
        ++w->started;
        ++w->over;
        return model->blocks->page_out(w->store, &now, data);
    }
    poetc_transfer *slot = NULL;
    const poetc_status status = take_slot(w, &slot);
    if (status != POETC_OK) {
        return status;
    }
    return to.kind == PAGE_NEW
               ? model->image->out_start(w->store, slot, now.offset, data, now.bytes, now.tag)
               : poetc_page_out_start(w->store, slot, now.offset, data, now.bytes, now.tag);
}

/* Finds the page of the first transfer that was not waited for: there is one. */
static bool oldest_transfer(walk *w, page *found)
{
    const reader *const r = &w->plan;
    while (w->waited_at < r->at) {
        const uint32_t kind = bits_at(r, w->waited_at, 2);
        const uint32_t at = w->waited_at + 2u;
        if (kind == STEP_PAGE_IN || kind == STEP_PAGE_OUT) {
            const uint32_t place_bits = kind == STEP_PAGE_IN ? r->place_bits : 0;
            w->waited_at = at + r->page_bits + place_bits;
            return find_page(r, bits_at(r, at, r->page_bits), found);
        }
        w->waited_at = at;
        if (kind == STEP_RUN) {
            const uint32_t number = table_number(r, bits_at(r, at, r->operation_bits));
            if (number == NO_OPERATION) {
                return false;
            }
            const poetc_kernel *const kernel = r->model->operation[number].kernel;
            uint32_t places = kernel->workspace_bytes != 0 ? 1u : 0u;
            for (uint32_t i = 0; i < kernel->results; ++i) {
                places += is_made_in_tiles(kernel, i) ? 0u : 1u;
            }
            w->waited_at += r->operation_bits + places * r->place_bits;
        }
    }
    return false;
}

static poetc_status wait_for_transfer(walk *w)
{
    const poetc_model *const model = w->plan.model;
    page done = {0, 0, PAGE_OF_STEP};
    if (w->waited == w->started || !oldest_transfer(w, &done)) {
        return POETC_PLAN_INVALID;
    }
    if ((model->place[done.tensor] & LEAVING) != 0) {
        model->place[done.tensor] |= ON_STORAGE;
    }
    model->place[done.tensor] &= ~(ARRIVING | LEAVING);
    ++w->waited;
    return w->run && w->over < w->waited ? end_transfer(w) : POETC_OK;
}

/* The whole of it */

/* Arguments are where the plan says, all else is nowhere. */
static bool begin(walk *w)
{
    reader *const r = &w->plan;
    const poetc_model *const model = r->model;
    for (uint32_t tensor = 0; tensor < model->tensors; ++tensor) {
        model->place[tensor] = POETC_PLACE;
    }
    for (uint32_t i = 0; i < model->arguments; ++i) {
        if (model->argument[i].page != POETC_IN_ARENA) {
            model->place[i] |= ON_STORAGE;
            continue;
        }
        const uint32_t place = take_place(r);
        if (r->ended || !is_free(r, place, padded(model, i))) {
            return false;
        }
        for (uint32_t k = 0; k < i; ++k) {
            if (lies_in(model, k, place, padded(model, i))) {
                return false;
            }
        }
        put(model, i, place);
    }
    return check_pages(r);
}

static uint32_t argument_place(const reader *r, uint32_t i)
{
    uint32_t at = r->places;
    for (uint32_t k = 0; k < i; ++k) {
        at += r->model->argument[k].page == POETC_IN_ARENA ? r->place_bits : 0;
    }
    return bits_at(r, at, r->place_bits) * WORD_BYTES;
}

/* All results and parameters are where they belong, and the plan has no more to say. */
static bool is_complete(walk *w)
{
    reader *const r = &w->plan;
    const poetc_model *const model = r->model;
    const uint32_t rest = r->end - r->at;
    if (w->waited != w->started || rest >= 8u || take(r, rest) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < model->results; ++i) {
        const uint32_t tensor = model->result[i];
        if (!is_of_image(model, tensor) && !is_readable(model, tensor)) {
            return false;
        }
    }
    for (uint32_t i = 0; i < model->arguments; ++i) {
        const poetc_argument *const argument = &model->argument[i];
        const uint32_t last = argument->new_value == POETC_NO_TENSOR ? i : argument->new_value;
        if (argument->page != POETC_IN_ARENA) {
            if ((model->place[last] & ON_STORAGE) == 0) {
                return false;
            }
        } else if (argument->parameter
                   && (!is_readable(model, last) || where(model, last) != argument_place(r, i))) {
            return false;
        }
    }
    return true;
}

static poetc_status follow(walk *w)
{
    if (!begin(w)) {
        return POETC_PLAN_INVALID;
    }
    if (w->run && w->plan.model->image != NULL) {
        tag_walk(w);
    }
    w->waited_at = w->plan.at;
    for (uint32_t step = 0; step < w->plan.steps; ++step) {
        poetc_status status = POETC_OK;
        switch (take(&w->plan, 2)) {
        case STEP_RUN:
            status = run_operation(w);
            break;
        case STEP_PAGE_IN:
            status = page_in(w);
            break;
        case STEP_PAGE_OUT:
            status = page_out(w);
            break;
        default:
            status = wait_for_transfer(w);
            break;
        }
        if (status != POETC_OK) {
            return status;
        }
    }
    return !w->plan.ended && is_complete(w) ? POETC_OK : POETC_PLAN_INVALID;
}

static poetc_status check_plan(const poetc_model *model, const uint8_t *plan, uint32_t length)
{
    walk w = {0};
    const poetc_status status = open_plan(model, plan, length, &w.plan);
    return status == POETC_OK ? follow(&w) : status;
}

poetc_store *poetc_plan_store(const walk *w)
{
    return w->store;
}

poetc_block_page poetc_plan_page(const walk *w, uint32_t tensor)
{
    page found = {0, 0, PAGE_OF_STEP};
    (void)page_of(&w->plan, tensor, &found);
    return page_now(w, &found);
}

poetc_status poetc_plan_load(const poetc_model *model, const uint8_t *plan, uint32_t length)
{
    poetc_plan_state *const state = model->state;
    const poetc_status status = check_plan(model, plan, length);
    if (status == POETC_OK) {
        state->plan.bytes = plan;
        state->plan.length = length;
    } else if (state->plan.bytes != NULL) {
        /* For where its results are. If it is not what it was, its next step says so. */
        (void)check_plan(model, state->plan.bytes, state->plan.length);
    }
    return status;
}

poetc_status poetc_plan_step(const poetc_model *model, poetc_store *store)
{
    const poetc_plan_state *const state = model->state;
    walk w = {0};
    w.run = true;
    w.store = store;
    poetc_status status = open_plan(model, state->plan.bytes, state->plan.length, &w.plan);
    const poetc_plan_image *const image = model->image;
    if (status == POETC_OK && image != NULL) {
        status = image->open(store, image->layout_id, image->unit_bytes, &w.state);
        /* Parameters are read from one bank, new values written to the other. */
        w.old_bank = (w.state.sequence & 1u) * image->bank_bytes;
        w.new_bank = image->bank_bytes - w.old_bank;
    }
    if (status == POETC_OK) {
        status = follow(&w);
        if (status != POETC_OK) {
            /* Nothing uses the arena any more when the step is over. */
            return poetc_pages_abandon(store, w.slot, POETC_PLAN_TRANSFERS, status);
        }
    }
    /* Until here the old values are the current ones, then the new ones are. */
    if (status == POETC_OK && image != NULL && image->bank_bytes != 0) {
        status = image->commit(store, image->layout_id, image->unit_bytes, &w.state);
    }
    return status;
}

void *poetc_plan_argument(const poetc_model *model, uint32_t i)
{
    reader r;
    const poetc_plan_state *const state = model->state;
    if (model->argument[i].page != POETC_IN_ARENA
        || open_plan(model, state->plan.bytes, state->plan.length, &r) != POETC_OK) {
        return NULL;
    }
    const uint32_t place = argument_place(&r, i);
    const uint32_t bytes = padded(model, i);
    const bool fits = place <= model->arena_bytes && bytes <= model->arena_bytes - place;
    return fits ? model->arena + place : NULL;
}

const void *poetc_plan_result(const poetc_model *model, uint32_t i)
{
    const uint32_t tensor = model->result[i];
    const bool there = model->state->plan.bytes != NULL && is_readable(model, tensor);
    return there && !is_of_image(model, tensor) ? model->arena + where(model, tensor) : NULL;
}
