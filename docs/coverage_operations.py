"""What becomes of each operation of StableHLO and CHLO, by element type: the compiler is asked,
with a small instance of each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from xdsl.context import Context

from poetc.errors import InputError
from poetc.ir import stablehlo as hlo
from poetc.ir.text import read_module
from poetc.ir.types import ELEMENT_TYPES
from poetc.passes.poet_annotate import PoetAnnotatePass
from poetc.pipeline import front_passes

NAMES = """
abs add after_all all_gather all_reduce all_to_all and async_done async_start atan2 batch_norm_grad
batch_norm_inference batch_norm_training bitcast_convert broadcast broadcast_in_dim case cbrt ceil
cholesky clamp collective_broadcast collective_permute compare complex composite concatenate
constant convert convolution cosine count_leading_zeros create_token cross-replica-sum custom_call
divide dot dot_general dynamic_broadcast_in_dim dynamic_conv dynamic_gather dynamic_iota dynamic_pad
dynamic_reshape dynamic_slice dynamic_update_slice einsum exponential exponential_minus_one fft
floor gather get_dimension_size get_tuple_element if imag infeed iota is_finite log log_plus_one
logistic map maximum minimum multiply negate not optimization_barrier or outfeed pad partition_id
popcnt power real real_dynamic_slice recv reduce reduce_precision reduce_scatter reduce_window
remainder replica_id reshape return reverse rng rng_bit_generator round_nearest_afz
round_nearest_even rsqrt scatter select select_and_scatter send set_dimension_size shift_left
shift_right_arithmetic shift_right_logical sign sine slice sort sqrt subtract tan tanh
torch_index_select transpose triangular_solve tuple unary_einsum uniform_dequantize uniform_quantize
while xor
"""
"""The operations of the dialect, version 1.15."""

CHLO_NAMES = """
_asin_acos_kernel acos acosh asin asinh atan atanh bessel_i1e broadcast_add broadcast_and
broadcast_atan2 broadcast_compare broadcast_complex broadcast_divide broadcast_maximum
broadcast_minimum broadcast_multiply broadcast_next_after broadcast_or broadcast_polygamma
broadcast_power broadcast_remainder broadcast_select broadcast_shift_left
broadcast_shift_right_arithmetic broadcast_shift_right_logical broadcast_subtract broadcast_xor
broadcast_zeta conj constant constant_like cosh digamma erf erf_inv erfc is_inf
is_neg_inf is_pos_inf lgamma mulhi next_after polygamma ragged_dot scan sinh square tan top_k zeta
"""

_TYPES = " | ".join(f"`{type.name}`" for type in ELEMENT_TYPES.values())
HEAD = (
    f"| operation | {_TYPES} | where not |",
    f"|---|{'---|' * (len(ELEMENT_TYPES) + 1)}",
)
MISSING_HEAD = ("| operation that poetc does not have | |", "|---|---|")

# Arguments; what stands behind the name of the operation, or several lines; the result. T is the
# element type, and t<..> a tensor.
_SCALARS = "(%a: t<T>, %b: t<T>):\n"
_ADD = f"{{\n^bb0{_SCALARS}%c = stablehlo.add %a, %b : t<T>\nstablehlo.return %c : t<T>\n}}"
_COMPARE = f"""{{
^bb0{_SCALARS}%c = stablehlo.compare GT, %a, %b : (t<T>, t<T>) -> t<i1>
stablehlo.return %c : t<i1>
}}"""
_BRANCHES = """{
stablehlo.return %0 : t<4xT>
}, {
%a = stablehlo.reverse %0, dims = [0] : t<4xT>
stablehlo.return %a : t<4xT>
}"""
_GATHERED = "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0]"
_SCATTERED = (
    "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]"
)
_WINDOW = "window_dimensions = array<i64: 2>, window_strides = array<i64: 2>"
_DIMS = "[b, 0, f]x[0, i, o]->[b, 0, f]"
_GROUPS = "batch_group_count = 1 : i64, feature_group_count = 1 : i64"
_FUNCTION = """func.func private @function(%0: t<4xT>) -> t<4xT> {
return %0 : t<4xT>
}
"""
_INSTANCES: dict[str, tuple[str, str, str]] = {
    "stablehlo.bitcast_convert": ("4xT", "%0 : (t<4xT>) -> t<4xT>", "4xT"),
    "stablehlo.convert": ("4xT", "%0 : (t<4xT>) -> t<4xf32>", "4xf32"),
    "stablehlo.is_finite": ("4xT", "%0 : (t<4xT>) -> t<4xi1>", "4xi1"),
    "stablehlo.reduce_precision": ("4xT", "%0, format = e5m2 : t<4xT>", "4xT"),
    "stablehlo.compare": ("4xT", "GT, %0, %0 : (t<4xT>, t<4xT>) -> t<4xi1>", "4xi1"),
    "stablehlo.select": ("4xT 4xi1", "%1, %0, %0 : t<4xi1>, t<4xT>", "4xT"),
    "stablehlo.clamp": ("4xT", "%0, %0, %0 : t<4xT>", "4xT"),
    "stablehlo.constant": ("", "dense<ONE> : t<4xT>", "4xT"),
    "stablehlo.iota": ("", "dim = 0 : t<4xT>", "4xT"),
    "stablehlo.broadcast_in_dim": ("4xT", "%0, dims = [1] : (t<4xT>) -> t<2x4xT>", "2x4xT"),
    "stablehlo.reshape": ("4xT", "%0 : (t<4xT>) -> t<2x2xT>", "2x2xT"),
    "stablehlo.transpose": ("2x3xT", "%0, dims = [1, 0] : (t<2x3xT>) -> t<3x2xT>", "3x2xT"),
    "stablehlo.reverse": ("4xT", "%0, dims = [0] : t<4xT>", "4xT"),
    "stablehlo.slice": ("4xT", "%0 [1:3] : (t<4xT>) -> t<2xT>", "2xT"),
    "stablehlo.pad": (
        "4xT T",
        "%0, %1, low = [1], high = [0], interior = [0] : (t<4xT>, t<T>) -> t<5xT>",
        "5xT",
    ),
    "stablehlo.concatenate": ("4xT", "%0, %0, dim = 0 : (t<4xT>, t<4xT>) -> t<8xT>", "8xT"),
    "stablehlo.dot_general": (
        "4xT",
        "%0, %0, contracting_dims = [0] x [0] : (t<4xT>, t<4xT>) -> t<T>",
        "T",
    ),
    "stablehlo.convolution": (
        "1x4x2xT 3x2x2xT",
        f"(%0, %1) dim_numbers = {_DIMS}, window = {{}} {{{_GROUPS}}} : "
        "(t<1x4x2xT>, t<3x2x2xT>) -> t<1x2x2xT>",
        "1x2x2xT",
    ),
    "stablehlo.reduce": (
        "4xT T",
        "(%0 init: %1) applies stablehlo.add across dimensions = [0] : (t<4xT>, t<T>) -> t<T>",
        "T",
    ),
    "stablehlo.reduce_window": (
        "4xT T",
        f'%r = "stablehlo.reduce_window"(%0, %1) <{{{_WINDOW}}}> ({_ADD}) : '
        "(t<4xT>, t<T>) -> t<2xT>",
        "2xT",
    ),
    "stablehlo.select_and_scatter": (
        "4xT 2xT T",
        f'%r = "stablehlo.select_and_scatter"(%0, %1, %2) <{{{_WINDOW}}}> ({_COMPARE}, {_ADD}) : '
        "(t<4xT>, t<2xT>, t<T>) -> t<4xT>",
        "4xT",
    ),
    "stablehlo.gather": (
        "4x2xT 3x1xi32",
        '%r = "stablehlo.gather"(%0, %1) <{dimension_numbers = #stablehlo.gather<'
        f"{_GATHERED}, index_vector_dim = 1>, slice_sizes = array<i64: 1, 2>}}> : "
        "(t<4x2xT>, t<3x1xi32>) -> t<3x2xT>",
        "3x2xT",
    ),
    "stablehlo.scatter": (
        "4x2xT 3x1xi32 3x2xT",
        '%r = "stablehlo.scatter"(%0, %1, %2) <{scatter_dimension_numbers = #stablehlo.scatter<'
        f"{_SCATTERED}, index_vector_dim = 1>}}> ({_ADD}) : "
        "(t<4x2xT>, t<3x1xi32>, t<3x2xT>) -> t<4x2xT>",
        "4x2xT",
    ),
    "stablehlo.dynamic_slice": (
        "4xT i32",
        "%0, %1, sizes = [2] : (t<4xT>, t<i32>) -> t<2xT>",
        "2xT",
    ),
    "stablehlo.dynamic_update_slice": (
        "4xT 2xT i32",
        "%0, %1, %2 : (t<4xT>, t<2xT>, t<i32>) -> t<4xT>",
        "4xT",
    ),
    "stablehlo.while": (
        "4xT",
        """%one = stablehlo.constant dense<1> : t<i32>
%r, %n = stablehlo.while(%a = %0, %i = %one) : t<4xT>, t<i32>
cond {
%p = stablehlo.compare LT, %i, %one : (t<i32>, t<i32>) -> t<i1>
stablehlo.return %p : t<i1>
} do {
%b = stablehlo.reverse %a, dims = [0] : t<4xT>
%j = stablehlo.add %i, %one : t<i32>
stablehlo.return %b, %j : t<4xT>, t<i32>
}""",
        "4xT",
    ),
    "stablehlo.if": ("4xT i1", f'%r = "stablehlo.if"(%1) ({_BRANCHES}) : (t<i1>) -> t<4xT>', "4xT"),
    "stablehlo.case": (
        "4xT i32",
        f'%r = "stablehlo.case"(%1) ({_BRANCHES}) : (t<i32>) -> t<4xT>',
        "4xT",
    ),
    "stablehlo.map": (
        "4xT",
        f'%r = "stablehlo.map"(%0, %0) <{{dimensions = array<i64: 0>}}> ({_ADD}) : '
        "(t<4xT>, t<4xT>) -> t<4xT>",
        "4xT",
    ),
    "stablehlo.composite": (
        "4xT",
        '"name" %0 {decomposition = @function} : (t<4xT>) -> t<4xT>',
        "4xT",
    ),
    "stablehlo.optimization_barrier": ("4xT", "%0 : t<4xT>", "4xT"),
    "stablehlo.sort": (
        "4xT",
        f'%r = "stablehlo.sort"(%0) ({_COMPARE}) : (t<4xT>) -> t<4xT>',
        "4xT",
    ),
    "stablehlo.rng_bit_generator": (
        "2xui64",
        "%s, %r = stablehlo.rng_bit_generator %0, algorithm = DEFAULT : "
        "(t<2xui64>) -> (t<2xui64>, t<4xT>)",
        "4xT",
    ),
    "chlo.top_k": ("4xT", "%r, %i = chlo.top_k(%0, k = 2) : t<4xT> -> (t<2xT>, t<2xi32>)", "2xT"),
    "chlo.next_after": ("4xT", "%0, %0 : t<4xT>, t<4xT> -> t<4xT>", "4xT"),
    "chlo.polygamma": (
        "4xT",
        "%n = stablehlo.constant dense<ONE> : t<4xT>\n"
        "%r = chlo.polygamma %n, %0 : t<4xT>, t<4xT> -> t<4xT>",
        "4xT",
    ),
}


def _instance(op: type) -> tuple[str, str, str]:
    """The instance of an operation."""
    if op.name not in _INSTANCES and issubclass(op, hlo.BinaryElementwiseOp):
        return "4xT 4xT", "%0, %1 : t<4xT>", "4xT"
    if op.name not in _INSTANCES and issubclass(op, hlo.UnaryElementwiseOp):
        return "4xT", "%0 : t<4xT>", "4xT"
    if op.name not in _INSTANCES and issubclass(op, hlo.ChloUnaryOp):
        return "4xT", "%0 : t<4xT> -> t<4xT>", "4xT"
    return _INSTANCES[op.name]


def _step(op: type, element: str) -> str:
    """A program that does the operation on elements of a type."""
    types, text, result = _instance(op)
    text = text if "%r" in text else f"%r = {op.name} {text}"
    arguments = ", ".join(f"%{i}: t<{type}>" for i, type in enumerate(types.split()))
    head = f"func.func public @main({arguments}) -> t<{result}>"
    step = f"{head} {{\n{text}\nreturn %r : t<{result}>\n}}\n"
    step += _FUNCTION if "@function" in text else ""
    one = "true" if element == "i1" else "1" if "i" in element else "1.0"
    step = re.sub(r"\bt<((?:\d+x)*)T>", rf"tensor<\1{element}>", step)
    return re.sub(r"\bt<", "tensor<", step).replace("ONE", one)


def refusal(text: str, is_compiled: bool = True) -> str | None:
    """The first line with which a program is refused, without its place; None if it is not. If
    `is_compiled` it is brought as far as kernels, else only read."""
    try:
        module = read_module(text.encode(), "step")
        for compile_pass in front_passes(module, "host") if is_compiled else ():
            if isinstance(compile_pass, PoetAnnotatePass):
                break
            compile_pass.apply(Context(), module)
    except InputError as error:
        return error.message.splitlines()[0]
    return None


def rows(is_quick: bool = False) -> list[str]:
    """A row for each operation of the dialects that are read, and one that counts them. If
    `is_quick`, an operation that is read for several types is compiled for the first alone."""
    lines: list[str] = []
    counts = dict.fromkeys(ELEMENT_TYPES, 0)
    operations = [*hlo.StableHLO.operations, *hlo.CHLO.operations]
    for op in sorted(operations, key=lambda op: (op.name.startswith("chlo"), op.name)):
        if op is hlo.ReturnOp:
            continue
        cells, messages = [], []
        for type in ELEMENT_TYPES.values():
            why = refusal(_step(op, type.name), not is_quick or "yes" not in cells)
            cells.append("no" if why else "yes")
            counts[type.mlir] += why is None
            if why:
                message = why.removeprefix(f"{op.name}: ")
                messages.append(message.replace(f"of type {type.name},", "of type ...,"))
        said = "; ".join(dict.fromkeys(messages))
        lines.append(f"| `{op.name}` | {' | '.join(cells)} | {said} |")
    numbers = " | ".join(map(str, counts.values()))
    return [*lines, f"| {len(lines)} operations | {numbers} | |"]


def missing_rows() -> list[str]:
    """A row for each other operation, with the message, and one that counts them."""
    known = {op.name for op in (*hlo.StableHLO.operations, *hlo.CHLO.operations)}
    lines = list(_missing(known))
    return [*lines, f"| {len(lines)} operations | |"]


def _missing(known: set[str]) -> Iterator[str]:
    for dialect, names in (("stablehlo", NAMES), ("chlo", CHLO_NAMES)):
        for name in names.split():
            full = f"{dialect}.{name}"
            if full in known:
                continue
            text = f'%r = "{full}"(%0) : (tensor<4xf32>) -> tensor<4xf32>'
            head = "func.func public @main(%0: tensor<4xf32>) -> tensor<4xf32>"
            why = refusal(f"{head} {{\n{text}\nreturn %r : tensor<4xf32>\n}}")
            assert why is not None, full
            yield f"| `{full}` | {why} |"
