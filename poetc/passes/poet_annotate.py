"""poet-annotate: attaches to each compute what one run of its kernel costs on a device.

Time and energy follow from the work of the lowered kernel and the device description by the
formulas of `costmodel/cost.py`; the workspace is that of the kernel. Computes that share a kernel
share its cost. The graph gets the name of the device as attribute `device`.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from poetc.costmodel.cost import kernel_cost
from poetc.costmodel.device import Device, load_device
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.locations import source_location
from poetc.ir.poet import ComputeOp, CostAttr
from poetc.kernels.analysis import check_call, work, workspace_bytes


def annotate(module: ModuleOp, device: Device) -> None:
    """Sets the cost of every compute of every graph in `module`.

    Raises InputError for a compute without a kernel or with one that does not fit it, and where the
    numbers of the device give costs that are too large.
    """
    kernels = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    costs: dict[str, CostAttr] = {}
    for graph in graphs(module):
        for compute in graph.computes:
            name = _kernel_name(compute)
            if name not in kernels:
                raise _error(compute, f"there is no kernel @{name} in the module")
            check_call(kernels[name], compute.operand_types, compute.result_types)
            if name not in costs:
                costs[name] = _cost(kernels[name], device)
            compute.cost = costs[name]
        graph.attributes["device"] = StringAttr(device.name)


def _cost(kernel: FuncOp, device: Device) -> CostAttr:
    done = work(kernel)
    time_ns, energy_nj = kernel_cost(done, device)
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
    """Attaches costs for `device`, the name of a known device or the path of a device file."""

    name = "poet-annotate"

    device: str = "host"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        annotate(op, load_device(self.device))
