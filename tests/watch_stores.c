/* A plugin of QEMU that tells where firmware stores.
 *
 *     qemu-system-arm -plugin watch_stores.so,out=FILE
 *
 * FILE gets three numbers: the lowest and the highest address of a byte that was stored to below
 * 0x40000000, where the peripherals of Cortex-M begin, and the number of such stores. The interface
 * is that of QEMU 4.2 to 8.2 (https://www.qemu.org/docs/master/devel/tcg-plugins.html).
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define PERIPHERALS 0x40000000u

typedef uint64_t plugin_id;
typedef uint32_t memory_info;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { NO_REGS = 0, WRITES = 2 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id,
                                           void (*callback)(plugin_id, struct qemu_plugin_tb *));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *block, size_t i);
unsigned int qemu_plugin_mem_size_shift(memory_info info);
bool qemu_plugin_mem_is_store(memory_info info);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *instruction,
                                      void (*callback)(unsigned int, memory_info, uint64_t, void *),
                                      int flags, int accesses, void *data);

EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

static uint64_t lowest = UINT64_MAX;
static uint64_t highest;
static uint64_t stores;
static FILE *output;

static void stored(unsigned int processor, memory_info info, uint64_t address, void *data)
{
    (void)processor;
    (void)data;
    /* Whatever is asked for, QEMU 7.2 calls this for some loads as well. */
    if (!qemu_plugin_mem_is_store(info) || address >= PERIPHERALS) {
        return;
    }
    const uint64_t last = address + (1u << qemu_plugin_mem_size_shift(info)) - 1;
    lowest = address < lowest ? address : lowest;
    highest = last > highest ? last : highest;
    ++stores;
}

static void translated(plugin_id id, struct qemu_plugin_tb *block)
{
    (void)id;
    const size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; ++i) {
        qemu_plugin_register_vcpu_mem_cb(qemu_plugin_tb_get_insn(block, i), stored, NO_REGS, WRITES,
                                         NULL);
    }
}

__attribute__((destructor)) static void finish(void)
{
    if (output != NULL) {
        fprintf(output, "%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", lowest, highest, stores);
        fclose(output);
    }
}

int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv)
{
    (void)info;
    if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) {
        return 1;
    }
    output = fopen(argv[0] + 4, "w");
    if (output == NULL) {
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    return 0;
}
