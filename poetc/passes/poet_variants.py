"""poet-variants: says of each compute in which ways its kernel can run in less RAM.

Nothing else changes: the attribute is for readers, and for whoever chooses among variants
(docs/streaming.md). Computes that share a kernel share its variants.
"""

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from poetc.costmodel.cost import Cost
from poetc.costmodel.device import device_of
from poetc.errors import InputError
from poetc.ir.graph import graphs
from poetc.ir.locations import source_location
from poetc.ir.poet import VARIANTS, ComputeOp, TiledNest, VariantAttr, VariantData
from poetc.variants.kernel import MOST_VARIANTS, KernelSearch, Variant


@dataclass(frozen=True)
class PoetVariantsPass(ModulePass):
    """Annotates each compute with ways to run it: with all its operands and results on storage, and
    with some in RAM whole.

    `ram` is the most RAM for one kernel, in bytes (default: any). `device` is that of
    poet-annotate, which runs before, unless another one is named. At most `most` variants are kept
    for each choice of what is in RAM.
    """

    name = "poet-variants"

    ram: int | None = None
    device: str | None = None
    most: int = MOST_VARIANTS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Raises InputError for computes without a kernel or a cost, devices without storage, and
        where a kernel cannot run within `ram`."""
        if self.most < 1 or (self.ram is not None and self.ram < 0):
            raise InputError(f"most is 1 or more, ram is a number of bytes: {self}")
        kernels = {o.sym_name.data: o for o in op.ops if isinstance(o, FuncOp)}
        known: dict[str, ArrayAttr] = {}
        for graph in graphs(op):
            named = graph.attributes.get("device")
            default = named.data if isinstance(named, StringAttr) else None
            device = device_of(self.device or default, None, default="host")
            for compute in graph.computes:
                if compute.kernel is None or compute.cost is None:
                    raise _error(compute, "it has no kernel with a cost; run poet-annotate before")
                name = compute.kernel.string_value()
                if name not in known:
                    cost = Cost(compute.cost.time_ns, compute.cost.energy_nj)
                    search = KernelSearch(kernels[name], device, cost, self.ram)
                    found = [
                        variant
                        for resident in search.resident_sets()
                        for variant in search.variants(resident, self.most)
                    ]
                    if not found:
                        raise _error(compute, f"it cannot run in tiles within {self.ram} bytes")
                    known[name] = ArrayAttr([_attribute(variant) for variant in found])
                compute.attributes[VARIANTS] = known[name]


def _attribute(variant: Variant) -> VariantAttr:
    return VariantAttr(
        VariantData(
            variant.ram_bytes,
            variant.moved_bytes,
            variant.least_bytes,
            variant.runs,
            variant.time_ns,
            variant.energy_nj,
            variant.tilings[0].buffers,
            tuple(sorted(variant.resident)),
            tuple(TiledNest(tiling.loops, tiling.tiles) for tiling in variant.tilings),
        )
    )


def _error(op: Operation, message: str) -> InputError:
    assert isinstance(op, ComputeOp)
    return InputError(f'poet.compute "{op.label.data}": {message}', source_location(op))
