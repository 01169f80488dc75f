"""Prints `model_kernels.h` and `model_kernels.c`, the loop nests of a model."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from poetc.backends.c.check import check_function
from poetc.backends.c.libraries.library import MARK
from poetc.backends.c.printer import print_function, print_prototype, print_table, tables_of
from poetc.backends.c.program import Kernel, Program
from poetc.backends.c.share import Optimise, share
from poetc.backends.c.text import c_comment, guarded, in_section
from poetc.ir.locations import source_location

_OPS_IN_COMMENT = 12


def kernels_header(program: Program) -> str:
    """`model_kernels.h`."""
    about = f"{MARK} Kernels of {program.name}; none of them keeps anything between calls."
    prototypes = [print_prototype(k.function, k.signature) for k in program.kernels]
    return guarded(
        f"{program.macro}_KERNELS_H", about, ["#include <stdint.h>"], ["\n".join(prototypes)]
    )


def kernels_source(
    program: Program, kernels: Sequence[Kernel], symbols: Collection[str], optimise: Optimise
) -> str:
    """`model_kernels.c` with these kernels, which call the mathematical functions `symbols`. What
    they share depends on `optimise`."""
    headers = [f"{program.name}.h", "poetc_check.h", *(["poetc_math.h"] if symbols else [])]
    headers += ["poetc_scalar.h", "poetc_together.h"]
    includes = [f'#include "{program.name}_kernels.h"', ""]
    includes += [f'#include "{header}"' for header in headers]
    parts = [c_comment(f"{MARK} Kernels of {program.name}."), "\n".join(includes) + "\n"]
    tables = dict.fromkeys(t for kernel in kernels for t in tables_of(kernel.function))
    parts += [in_section(program.macro, "CONST")] if tables else []
    parts += [print_table(table) for table in tables]
    definitions = [(k.signature.name, print_function(k.function, k.signature)) for k in kernels]
    shared = share(definitions, optimise.shares([_time_ns(kernel) for kernel in kernels]))
    for kernel, text in zip(kernels, shared, strict=True):
        parts.append(f"{c_comment(_origin(program, kernel))}\n{text}")
    parts.append(check_function(program.name, symbols))
    return "\n".join(parts)


def _time_ns(kernel: Kernel) -> int:
    """The time of a kernel in a step in nanoseconds, by the cost model."""
    costs = [compute.cost for compute in kernel.computes]
    return sum(cost.time_ns for cost in costs if cost is not None)


def _origin(program: Program, kernel: Kernel) -> str:
    """A comment on a kernel: its computation, and the operations of the graph that call it."""
    calls: dict[str, list[str]] = {}
    for compute in kernel.computes:
        results = ", ".join(program.names[result] for result in compute.results)
        results = f"({results})" if len(compute.results) > 1 else results
        calls.setdefault(compute.label.data, []).append(results)
    computes = "; ".join(f'"{label}" of {", ".join(results)}' for label, results in calls.items())
    body = list(kernel.computes[0].block.ops)[:-1]
    ops: list[str] = []
    for op in body:
        location = source_location(op)
        ops.append(f"{op.name}:{location.line}" if location is not None else op.name)
    if len(ops) > _OPS_IN_COMMENT:
        ops = [*ops[:_OPS_IN_COMMENT], f"and {len(ops) - _OPS_IN_COMMENT} more"]
    return f"{computes}\nfrom {', '.join(ops) or 'its operands'}"
