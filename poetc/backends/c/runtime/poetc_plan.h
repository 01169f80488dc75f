/* Plans: schedules of a model as byte strings, and what runs them.
 *
 * A program has the kernels of a model and a table of its operations built in; which of them run, in
 * which order, where in the arena, and what is moved to storage and back is in a plan, made by
 * `poetc --emit=plan`. A plan is checked as a whole before any of it runs: every kernel reads what the
 * table says, from bytes that hold it, writes over nothing that it works on, and the step ends with
 * all results. So whatever its bytes are, a plan that is accepted computes what the model computes.
 */
#ifndef POETC_PLAN_H
#define POETC_PLAN_H

#include "poetc_image.h"
#include "poetc_slice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many transfers may be under way; a plan that has more waits earlier than it says. Each takes
 * some 40 bytes of stack.
 */
#ifndef POETC_PLAN_TRANSFERS
#define POETC_PLAN_TRANSFERS 4u
#endif

#define POETC_NO_TENSOR 0xffffu
#define POETC_IN_ARENA 0xffffffffu

typedef struct poetc_operation poetc_operation;
typedef struct poetc_plan_walk poetc_plan_walk;

typedef struct {
    /* Runs the kernel on the tensors of an operation, wherever they are. */
    void (*run)(const poetc_operation *operation, uint32_t workspace);
    /* The same in tiles, or null. */
    poetc_status (*tiles)(const poetc_operation *operation, uint32_t workspace,
                          const poetc_plan_walk *walk);
    uint32_t workspace_bytes;
    uint16_t operands;
    uint16_t results;
    /* Result and operand, by turns, that may be one buffer. */
    uint16_t pairs;
    /* How many of operands and results are on storage, and their positions, results last. */
    uint16_t streamed;
    const uint16_t *pair;
    const uint16_t *stream;
} poetc_kernel;

/* A kernel, the tensors that it reads, and the first of those that it makes. Where pages are in
 * blocks, plans name it by `identity`: tiles are made for one schedule, and others have others.
 */
struct poetc_operation {
    const poetc_kernel *kernel;
    const uint16_t *operand;
    uint32_t identity;
    uint16_t result;
};

/* Argument i is tensor i. `new_value`: the tensor that updates it, or POETC_NO_TENSOR. `page`: its
 * place on storage, in bank 0, or POETC_IN_ARENA.
 */
typedef struct {
    uint32_t page;
    uint16_t new_value;
    bool parameter;
} poetc_argument;

/* Parameters on storage. The functions are those of poetc_image.h, which other programs do without. */
typedef struct {
    uint32_t layout_id;
    uint32_t unit_bytes;
    uint32_t bank_bytes;
    uint32_t pages_start; /* where pages of a step may begin */
    poetc_status (*open)(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                         poetc_state *state);
    poetc_status (*commit)(poetc_store *store, uint32_t layout_id, uint32_t unit_bytes,
                           const poetc_state *state);
    poetc_status (*out_start)(poetc_store *store, poetc_transfer *transfer, uint32_t offset,
                              void *data, uint32_t length, uint32_t tag);
    uint32_t (*tagged_word)(uint32_t tag, uint32_t word);
    uint32_t (*tagged_all)(uint32_t tag, const void *data, uint32_t length);
} poetc_plan_image;

/* Pages in blocks. The functions are those of poetc_slice.h, which other programs do without. */
typedef struct {
    uint32_t bytes; /* of a block */
    uint8_t *block;
    poetc_status (*page_in)(poetc_store *store, const poetc_block_page *page, void *data);
    poetc_status (*page_out)(poetc_store *store, const poetc_block_page *page, const void *data);
} poetc_plan_blocks;

/* The plan that runs. It stays where the caller has it, in flash or in RAM. */
typedef union {
    struct {
        const uint8_t *bytes; /* null: none */
        uint32_t length;
    } plan;
    uint32_t room[4]; /* as many bytes on every target */
} poetc_plan_state;

/* Everything that is built in. Sizes are in bytes. */
typedef struct {
    uint32_t identity; /* of this table: plans name it */
    uint32_t arena_bytes;
    uint32_t storage_bytes;
    uint16_t arguments;
    uint16_t tensors;
    uint16_t operations;
    uint16_t results;
    const poetc_argument *argument;
    const uint32_t *bytes; /* of each tensor */
    const poetc_operation *operation;
    const uint16_t *result; /* the tensor of each result */
    const poetc_plan_image *image; /* null: parameters are in the arena */
    const poetc_plan_blocks *blocks; /* null: each page is in one piece */
    uint8_t *arena;
    /* In RAM: the plan, and for each tensor its place in the arena and flags. */
    poetc_plan_state *state;
    uint32_t *place;
} poetc_model;

/* The bits of `place` that are a place. */
#define POETC_PLACE 0x7ffffffcu

/* Checks a plan of `length` bytes, or less, and makes it the one that runs. Another plan has arguments
 * elsewhere, so they are to be written anew. A plan that is refused changes nothing: the one before,
 * if there is one, stays.
 */
poetc_status poetc_plan_load(const poetc_model *model, const uint8_t *plan, uint32_t length);

/* One step. The plan must still be what was loaded: its CRC is checked again. */
poetc_status poetc_plan_step(const poetc_model *model, poetc_store *store);

/* For a kernel in tiles: the store of a step, and the page of an operand or result there. */
poetc_store *poetc_plan_store(const poetc_plan_walk *walk);
poetc_block_page poetc_plan_page(const poetc_plan_walk *walk, uint32_t tensor);

/* Argument i before a step, result i after it; null if on storage, or without a plan. */
void *poetc_plan_argument(const poetc_model *model, uint32_t i);
const void *poetc_plan_result(const poetc_model *model, uint32_t i);

#ifdef __cplusplus
}
#endif

#endif
