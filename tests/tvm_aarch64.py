"""Compiled kernels of a step called one by one, from C: for processors that only an emulator runs,
where there is no virtual machine of TVM."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tvm_support  # noqa: F401 - which skips what is here where TVM is not installed
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.hints import isa

from poetc.backends.c.buffers import kernel_buffers
from poetc.backends.c.layout import argument_places, result_places
from poetc.backends.c.printer import tables_of
from poetc.backends.tvm.build import compile_graph, machine, write
from poetc.backends.tvm.module import table_values
from poetc.backends.tvm.scalars import element_dtype
from poetc.backends.tvm.tiles import elements_of
from poetc.ir.graph import graphs, tensor_bytes
from poetc.ir.poet import AnyPageIn, AnyPageOut, ComputeOp, offset_of

CROSS = "aarch64-linux-gnu-gcc"
QEMU = "qemu-aarch64"

CALLS = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int32_t device_type, device_id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } Type;
typedef struct {
    void *data; Device device; int32_t ndim; Type dtype; int64_t *shape, *strides; uint64_t offset;
} Tensor;
typedef struct { int32_t type, padding; union { int64_t number; Tensor *tensor; } value; } Any;

/* What compiled functions call if their arguments are wrong. */
int TVMFFIErrorSetRaisedFromCStrParts(void) { abort(); }
int TVMFFIErrorSetRaisedFromCStr(void) { abort(); }

#define OPERANDS 256
static uint8_t arena[ARENA] __attribute__((aligned(64)));
static uint8_t tables[TABLES + 4] __attribute__((aligned(64)));
static uint8_t store[STORAGE + 4];
static Any operands[OPERANDS];
static Tensor tensors[OPERANDS];
static int64_t shapes[OPERANDS];
static int count;

static void operand(uint8_t *base, uint32_t offset, int64_t elements, uint8_t code, uint8_t bits)
{
    if (count == OPERANDS) abort();
    shapes[count] = elements;
    tensors[count] = (Tensor){base, {1, 0}, 1, {code, bits, 1}, &shapes[count], 0, offset};
    operands[count].type = 7; /* a pointer to a tensor */
    operands[count].value.tensor = &tensors[count];
    ++count;
}

#define CALL(name) do { Any r = {0}; int name(void *, Any *, int32_t, Any *); \\
    if (name(0, operands, count, &r) != 0) abort(); count = 0; } while (0)

static void file(const char *directory, const char *kind, int i, uint8_t *data, size_t bytes)
{
    char path[4096];
    int writes = strcmp(kind, "out") == 0;
    snprintf(path, sizeof path, "%s/%s%d.bin", directory, kind, i);
    FILE *f = fopen(path, writes ? "wb" : "rb");
    if (f == 0) abort();
    size_t done = writes ? fwrite(data, 1, bytes, f) : fread(data, 1, bytes, f);
    if (done != bytes || fclose(f) != 0) abort();
}

int main(int argc, char **argv)
{
    (void)argc;
"""


_CODES = {"float32": "2, 32", "int32": "0, 32", "int8": "0, 8"}
"""Kind and bits of an element, as TVM's tensors say them."""


def program_of_calls(module: ModuleOp) -> tuple[str, list[np.ndarray]]:
    """C that does the step of a planned graph with its parameters in RAM, and the tables of
    constants that it reads: `main DIRECTORY` with `arg<i>.bin` and `table<i>.bin` in it."""
    graph = graphs(module)[0]
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    lines: list[str] = []
    tables: list[np.ndarray] = []
    places: dict[str, list[int]] = {}
    table_bytes = 0
    for symbol, function in functions.items():
        for table in tables_of(function):
            values = table_values(table)
            size = f"(size_t){values.nbytes}"
            lines.append(
                f'    file(argv[1], "table", {len(tables)}, tables + {table_bytes}, {size});'
            )
            places.setdefault(symbol, []).append(table_bytes)
            tables.append(values)
            table_bytes += -(-values.nbytes // 64) * 64
    for i, place in enumerate(argument_places(graph)):
        assert not place.on_storage and not place.of_caller
        lines.append(f'    file(argv[1], "arg", {i}, arena + {place.offset}, {place.bytes});')
    for op in graph.block.ops:
        if isinstance(op, ComputeOp):
            assert op.kernel is not None
            symbol = op.kernel.root_reference.data
            function = functions[symbol]
            buffers = kernel_buffers(function, op, {})
            for buffer, argument in zip(buffers, function.body.block.args, strict=True):
                assert isa(argument.type, MemRefType)
                code = _CODES[element_dtype(argument.type.element_type)]
                elements = elements_of(argument.type)
                lines.append(f"    operand(arena, {buffer.offset}, {elements}, {code});")
            for at, table in zip(places.get(symbol, ()), tables_of(function), strict=True):
                values = table_values(table)
                code = _CODES[values.dtype.name]
                lines.append(f"    operand(tables, {at}, {values.size}, {code});")
            lines.append(f"    CALL(__tvm_ffi_kernel_{symbol});")
        elif isinstance(op, AnyPageIn | AnyPageOut):
            ram, page = offset_of(op.tensor), offset_of(op.page)
            ends = [f"arena + {ram}", f"store + {page}"]
            to, from_ = ends if isinstance(op, AnyPageIn) else reversed(ends)
            lines.append(f"    memcpy({to}, {from_}, {tensor_bytes(op.tensor.type)});")
    for i, place in enumerate(result_places(graph)):
        lines.append(f'    file(argv[1], "out", {i}, arena + {place.offset}, {place.bytes});')
    sizes = [
        f"#define ARENA {graph.arena_bytes or 0}",
        f"#define STORAGE {graph.storage_bytes or 0}",
        f"#define TABLES {table_bytes}",
    ]
    return "\n".join([*sizes, CALLS, *lines, "    return 0;", "}", ""]), tables


def build_calls(module: ModuleOp, cpu: str, directory: Path) -> Path:
    """The program for an aarch64 processor, its kernels arranged for it; linked statically."""
    on = machine(cpu)
    output = directory / "model.tar"
    write(compile_graph(module, on), str(output), on)
    with tarfile.open(output) as archive:
        # Python 3.11.2, which Debian 12 has, knows no filter; the archive is Debian's own.
        archive.extractall(directory)
    text, tables = program_of_calls(module)
    (directory / "main.c").write_text(text)
    for i, values in enumerate(tables):
        (directory / f"table{i}.bin").write_bytes(values.tobytes())
    program = directory / "step"
    kernels = sorted(str(path) for path in directory.glob("lib*.o"))
    words = [CROSS, "-static", "-O1", "-w", str(directory / "main.c"), *kernels, "-lm"]
    subprocess.run([*words, "-o", str(program)], check=True)
    return program


def run_calls(
    program: Path, cpu: str, arguments: Sequence[np.ndarray], like: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """One step in the emulator; results with the shapes and types of `like`."""
    directory = program.parent
    for i, array in enumerate(arguments):
        (directory / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    subprocess.run([QEMU, "-cpu", cpu, str(program), str(directory)], check=True)
    return [
        np.frombuffer((directory / f"out{i}.bin").read_bytes(), array.dtype).reshape(array.shape)
        for i, array in enumerate(like)
    ]
