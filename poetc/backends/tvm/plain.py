"""Kernels as plain functions in assembly, for the generated C: `poetc --emit=c --kernels=tvm`.

Each PrimFunc (primfunc.py), its loops arranged for the processor (tiling.py), becomes a function
with the prototype that the C has, `void f(const float *, ..., float *)`, which needs neither TVM's
runtime nor its calling convention. The bits are those of the C.
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
from xdsl.dialects import func

from poetc.backends.c.program import Kernel
from poetc.backends.tvm.build import machine
from poetc.backends.tvm.nest import Vectors
from poetc.backends.tvm.pipeline import NOALIAS
from poetc.backends.tvm.primfunc import prim_func
from poetc.backends.tvm.tiles import Tiling
from poetc.backends.tvm.tiling import arrange
from poetc.kernels.access import tiles_of
from poetc.kernels.arrange.tile_functions import for_all_tiles, full_tile

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
    """The processor that assembly is for: a core of a board, or a machine with an operating
    system."""

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
    return "".join(_assembly(kernel, f".L{i}_", on) for i, kernel in enumerate(kernels))


def _assembly(kernel: Kernel, labels: str, on: Processor) -> str:
    """One function; local labels begin with `labels`.

    In a module with others, LLVM would be told of a function that no two of its buffers overlap
    because others promise it.
    """
    function = _plain(kernel, on)
    steps = [tirx.transform.FlattenBuffer(), tirx.transform.LowerIntrin()]
    module = tvm.transform.Sequential(steps)(ir.IRModule({kernel.signature.name: function}))
    build = tvm_ffi.get_global_func("target.build.llvm")
    assert build is not None
    built = build(module, on.target)
    promised = re.search(rf"@{kernel.signature.name}\(.*\bnoalias\b", built.inspect_source("ll"))
    assert not (promised and kernel.signature.overlapping), kernel.signature.name
    # The section of TVM's conversions of half floats. Linkers of hosts want the note; those of
    # firmware complain if only some files have it.
    dropped = r"\.debug_|\.text\.tvm\.fp16" + (r"|\.note\.GNU-stack" if on.is_core else "")
    text = _without(built.inspect_source("s"), dropped)
    return re.sub(r"\.L(?=\w)", labels, text)


def _plain(kernel: Kernel, on: Processor) -> tirx.PrimFunc:
    """The kernel with pointers in place of tensors that know their places."""
    name, noalias = kernel.signature.name, not kernel.signature.overlapping
    arranged, tiling = _arranged(kernel.function, on.vectors)
    made = prim_func(arranged, name, noalias=noalias, tiling=tiling)
    parameters: list[tirx.Var] = []
    declared: list[tirx.Stmt] = []
    for buffer in made.params:
        if isinstance(buffer.ty, ir.PrimType):  # where a tile begins
            parameters.append(buffer)
            continue
        type_ = ir.PointerType(ir.PrimType(str(buffer.dtype)))
        pointer, data = (tirx.Var(f"{buffer.name}_{what}", type_) for what in ("start", "data"))
        parameters.append(pointer)
        # Without a binding of the pointer, TVM tells LLVM that no two buffers overlap, whatever
        # the attribute says.
        declared.append(tirx.Bind(data, pointer))
        declared.append(tirx.Bind(buffer.elem_offset, tirx.const(0, "int32")))
        declared.append(tirx.DeclBuffer(buffer, data=data))
    plain = tirx.PrimFunc(parameters, tirx.SeqStmt([*declared, made.body]))
    attributes = {"global_symbol": name, NOALIAS: noalias, "target": on.target}
    for key, value in attributes.items():
        plain = plain.with_attr(key, value)
    return plain


def _arranged(function: func.FuncOp, vectors: Vectors) -> tuple[func.FuncOp, Tiling]:
    """A kernel as `arrange` has it, or a tile function whose tiles that are not cut off are."""
    if not tiles_of(function):
        return arrange(function, vectors)
    full, tiling = arrange(full_tile(function), vectors)
    return for_all_tiles(function, full), tiling


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
