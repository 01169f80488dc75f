"""One run lists all that is wrong: in stages behind the reader, too."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from poetc.errors import InputError
from poetc.ir.text import make_context, parse_module, read_module
from poetc.passes.poet_lower_kernels import lower_kernels
from poetc.pipeline import front_passes, run_passes

WINDOW = """\
  %{0}_own = stablehlo.add %{1}, %{0}_arg : tensor<4xf32>
  %{0} = "stablehlo.reduce_window"(%{0}_own, %{2}) <{{
    window_dimensions = array<i64: 3>, padding = dense<1> : tensor<1x2xi64>
  }}> ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.{3} %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }}) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
"""
ELEMENTWISE = "  %{0} = stablehlo.{3} %{1}, %{0}_arg : tensor<4xf32>\n"
SUPPORTED = ("add", "multiply", "window of zero")
REFUSED = ("window of argument", "window of one")


def text_of(kinds: Sequence[str], inputs: Sequence[int]) -> tuple[str, set[int]]:
    """A step whose operations are of those kinds, and the lines of those that kernels refuse.
    Operation k reads an argument of its own, and x or an earlier one, as `inputs` says."""
    own = "".join(f", %v{k}_arg: tensor<4xf32>" for k in range(len(kinds)))
    lines = [
        f"func.func public @main(%x: tensor<4xf32>, %s: tensor<f32>{own}) -> tensor<4xf32> {{\n"
        "  %zero = stablehlo.constant dense<0.0> : tensor<f32>\n"
        "  %one = stablehlo.constant dense<1.0> : tensor<f32>\n"
    ]
    refused: set[int] = set()
    total = "x"
    for k, (kind, read) in enumerate(zip(kinds, inputs, strict=True)):
        if kind in REFUSED:
            refused.add("".join(lines).count("\n") + 2)
        inits = {"window of zero": "zero", "window of argument": "s", "window of one": "one"}
        pattern = WINDOW if kind in inits else ELEMENTWISE
        source = f"v{read % k}" if k and read else "x"
        name = "add" if kind in inits else kind
        lines.append(pattern.format(f"v{k}", source, inits.get(kind), name))
        lines.append(f"  %t{k} = stablehlo.add %{total}, %v{k} : tensor<4xf32>\n")
        total = f"t{k}"
    lines.append(f"  return %{total} : tensor<4xf32>\n}}\n")
    return "".join(lines), refused


def lowered(text: str) -> ModuleOp:
    module = read_module(text.encode(), "step.mlir")
    passes = front_passes(module, "nrf52840")
    run_passes(make_context(), module, passes, lambda name, module, seconds: None)
    return module


def places(error: InputError) -> set[int]:
    """The lines of all faults."""
    listed = re.findall(r"^ *step\.mlir:(\d+):\d+: (?!\d+ faults)", str(error), re.MULTILINE)
    return {int(line) for line in listed}


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_all_operations_that_kernels_refuse_are_listed(data: st.DataObject) -> None:
    kinds = data.draw(
        st.lists(st.sampled_from(SUPPORTED + REFUSED), min_size=1, max_size=8).filter(
            lambda kinds: any(kind in REFUSED for kind in kinds)
        )
    )
    inputs = [data.draw(st.integers(0, 8)) for _ in kinds]
    text, refused = text_of(kinds, inputs)
    with pytest.raises(InputError) as error:
        lowered(text)
    assert places(error.value) == refused


def test_what_kernels_do_not_refuse_passes() -> None:
    lowered(text_of(list(SUPPORTED), [0, 1, 2])[0])


def test_all_pairs_in_place_that_are_not_legal_are_listed() -> None:
    compute = """\
  %y{0} = poet.compute "transpose" (%a = %x{0} : tensor<4x4xf32>) -> tensor<4x4xf32>
      inplace [[0, 0]] {{
    %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
    poet.yield %0 : tensor<4x4xf32>
  }}
"""
    module = parse_module(
        "poet.graph @main(%x0: tensor<4x4xf32>, %x1: tensor<4x4xf32>)\n"
        "    -> (tensor<4x4xf32>, tensor<4x4xf32>) {\n"
        + compute.format(0)
        + compute.format(1)
        + "  poet.return %y0, %y1 : tensor<4x4xf32>, tensor<4x4xf32>\n}\n",
        "step.mlir",
    )
    with pytest.raises(InputError, match="is not legal") as error:
        lower_kernels(module)
    assert places(error.value) == {3, 8}


def test_aliasing_is_listed_with_what_the_reader_finds() -> None:
    text = """\
func.func public @main(
    %x: tensor<4xf32> {tf.aliasing_output = 0 : i32},
    %y: tensor<4xf32> {tf.aliasing_output = 0 : i32},
    %z: tensor<4xf32> {tf.aliasing_output = 3 : i32},
    %s: tensor<f32> {tf.aliasing_output = 1 : i32}) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.nonsense %x : tensor<4xf32>
  %1 = stablehlo.reverse %x, dims = [7] : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}
"""
    with pytest.raises(InputError) as error:
        read_module(text.encode(), "step.mlir")
    message = error.value.message
    assert message.startswith("5 faults:") and places(error.value) == {1, 6, 7}
    assert "argument 1: result 0 is that of argument 0 already" in message
    assert "argument 2 is 3 : i32, @main has 2 results" in message
    assert "argument 3: argument of type tensor<f32>, result 1 of type tensor<4xf32>" in message


def test_what_has_no_counterpart_is_named_all_at_once() -> None:
    text = """\
func.func public @main(%c: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf64>) {
  %3 = "stablehlo.custom_call"(%c) <{api_version = 1 : i32, call_target_name = "a b"}> :
    (tensor<4xf32>) -> tensor<4xf32>
  %4 = stablehlo.custom_call @lapack_spotrf(%c) : (tensor<4xf32>) -> tensor<4xf32>
  %5 = stablehlo.cholesky %4, lower = true : tensor<4xf32>
  %6 = stablehlo.fft %5, type = RFFT, length = [4] : (tensor<4xf32>) -> tensor<4xcomplex<f32>>
  %7 = stablehlo.convert %6 : (tensor<4xcomplex<f32>>) -> tensor<4xf64>
  return %3, %5, %7 : tensor<4xf32>, tensor<4xf32>, tensor<4xf64>
}
"""
    with pytest.raises(InputError) as error:
        read_module(text.encode(), "step.mlir")
    faults = re.findall(r"step\.mlir:(\d+):\d+: (.*?)(?:,|;|\n| is not| takes)", str(error.value))
    assert faults[1:] == [
        ("1", "@main"),
        ("2", "stablehlo.custom_call @a b"),
        ("4", "stablehlo.custom_call @lapack_spotrf"),
        ("5", "stablehlo.cholesky"),
        ("6", "stablehlo.fft"),
        ("7", "stablehlo.convert: operand 0 has elements of type complex<f32>"),
    ], error.value
