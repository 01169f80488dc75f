/* A plugin of QEMU that counts the instructions of the emulated processor, exactly.
 *
 *     qemu-system-arm -plugin count_instructions.so,out=FILE,mark=0x1234,mark=...
 *
 * FILE gets a line "<number of the mark> <count>" whenever the instruction at the address of a mark
 * is about to be executed, with the instructions executed before it, and "end <count>".
 *
 * The plugin interface is that of QEMU 4.2 to 8.2 (version 1). QEMU's package has no header for it, so
 * that the few functions in use are declared here, after its documentation
 * (https://www.qemu.org/docs/master/devel/tcg-plugins.html).
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_MARKS 4096

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { ADD_U64 = 0 };  /* enum qemu_plugin_op */
enum { NO_REGS = 0 };  /* enum qemu_plugin_cb_flags: the callback touches no registers */

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id,
                                           void (*callback)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *instruction);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *instruction, int op,
                                                void *number, uint64_t operand);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *instruction,
                                            void (*callback)(unsigned int, void *), int flags,
                                            void *data);

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

static uint64_t executed;
static uint64_t marks[MOST_MARKS];
static size_t mark_count;
static FILE *output;

static void at_mark(unsigned int processor, void *data)
{
    (void)processor;
    fprintf(output, "%zu %" PRIu64 "\n", (size_t)(uintptr_t)data, executed);
}

/* QEMU translates a block of instructions: each is to be counted, whether or not an exception leaves
 * the block before its end.
 */
static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; ++i) {
        struct qemu_plugin_insn *const instruction = qemu_plugin_tb_get_insn(block, i);
        const uint64_t address = qemu_plugin_insn_vaddr(instruction);
        for (size_t mark = 0; mark < mark_count; ++mark) {
            if (marks[mark] == address) {
                qemu_plugin_register_vcpu_insn_exec_cb(instruction, at_mark, NO_REGS,
                                                       (void *)(uintptr_t)mark);
            }
        }
        qemu_plugin_register_vcpu_insn_exec_inline(instruction, ADD_U64, &executed, 1);
    }
}

__attribute__((destructor)) static void finish(void)
{
    if (output != NULL) {
        fprintf(output, "end %" PRIu64 "\n", executed);
        fclose(output);
    }
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    for (int i = 0; i < argc; ++i) {
        if (strncmp(argv[i], "out=", 4) == 0 && output == NULL) {
            output = fopen(argv[i] + 4, "w");
        } else if (strncmp(argv[i], "mark=", 5) == 0 && mark_count < MOST_MARKS) {
            marks[mark_count++] = strtoull(argv[i] + 5, NULL, 0);
        } else {
            fprintf(stderr, "count_instructions: %s: unknown, or one too many\n", argv[i]);
            return 1;
        }
    }
    if (output == NULL) {
        fprintf(stderr, "count_instructions: out=FILE is missing, or cannot be written\n");
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
