"""The pairs of a result and an operand of a compute that may share a buffer, read from its lowered
kernel.

A compute whose kernel is not ours (poetc/tvm) has the pairs in an attribute.
"""

from collections.abc import Iterable

from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase
from xdsl.dialects.func import FuncOp

from poetc.ir.graph import MayShare
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.ir.symbols import named_in

MAY_SHARE = "may_share"
"""Attribute of a compute without a kernel: pairs (result, operand), each operand the first that is
that tensor."""


def inplace_candidates(graph: GraphOp) -> MayShare:
    """A function that gives the (result, operand) pairs that the kernel of a compute allows.

    Of a compute without a kernel, those of its attribute `MAY_SHARE`. A tensor that is several
    operands is given as the first, and only where the result may lie over each of them. The proof
    is `kernels.analysis.may_alias`; computes that share a kernel share it. The function raises
    InputError where a compute does not fit its kernel.
    """
    from poetc.kernels.analysis import check_call, may_alias

    table = named_in(graph, FuncOp)
    proven: dict[tuple[str, int, int], bool] = {}

    def allowed(kernel: str, result: int, operand: int) -> bool:
        key = kernel, result, operand
        if key not in proven:
            proven[key] = may_alias(table[kernel], result, operand)
        return proven[key]

    def candidates(compute: ComputeOp) -> Iterable[tuple[int, int]]:
        kernel = compute.kernel.string_value() if compute.kernel is not None else None
        if kernel not in table:
            yield from _given(compute)
            return
        check_call(table[kernel], compute.operand_types, compute.result_types)
        first = {value: at for at, value in reversed(list(enumerate(compute.operands)))}
        for r, result in enumerate(compute.results):
            for value, operand in sorted(first.items(), key=lambda item: item[1]):
                same = [at for at, other in enumerate(compute.operands) if other is value]
                if value.type == result.type and all(allowed(kernel, r, at) for at in same):
                    yield r, operand

    return candidates


def _given(compute: ComputeOp) -> Iterable[tuple[int, int]]:
    pairs = compute.attributes.get(MAY_SHARE)
    for pair in pairs if isinstance(pairs, ArrayAttr) else ():
        assert isinstance(pair, DenseArrayBase)
        result, operand = pair.get_values()
        yield result, operand
