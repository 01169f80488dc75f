"""poet-arrange-kernels: the loops of kernels, arranged for the core of a device.

Costs that were measured are those of kernels as they were arranged then: with a profile, loops are
arranged for what it was measured on.
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

from poetc.costmodel.device import Device, device_of, known_devices, load_core, load_device
from poetc.costmodel.profile import kernel_key
from poetc.ir.graph import graphs
from poetc.kernels.arrange import Machine, arranged_step

_DEFAULT = "host"
_SOFT_FLOP_INSTRUCTIONS = 60
"""Of an operation that a library does."""
_SOFT_REGISTERS = 8
"""Of a core that has floats in the registers for integers."""


@dataclass(frozen=True)
class PoetArrangeKernelsPass(ModulePass):
    """Arranges the loops of all kernels that computes run, for `device`, the name of a known device
    or the path of a device file; results are the same bits.

    With `profile`, the path of a profile, it is the device that this was measured on.
    """

    name = "poet-arrange-kernels"

    device: str | None = None
    profile: str | None = None

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        arrange_kernels(op, device_of(self.device, self.profile, default=_DEFAULT))


def arrange_kernels(module: ModuleOp, device: Device) -> None:
    """What the pass does."""
    calls = Counter(
        compute.kernel.string_value()
        for graph in graphs(module)
        for compute in graph.computes
        if compute.kernel is not None
    )
    used = [
        (op, calls[op.sym_name.data])
        for op in module.ops
        if isinstance(op, FuncOp) and op.sym_name.data in calls
    ]
    for (function, _), new in zip(used, arranged_step(used, machine_of(device)), strict=True):
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
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    for key, name in names.items():
        if key in arranged:
            new = arranged[key].clone()
            new.properties["sym_name"] = StringAttr(name)
            Rewriter.replace_op(functions[name], new)


def measured_for(device_name: str) -> str:
    """The device that kernels are arranged for when they are measured on this one: one with the
    same core, if it is not known itself."""
    known = known_devices()
    if device_name in known:
        return device_name
    # Of boards, cores are called the same with floating point and without.
    cores = {name: load_device(name).core.removesuffix("f") for name in known}
    alike = (name for name, core in cores.items() if core and device_name.endswith(f"-{core}"))
    return next(alike, _DEFAULT)


def machine_of(device: Device) -> Machine:
    """What kernels are arranged for on a device; where its core is not known, one with floats."""
    if device.profile is not None:
        device = load_device(measured_for(device.profile.device_name))
    if not device.core:
        return Machine()
    core = load_core(device.core)
    if core.fpu:
        return Machine(registers=core.float_registers)
    return Machine(
        registers=_SOFT_REGISTERS,
        flop_instructions=_SOFT_FLOP_INSTRUCTIONS,
    )
