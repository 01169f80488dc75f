"""poet-arrange-kernels: the loops of kernels, arranged for the core of a device.

Costs that were measured are those of kernels as they were arranged then: with a profile, loops are
arranged for what it was measured on.

Tiles are made of kernels as they are lowered. For a step whose kernels may run in tiles, these
stay, under other names, until it is scheduled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import memref
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from poetc.costmodel.device import Device, device_of
from poetc.costmodel.machine import DEFAULT_DEVICE, machine_of
from poetc.costmodel.profile import kernel_key
from poetc.ir.graph import graphs
from poetc.ir.symbols import named_in
from poetc.kernels.arrange import KnownWays, arranged_step
from poetc.kernels.arrange.sparse import in_rows
from poetc.kernels.arrange.tile_functions import lowered_of
from poetc.kernels.known import known_kernels


@dataclass(frozen=True)
class PoetArrangeKernelsPass(ModulePass):
    """Arranges the loops of all kernels that computes run, for `device`, the name of a known device
    or the path of a device file; results are the same bits.

    With `profile`, the path of a profile, it is the device that this was measured on. One that
    `keeps` them leaves kernels as they were beside those that are arranged.
    """

    name = "poet-arrange-kernels"

    device: str | None = None
    profile: str | None = None
    keeps: bool = False

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        device = device_of(self.device, self.profile, default=DEFAULT_DEVICE)
        arrange_kernels(op, device, self.keeps, known_kernels(ctx).ways)


def arrange_kernels(
    module: ModuleOp, device: Device, keeps: bool = False, known: KnownWays | None = None
) -> None:
    """Arranges the loops of all kernels of a module for a device. If it `keeps` them, the module
    has the functions as they were lowered, too. The ways that are `known` are those of kernels of
    other steps."""
    calls: Counter[str] = Counter()
    in_place: dict[str, set[tuple[int, int]]] = {}
    for compute in (each for graph in graphs(module) for each in graph.computes):
        if compute.kernel is not None:
            name, pairs = compute.kernel.string_value(), set(compute.inplace_pairs)
            calls[name] += 1
            in_place[name] = pairs & in_place.get(name, pairs)
    used = [
        (op, calls[op.sym_name.data])
        for op in module.ops
        if isinstance(op, FuncOp) and op.sym_name.data in calls
    ]
    made, price = arranged_step(used, machine_of(device), known)
    for (function, count), new in zip(used, made, strict=True):
        if keeps:
            module.body.block.add_op(lowered_of(function, price / count))
        new = in_rows(new, in_place[new.sym_name.data])
        if new is not function:
            Rewriter.replace_op(function, new)


def names_by_key(module: ModuleOp) -> dict[str, str]:
    """The names of the kernels of a module by what these are known by, without those that read
    tables."""
    return {
        kernel_key(op): op.sym_name.data
        for op in module.ops
        if isinstance(op, FuncOp) and not any(isinstance(o, memref.GetGlobalOp) for o in op.walk())
    }


def arrange_alike(
    module: ModuleOp, names: Mapping[str, str], arranged: Mapping[str, FuncOp]
) -> None:
    """Gives kernels the loops of those in `arranged`, by what both are known by before theirs are
    arranged; `names` are those of the kernels in the module."""
    functions = named_in(module, FuncOp)
    for key, name in names.items():
        if key in arranged:
            new = arranged[key].clone()
            new.properties["sym_name"] = StringAttr(name)
            Rewriter.replace_op(functions[name], new)
