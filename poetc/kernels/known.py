"""The kernels of one compilation.

A step is made more than once: with kernels whole, and with kernels in tiles.
Most of its kernels are the same each time; they are lowered, and their loops arranged, once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields

from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.builtin import StringAttr, SymbolRefAttr
from xdsl.ir import Block

from poetc.ir.stablehlo.bodies import body_key
from poetc.kernels.arrange import KnownWays
from poetc.kernels.lower import Kernel, lower_kernel


@dataclass(frozen=True)
class KnownKernels:
    """Kernels as they are `lowered`, by what they compute, and the `ways` to arrange their loops.
    None of them is in a module."""

    lowered: dict[Hashable, Kernel] = field(default_factory=dict)
    ways: KnownWays = field(default_factory=KnownWays)

    def of(self, body: Block, lower: Callable[[Block], Kernel] = lower_kernel) -> Kernel:
        """The kernel of a body, for which `lower` is called where it is not known."""
        key = body_key(body)
        if (kernel := self.lowered.get(key)) is None:
            kernel = self.lowered[key] = lower(body)
        return kernel


@dataclass
class KernelContext(Context):
    """A context whose passes share the kernels that they make."""

    kernels: KnownKernels = field(default_factory=KnownKernels)

    @staticmethod
    def of(ctx: Context) -> KernelContext:
        """A new one with the dialects of a context."""
        return KernelContext(*(getattr(ctx, each.name) for each in fields(Context)))


def known_kernels(ctx: Context) -> KnownKernels:
    """The kernels that passes share in a context; none yet, where they do not."""
    return ctx.kernels if isinstance(ctx, KernelContext) else KnownKernels()


def named(kernel: Kernel, name: str) -> Kernel:
    """A copy of a kernel with another name, which those of its tables begin with, too."""
    old = kernel.function.sym_name.data
    names = {
        table.sym_name.data: name + table.sym_name.data.removeprefix(old)
        for table in kernel.globals
    }
    function, tables = kernel.function.clone(), tuple(table.clone() for table in kernel.globals)
    function.properties["sym_name"] = StringAttr(name)
    for table in tables:
        table.properties["sym_name"] = StringAttr(names[table.sym_name.data])
    for op in function.walk() if tables else ():
        if isinstance(op, memref.GetGlobalOp):
            op.properties["name"] = SymbolRefAttr(names[op.name_.string_value()])
    return Kernel(function, tables)
