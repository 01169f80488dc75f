"""The kernels of whole training steps: each compute run as C against the interpreter."""

from typing import Any

import pytest
from conftest import MODELS, load_arrays, more, read_model
from kernel_harness import check_in_bounds, compile_functions, interpret, run, same_bits
from xdsl.context import Context
from xdsl.dialects.builtin import MemRefType, ModuleOp, i32
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.utils.hints import isa

from poetc.ir.graph import graphs
from poetc.kernels.analysis import buffers
from poetc.passes.poet_fuse import PoetFusePass
from poetc.passes.poet_lower_kernels import PoetLowerKernelsPass
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.passes.stablehlo_to_poet import StableHLOToPoetPass


def lowered(name: str) -> ModuleOp:
    module = read_model(name)
    passes = [StableHLOSimplifyPass(), StableHLOToPoetPass(), PoetFusePass()]
    for step in [*passes, PoetLowerKernelsPass()]:
        step.apply(Context(), module)
    module.verify()
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["gesture_mlp", "kws_conv", "lenet5", *more("dscnn", "resnet8", "bert_micro", "ae_mnist")],
)
def test_kernels_of_models(name: str):
    module = lowered(name)
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    library = compile_functions(list(functions.values()))
    (graph,) = graphs(module)
    arguments, _ = load_arrays(MODELS / f"{name}.npz")
    values: dict[SSAValue, Any] = dict(zip(graph.arguments, arguments, strict=True))
    for compute in graph.computes:
        assert compute.kernel is not None
        function = functions[compute.kernel.string_value()]
        args = [values[operand] for operand in compute.operands]
        results = run(library, function, args, compute.inplace_pairs)
        expected = interpret(compute.block, args)
        for result, ours, reference in zip(compute.results, results, expected, strict=True):
            assert same_bits(ours, reference), f"{compute.label.data}\n{function}"
            values[result] = reference


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lenet5", *more("resnet8", "bert_micro")])
def test_kernels_of_models_stay_in_bounds_and_store_nothing_between(name: str):
    for op in lowered(name).ops:
        if isinstance(op, FuncOp):
            # The order of updates by rows is no intermediate.
            types = [buffer.type for buffer in buffers(op, "workspace")]
            assert all(isa(type, MemRefType) and type.element_type == i32 for type in types)
            if name == "lenet5":
                check_in_bounds(op)
