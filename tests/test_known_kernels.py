"""Kernels that one compilation makes once: the steps that it makes of them are those that it would
make otherwise."""

from __future__ import annotations

import re
from typing import Any

import pytest
from conftest import read_model
from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from poetc.costmodel.device import load_device
from poetc.driver import compile_module
from poetc.ir.text import make_context, parse_module
from poetc.kernels import arrange, lower
from poetc.kernels.known import KernelContext
from poetc.kernels.structure import structure
from poetc.pipeline import front_passes, run_passes, unobserved
from poetc.request import Options


@pytest.fixture(scope="module", autouse=True)
def kernels_made_once() -> None:
    """Here each compilation makes its own."""


DEVICE = load_device("nrf52840")

TABLES = """
func.func @main(%x: tensor<2x3xf32>, %y: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<3xf32>) {{
  {0}
  %c = stablehlo.constant dense<[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]> : tensor<2x3xf32>
  %1 = stablehlo.add %x, %c : tensor<2x3xf32>
  return %1, {1} : tensor<2x3xf32>, tensor<3xf32>
}}
"""
ADDS = (
    ("", "%y"),
    (
        "%d = stablehlo.constant dense<[7.0, 8.0, 9.0]> : tensor<3xf32>\n"
        "  %0 = stablehlo.add %y, %d : tensor<3xf32>",
        "%0",
    ),
)


def made(ctx: Context, module: ModuleOp, **asked: Any) -> str:
    """The text of a step, whose parameters or kernels are as `asked`."""
    copy = module.clone()
    run_passes(ctx, copy, front_passes(copy, "nrf52840", DEVICE, **asked), unobserved)
    return str(copy)


@pytest.mark.slow
def test_steps_that_share_kernels_are_as_they_are_without():
    """With kernels whole, with pairs, with what tiles are made of, with loops as lowered."""
    steps = [
        {},
        {"tiles": True, "pairs_ram": 3072},
        {"tiles": True},
        {"arrange": False},
    ]
    module, ctx = read_model("gesture_mlp"), KernelContext.of(make_context())
    for asked in steps:
        assert made(ctx, module, **asked) == made(make_context(), module, **asked)
    assert len({made(ctx, module, **asked) for asked in steps}) == len(steps)


def test_tables_of_a_kernel_have_the_names_that_they_have_without():
    """A kernel that is known by another name, with the table that it reads."""
    ctx, found = KernelContext.of(make_context()), list[str]()
    for text in (*ADDS, *ADDS[::-1]):
        module = parse_module(TABLES.format(*text))
        found.append(made(ctx, module))
        assert found[-1] == made(make_context(), module)
    names = [set(re.findall(r"@(\w+_table\d)", text)) for text in found]
    assert len(names[1]) == 2 and names[0] != names[1]


def test_functions_of_one_structure_differ_in_their_names_alone():
    module = read_model("gesture_mlp")
    run_passes(make_context(), module, front_passes(module, "nrf52840", DEVICE), unobserved)
    functions = [op for op in module.ops if isinstance(op, func.FuncOp)]
    by_structure = {structure(op): str(op) for op in functions}
    texts = {re.sub(r"@\w+", "@", str(op), count=1) for op in functions}
    assert len(texts) == len(by_structure) > 5
    for function in functions:
        copy = function.clone()
        copy.properties["sym_name"] = functions[0].sym_name
        assert structure(copy) == structure(function)
        first = next(op for op in copy.walk() if op.regions and op is not copy)
        first.attributes["other"] = functions[0].sym_name
        assert structure(copy) != structure(function)


@pytest.mark.slow
def test_a_compilation_lowers_and_arranges_each_kernel_once(monkeypatch: pytest.MonkeyPatch):
    bodies, kernels = list[str](), list[str]()
    plan, ways = lower._plan, arrange.Ways.__init__

    def planned(block, name, iteration=None):
        bodies.append(",".join(map(str, block.arg_types)) + "".join(map(str, block.ops)))
        return plan(block, name, iteration)

    def of(self, function, machine):
        if function.parent is None and not function.sym_name.data.endswith("_tile"):
            kernels.append(re.sub(r"@\w+", "@", str(function), count=1))
        ways(self, function, machine)

    monkeypatch.setattr(lower, "_plan", planned)
    monkeypatch.setattr(arrange.Ways, "__init__", of)
    options = Options(device=DEVICE, device_name="nrf52840", ram_bytes=8192, time_limit_s=60)
    found = compile_module(make_context(), read_model("gesture_mlp"), options)
    assert found.report is not None
    assert {way.tiles for way in found.report.tried} == {False, True}, "only one step was made"
    assert len(kernels) == len(set(kernels)) > 10
    assert len(bodies) == len(set(bodies)) > 10
