"""poet-annotate: attaches to each compute what one run of its kernel costs on a device.

Time and energy follow from the work of the lowered kernel and the device description by the
formulas of `costmodel/cost.py`, or are what a profile says (`costmodel/profile.py`); the workspace
is that of the kernel. Computes that share a kernel share its cost. The graph gets the name of the
device as attribute `device`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from poetc.costmodel.cost import kernel_cost, profiled_kernel_cost
from poetc.costmodel.device import Device, device_of
from poetc.costmodel.profile import kernel_key
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.locations import source_location
from poetc.ir.poet import ComputeOp, CostAttr
from poetc.ir.symbols import named_in
from poetc.kernels.analysis import check_call, work, workspace_bytes


def annotate(module: ModuleOp, device: Device, made: str = "") -> None:
    """Sets the cost of every compute of every graph in `module`.

    `made` are the options that it was made with, for the command that adds kernels to a profile.
    Raises InputError for a compute without a kernel or with one that does not fit it, where the
    numbers of the device give costs that are too large, and where its profile lacks kernels.
    """
    kernels = named_in(module, FuncOp)
    keys = _profiled_kernels(module, kernels, device, made)
    costs: dict[str, CostAttr] = {}
    for graph in graphs(module):
        for compute in graph.computes:
            name = _kernel_name(compute)
            if name not in kernels:
                raise _error(compute, f"there is no kernel @{name} in the module")
            check_call(kernels[name], compute.operand_types, compute.result_types)
            if name not in costs:
                costs[name] = _cost(kernels[name], device, keys.get(name))
            compute.cost = costs[name]
        graph.attributes["device"] = StringAttr(device.name)


def _profiled_kernels(
    module: ModuleOp, kernels: Mapping[str, FuncOp], device: Device, made: str
) -> dict[str, str]:
    """The key of each kernel in the profile of the device; none without a profile."""
    if device.profile is None:
        return {}
    labels = {
        compute.kernel.string_value(): compute.label.data
        for graph in graphs(module)
        for compute in reversed(graph.computes)
        if compute.kernel is not None
    }
    keys = {name: kernel_key(kernels[name]) for name in labels if name in kernels}
    wanted = {key: labels[name] for name, key in keys.items()}
    if missing := device.profile.missing(wanted, made):
        raise missing
    return keys


def _cost(kernel: FuncOp, device: Device, key: str | None) -> CostAttr:
    done = work(kernel)
    cost = kernel_cost(done, device) if key is None else profiled_kernel_cost(key, device)
    time_ns, energy_nj = cost
    return CostAttr(energy_nj, time_ns, workspace_bytes(kernel), done.flops)


def _kernel_name(compute: ComputeOp) -> str:
    if compute.kernel is None:
        raise _error(compute, "it has no kernel; run poet-lower-kernels before poet-annotate")
    return compute.kernel.string_value()


def _error(op: Operation, message: str) -> InputError:
    assert isinstance(op, ComputeOp)
    return InputError(f'poet.compute "{op.label.data}": {message}', source_location(op))


@dataclass(frozen=True)
class PoetAnnotatePass(ModulePass):
    """Attaches costs for `device`, the name of a known device or the path of a device file.

    With `profile`, the path of a profile, they are what it says; the device is then, by default,
    the one that it was measured on. `made` are options of `poetc` that the step was made with and
    that change its kernels: a message names the command that measures these.
    """

    name = "poet-annotate"

    device: str | None = None
    profile: str | None = None
    made: str = ""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        annotate(op, device_of(self.device, self.profile, default="host"), self.made)
