"""Kernels as plain functions in assembly, for the generated C: `poetc --emit=c --kernels=tvm`.

Each PrimFunc (primfunc.py), its loops arranged for the processor (tiling.py), becomes a function
with the prototype that kernels.h has, `void f(const float *, ..., float *)`, which needs neither
TVM's runtime nor its calling convention. The bits are those of the C.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import ir, tirx

from poetc.backends.c.program import Kernel
from poetc.backends.tvm.build import machine
from poetc.backends.tvm.primfunc import prim_func
from poetc.backends.tvm.tiling import Vectors, arrange

CORES = {
    "cortex-m4": {"mtriple": "thumbv7em-none-eabihf", "mcpu": "cortex-m4", "mfloat-abi": "hard"},
    "cortex-m7": {"mtriple": "thumbv7em-none-eabihf", "mcpu": "cortex-m7", "mfloat-abi": "hard"},
}
"""Cores of boards with a unit for floating-point numbers, as LLVM describes them. Without one,
nearly all of the time is in the library that computes with them, whoever makes the loops."""

_SCALARS = Vectors(1, 16)
"""Of those: no vectors. Of 32 registers, half are for what is loaded and computed."""


@dataclass(frozen=True)
class Processor:
    """What assembly is for: a core of a board, or a machine with an operating system."""

    target: tvm.target.Target
    vectors: Vectors
    is_core: bool


def processor(name: str) -> Processor:
    """A core of `CORES`, or a machine of `--emit=tvm`. Raises InputError for an unknown one."""
    if name in CORES:
        target = {"kind": "llvm", "vector-width": 32, **CORES[name]}
        return Processor(tvm.target.Target(target), _SCALARS, True)
    on = machine(name)
    return Processor(on.target, on.vectors, False)


def assembly(kernels: Sequence[Kernel], on: Processor) -> str:
    """The functions as the GNU assembler reads them."""
    functions = {kernel.signature.name: _plain(kernel, on) for kernel in kernels}
    steps = [tirx.transform.FlattenBuffer(), tirx.transform.LowerIntrin()]
    module = tvm.transform.Sequential(steps)(ir.IRModule(functions))
    build = tvm_ffi.get_global_func("target.build.llvm")
    assert build is not None
    text = build(module, on.target).inspect_source("s")
    # Linkers of hosts want the note; those of firmware complain if only some files have it.
    return _without(text, r"\.debug_|\.note\.GNU-stack" if on.is_core else r"\.debug_")


def _plain(kernel: Kernel, on: Processor) -> tirx.PrimFunc:
    """The kernel with pointers in place of tensors that know their places."""
    name, noalias = kernel.signature.name, not kernel.signature.overlapping
    arranged, tiling = arrange(kernel.function, on.vectors)
    made = prim_func(arranged, name, noalias=noalias, tiling=tiling)
    pointers: list[tirx.Var] = []
    declared: list[tirx.Stmt] = []
    for buffer in made.params:
        pointer = tirx.Var(f"{buffer.name}_start", ir.PointerType(ir.PrimType(str(buffer.dtype))))
        pointers.append(pointer)
        declared.append(tirx.Bind(buffer.elem_offset, tirx.const(0, "int32")))
        declared.append(tirx.DeclBuffer(buffer, data=pointer))
    plain = tirx.PrimFunc(pointers, tirx.SeqStmt([*declared, made.body]))
    attributes = {"global_symbol": name, "tirx.noalias": noalias, "target": on.target}
    for key, value in attributes.items():
        plain = plain.with_attr(key, value)
    return plain


_DROPPED = re.compile(r"\s*\.(?:file|loc)\b|\s*[@#]|\s*//")
"""Lines that say where in TIR something is from, and comments."""

_LABEL = re.compile(r"\.L\w+(?=:)")


def _without(text: str, sections: str) -> str:
    """The text without comments, the sections of those names, and labels that only they use."""
    lines: list[str] = []
    kept = True
    for line in text.splitlines():
        section = re.match(r'\s*\.(?:section\s+"?([^\s,"]+)|text\b|data\b)', line)
        if section is not None:
            kept = not re.match(sections, section[1] or "")
        if kept and not _DROPPED.match(line):
            lines.append(line)
    used = Counter(re.findall(r"\.L\w+", "\n".join(lines)))
    unused = [label[0] for line in lines if (label := _LABEL.match(line)) and used[label[0]] == 1]
    dropped = {f"{label}:" for label in unused}
    return "\n".join([*(line for line in lines if line not in dropped), ""])


def frames(text: str) -> dict[str, int]:
    """The stack in bytes that each function of an assembly takes, from its unwind information."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if (label := re.match(r"(\w+):", line)) is not None:
            name = label[1]
        elif (offset := re.match(r"\s*\.cfi_def_cfa_offset (\d+)", line)) is not None:
            found[name] = max(found.get(name, 0), int(offset[1]))
    return found
