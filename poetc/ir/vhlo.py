"""Programs of StableHLO in files: bytecode of the VHLO dialect, as text of StableHLO.

VHLO has the operations of StableHLO, each with the number of its version, and attributes and types
of its own, so that old files can be read. `jax.export`, and `serialize_portable_artifact` of
StableHLO, write it. The text is in generic form, which the parser reads as any other: what it
refuses has the same messages.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from poetc.errors import InputError, SourceLocation
from poetc.ir.bytecode import (
    Block,
    DamagedError,
    Decoders,
    Dense,
    Entries,
    Location,
    Op,
    Reader,
    Text,
    UnsupportedError,
    Value,
)
from poetc.ir.stablehlo import OPERATIONS
from poetc.ir.stablehlo_attributes import (
    ConvDims,
    ConvDimsAttr,
    DotAlgorithm,
    DotAlgorithmAttr,
    DotDims,
    DotDimsAttr,
    GatherDims,
    GatherDimsAttr,
    ScatterDims,
    ScatterDimsAttr,
)

# Attributes and types


def spelled(attribute: Any) -> str:
    """An attribute as MLIR spells it."""
    match attribute:
        case Text(text):
            return text
        case bool():
            return "true" if attribute else "false"
        case str():
            return f'"{re.sub(_ESCAPED, _escape, attribute)}"'
        case Dense(type, data):
            elements = f'"0x{data.hex()}"' if data else ""
            return f"dense<{elements}> : {type}"
        case dict():
            entries = (
                f"{spelled(name)} = {spelled(value)}" if value != _UNIT else spelled(name)
                for name, value in attribute.items()
            )
            return f"{{{', '.join(entries)}}}"
        case _:
            raise DamagedError("a location or nothing in place of an attribute")


_ESCAPED = re.compile(r"[^ !#-\[\]-~]")
_UNIT = Text("unit")
_NOTHING = Text("none")


def _escape(match: re.Match[str]) -> str:
    return "".join(f"\\{byte:02X}" for byte in match[0].encode())


def _tensor(shape: Sequence[int], element: str) -> str:
    sizes = ("?" if size < 0 else str(size) for size in shape)
    return f"tensor<{'x'.join((*sizes, element))}>"


def _bits(type: str) -> int:
    """Bits of a number of a type."""
    match = re.fullmatch(r"(?:[su]?i|f|bf)(\d{1,4})|index", type)
    if match is None:
        raise UnsupportedError(f"numbers of type {type}")
    return int(match[1] or 64)


def _ranked(e: Entries) -> str:
    return _tensor(e.list(e.signed), e.type())


def _function(e: Entries) -> str:
    inputs, outputs = (", ".join(e.list(e.type)) for _ in range(2))
    return f"({inputs}) -> ({outputs})"


def _integer(e: Entries) -> Text:
    type = e.type()
    bits = _bits(type)
    value = e.integer(bits)
    if bits == 1:
        return Text("true" if value else "false")
    if not type.startswith("u") and value >> bits - 1 > 0:
        value -= 1 << bits
    return Text(f"{value} : {type}")


def _array(e: Entries) -> Text:
    return Text(f"[{', '.join(map(spelled, e.list(e.attribute)))}]")


def _dense(e: Entries) -> Dense:
    type, data = e.type(), e.blob()
    if type.endswith("i1>") and data not in (b"\0", b"\xff"):
        # Eight in a byte, unless all are equal.
        count = math.prod(map(int, re.findall(r"(\d+)x", type)))
        bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
        if not 0 <= len(bits) - count < 8:
            raise DamagedError(f"{len(data)} bytes for {type}")
        data = bits[:count].tobytes()
    return Dense(type, data)


def _dictionary(e: Entries) -> dict[str, Any]:
    found = {}
    for name, value in e.list(lambda: (e.attribute(), e.attribute())):
        if not isinstance(name, str):
            raise DamagedError("the name of an attribute is no string")
        found[name] = value
    return found


def _line(e: Entries) -> Location:
    return Location(f"{spelled(e.attribute())}:{e.number()}")


def _range(e: Entries) -> Location:
    """Lines and columns of the begin and the end."""
    name, numbers = spelled(e.attribute()), e.list(e.number)
    return Location(f"{name}:{numbers[0] if numbers else 0}")


def _first_of(count: int) -> Callable[[Entries], Location | None]:
    """Of several locations the first that is known: of calls in each other the innermost."""

    def read(e: Entries) -> Location | None:
        found = [e.attribute() for _ in range(count or e.count())]
        return next((place for place in found if isinstance(place, Location)), None)

    return read


def _keyword(kind: str, *keywords: str) -> Callable[[Entries], Text]:
    def read(e: Entries) -> Text:
        number = e.number()
        if number >= len(keywords):
            raise UnsupportedError(f"{kind} {number}")
        return Text(f"#stablehlo<{kind} {keywords[number]}>")

    return read


_BUILTIN = Decoders(
    attributes={
        **{0: _array, 1: _dictionary, 2: Entries.string, 15: lambda e: None},
        # Locations: a call and its caller, a line, several, a name, a range.
        **{10: _first_of(2), 11: _line, 12: _first_of(0), 13: _first_of(0), 14: _first_of(2)},
        22: _range,
    },
    types={12: lambda e: "none"},
)
_VHLO_TYPES = {
    **dict(enumerate(("bf16", "f16", "f32", "f64", "f8E4M3FN", "f8E5M2"), 2)),
    **dict(enumerate(("index", "i4", "i8", "i16", "i32", "i64"), 9)),
    **dict(enumerate(("ui4", "ui8", "ui16", "ui32", "ui64"), 15)),
    **{0: "i1", 22: "!stablehlo.token", 33: "none"},
}


def _double(e: Entries) -> Text:
    type = e.type()
    return Text(f"{_real(e)!r} : {type}")


def _real(e: Entries) -> float:
    return struct.unpack("<d", struct.pack("<Q", e.integer(64) & (1 << 64) - 1))[0]


def _accuracy(e: Entries) -> Text | None:
    """None for the default."""
    numbers, mode = (_real(e), _real(e), e.signed()), e.attribute()
    if numbers == (0.0, 0.0, 0) and mode == Text("#stablehlo<result_accuracy_mode DEFAULT>"):
        return _NOTHING
    return Text(f"#stablehlo.result_accuracy<{numbers}, {spelled(mode)}>")


_VHLO = Decoders(
    attributes={
        1: _array,
        2: lambda e: bool(e.number()),
        3: _keyword("comparison_direction", "EQ", "NE", "GE", "GT", "LE", "LT"),
        4: _keyword("comparison_type", "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
        5: lambda e: Text(f"{e.number()} : i32"),
        6: _dictionary,
        7: _keyword("fft_type", "FFT", "IFFT", "RFFT", "IRFFT"),
        8: _double,
        9: _integer,
        11: _keyword("precision", "DEFAULT", "HIGH", "HIGHEST"),
        12: _keyword("rng_algorithm", "DEFAULT", "THREE_FRY", "PHILOX"),
        13: _keyword("rng_distribution", "UNIFORM", "NORMAL"),
        14: Entries.string,
        15: _dense,
        16: _keyword("transpose", "INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
        17: lambda e: Text(e.type()),
        19: _keyword("result_accuracy_mode", "DEFAULT", "HIGHEST", "TOLERANCE"),
        20: _accuracy,
    },
    types={
        **{code: lambda e, name=name: name for code, name in _VHLO_TYPES.items()},
        1: lambda e: f"complex<{e.type()}>",
        8: _function,
        20: _ranked,
        23: lambda e: f"tuple<{', '.join(e.list(e.type))}>",
        25: lambda e: f"tensor<*x{e.type()}>",
    },
)

Struct = TypeVar("Struct", DotDims, DotAlgorithm, GatherDims, ScatterDims, ConvDims)

# Operations

_WINDOW = ("padding", "window_dimensions", "window_strides")
_CONVOLUTION = (
    *("batch_group_count", "feature_group_count", "input_batch_dimension"),
    *("input_feature_dimension", "input_spatial_dimensions", "kernel_input_feature_dimension"),
    *("kernel_output_feature_dimension", "kernel_spatial_dimensions", "lhs_dilation"),
    *("output_batch_dimension", "output_feature_dimension", "output_spatial_dimensions"),
    *("padding", "precision_config", "rhs_dilation", "window_reversal", "window_strides"),
)
_DOT = (
    *("lhs_batching_dimensions", "lhs_contracting_dimensions", "precision_config"),
    *("rhs_batching_dimensions", "rhs_contracting_dimensions"),
)
_ALGORITHM = (
    *("accumulation_type", "allow_imprecise_accumulation", "lhs_component_count"),
    *("lhs_precision_type", "num_primitive_operations", "rhs_component_count"),
    "rhs_precision_type",
)
_GATHER = (
    *("collapsed_slice_dims", "index_vector_dim", "indices_are_sorted", "offset_dims"),
    *("slice_sizes", "start_index_map"),
)
_SCATTER = (
    *("index_vector_dim", "indices_are_sorted", "inserted_window_dims"),
    *("scatter_dims_to_operand_dims", "unique_indices", "update_window_dims"),
)
_CUSTOM_CALL = (
    *("api_version", "backend_config", "call_target_name", "called_computations"),
    *("has_side_effect", "operand_layouts", "output_operand_aliases", "result_layouts"),
)
_COMPOSITE = ("composite_attributes", "decomposition", "name", "version")
_FUNCTION = ("arg_attrs", "function_type", "res_attrs", "sym_name", "sym_visibility")
_UNARY = (
    *("cbrt", "cosine", "exponential", "exponential_minus_one", "log", "log_plus_one"),
    *("logistic", "rsqrt", "sine", "sqrt", "tan", "tanh"),
)
_PROPERTIES: Mapping[str, Sequence[str]] = {
    "broadcast_in_dim_v1": ("broadcast_dimensions",),
    "call_v1": ("callee",),
    "compare_v1": ("compare_type", "comparison_direction"),
    **dict.fromkeys(("composite_v1", "composite_v2"), _COMPOSITE),
    "concatenate_v1": ("dimension",),
    "constant_v1": ("value",),
    "convolution_v1": _CONVOLUTION,
    "custom_call_v1": _CUSTOM_CALL,
    "dot_general_v1": _DOT,
    "dot_general_v2": sorted((*_DOT, *_ALGORITHM)),
    "dynamic_slice_v1": ("slice_sizes",),
    "func_v1": _FUNCTION,
    "gather_v1": _GATHER,
    "gather_v2": sorted((*_GATHER, "operand_batching_dims", "start_indices_batching_dims")),
    "iota_v1": ("iota_dimension",),
    "map_v1": ("dimensions",),
    "pad_v1": ("edge_padding_high", "edge_padding_low", "interior_padding"),
    "reduce_precision_v1": ("exponent_bits", "mantissa_bits"),
    "reduce_v1": ("dimensions",),
    "reduce_window_v1": ("base_dilations", "padding", "window_dilations", *_WINDOW[1:]),
    "reverse_v1": ("dimensions",),
    "rng_bit_generator_v1": ("rng_algorithm",),
    "scatter_v1": _SCATTER,
    "scatter_v2": sorted((*_SCATTER, "input_batching_dims", "scatter_indices_batching_dims")),
    "select_and_scatter_v1": _WINDOW,
    "slice_v1": ("limit_indices", "start_indices", "strides"),
    "sort_v1": ("dimension", "is_stable"),
    "transpose_v1": ("permutation",),
    **{f"{name}_v2": ("result_accuracy",) for name in _UNARY},
}
"""The properties of operations, in the order of the file. Others have none."""

_FUNCTIONS = {"func": "func.func", "call": "func.call"}
_CALLS = {"call": "callee", "composite": "decomposition"}
"""Where an operation has the name of a function."""

_MODULE = "builtin.module"
_VERSION = re.compile(r"_v\d+$")
_KNOWN = frozenset({"func.func", "func.call", *(op.name for op in OPERATIONS)})


class _Printer:
    """Writes operations in the generic form of MLIR, each in a line of its own."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._names: dict[Value, str] = {}
        self._sources: dict[str, int] = {}
        self.lines: list[str] = []

    def module(self, op: Op) -> str:
        """The text of a module, and the places in the program that it is from."""
        if op.name != _MODULE or len(op.regions) != 1:
            raise UnsupportedError(f"{op.name} at the top, in place of a module")
        self.lines.append("module {")
        for block in op.regions[0]:
            for inner in block.ops:
                self._op(inner, is_function=False)
        self.lines.append("}")
        for source, number in self._sources.items():
            self.lines.append(f"#loc{number} = loc({source}:1)")
        return "\n".join((*self.lines, ""))

    def _op(self, op: Op, is_function: bool) -> None:
        name, properties = self._stablehlo(op, is_function)
        operands = ", ".join(self._names[value] for value in op.operands)
        parts = [f'"{name}"({operands})']
        if properties:
            entries = (f"{key} = {value}" for key, value in properties.items())
            parts.append(f"<{{{', '.join(entries)}}}>")
        if op.results:
            for value in op.results:
                self._names[value] = f"%{len(self._names)}"
            parts.insert(0, f"{', '.join(self._names[value] for value in op.results)} =")
        if op.regions:
            self.lines.append(" ".join((*parts, "(")))
            for number, region in enumerate(op.regions):
                self._region(region, name == "func.func", ", " if number else "")
            parts = [")"]
        if attributes := self._reader.attributes(op):
            parts.append(spelled(attributes))
        inputs, outputs = (
            ", ".join(value.type for value in values) for values in (op.operands, op.results)
        )
        parts.append(f": ({inputs}) -> ({outputs})")
        if op.source is not None:
            number = self._sources.setdefault(op.source, len(self._sources) + 1)
            parts.append(f"loc(#loc{number})")
        self.lines.append(" ".join(parts))

    def _region(self, blocks: Sequence[Block], is_function: bool, before: str) -> None:
        self.lines.append(f"{before}{{")
        for number, block in enumerate(blocks):
            for value in block.arguments:
                self._names[value] = f"%arg{len(self._names)}"
            arguments = (f"{self._names[value]}: {value.type}" for value in block.arguments)
            self.lines.append(f"^bb{number}({', '.join(arguments)}):")
            for op in block.ops:
                self._op(op, is_function)
        self.lines.append("}")

    def _stablehlo(self, op: Op, is_function: bool) -> tuple[str, dict[str, str]]:
        """The name and the properties of an operation of VHLO in StableHLO."""
        _, _, versioned = op.name.partition(".")
        base = _VERSION.sub("", versioned)
        name = _FUNCTIONS.get(base, f"stablehlo.{base}")
        if base == "return" and is_function:
            name = "func.return"
        found = self._reader.properties(op, _PROPERTIES.get(versioned, ()))
        if found is not None:
            try:
                return name, _translated(base, found)
            except (KeyError, TypeError, ValueError) as error:
                raise DamagedError(f"the properties of {op.name}") from error
        # A later version of the operation, or one that the parser of the text refuses anyway.
        return op.name if name in _KNOWN else name, {}


def _translated(base: str, found: dict[str, Any]) -> dict[str, str]:
    """Properties of VHLO as those of StableHLO."""
    new: dict[str, str] = {}
    if base in _CALLS:
        new[_CALLS[base]] = f"@{spelled(found.pop(_CALLS[base]))}"
    elif base == "dot_general":
        new["dot_dimension_numbers"] = str(DotDimsAttr(_struct(DotDims, found)))
        algorithm = {key: found.pop(key) for key in _ALGORITHM if key in found}
        if algorithm.get("lhs_precision_type", _NOTHING) != _NOTHING:
            new["algorithm"] = str(DotAlgorithmAttr(_struct(DotAlgorithm, algorithm)))
    elif base == "gather":
        new["dimension_numbers"] = str(GatherDimsAttr(_struct(GatherDims, found)))
    elif base == "scatter":
        new["scatter_dimension_numbers"] = str(ScatterDimsAttr(_struct(ScatterDims, found)))
    elif base == "convolution":
        keys = [key for key in found if re.search("_dimensions?$", key)]
        dims = {re.sub("_dimensions?$", "", key): found.pop(key) for key in keys}
        new["dimension_numbers"] = str(ConvDimsAttr(_struct(ConvDims, dims)))
    for key, value in found.items():
        if value in _DEFAULTS:
            continue
        is_list = isinstance(value, Dense) and base != "constant" and value.type.count("x") == 1
        new[key] = _list_of(value) if is_list else spelled(value)
    return new


_DEFAULTS = (_NOTHING, Text("#stablehlo<comparison_type NOTYPE>"), Text("[]"), "")
"""Properties that StableHLO leaves out."""


def _struct(kind: type[Struct], found: dict[str, Any]) -> Struct:
    """A structure of the properties that have the names of its fields, which are taken away."""
    present = [field.name for field in fields(kind) if field.name in found]
    return kind(**{name: _plain(found.pop(name)) for name in present})


def _plain(value: Any) -> Any:
    """A property in Python."""
    match value:
        case Dense(_, _):
            return tuple(_numbers(value))
        case Text(text):
            number, _, type = text.partition(" : ")
            return int(number) if type else text
        case _:
            return value


def _numbers(value: Dense) -> list[int]:
    """The elements of a list of integers."""
    match = re.fullmatch(r"tensor<(\d{1,4})x(i64|i1)>", value.type)
    if match is None:
        raise DamagedError(f"{value.type} in place of a list of integers")
    count, dtype = int(match[1]), np.dtype("<i8" if match[2] == "i64" else np.bool_)
    if len(value.data) not in (dtype.itemsize, count * dtype.itemsize):
        raise DamagedError(f"{len(value.data)} bytes for {value.type}")
    elements = np.frombuffer(value.data, dtype)
    return np.resize(elements, count).tolist()


def _list_of(value: Dense) -> str:
    numbers = _numbers(value)
    type = "i64" if value.type.endswith("i64>") else "i1"
    listed = ", ".join(str(number).lower() for number in numbers)
    return f"array<{type}{': ' if numbers else ''}{listed}>"


def text_of(data: bytes, filename: str) -> str:
    """The text of the module in bytecode.

    Raises InputError for bytecode that is damaged, or has what is not known.
    """
    start = SourceLocation(filename, 1, 1)
    try:
        dialects = {"builtin": _BUILTIN, "vhlo": _VHLO}
        reader = Reader(data, dialects, lambda name: name.startswith("vhlo.") or name == _MODULE)
        return _Printer(reader).module(reader.module())
    except UnsupportedError as error:
        raise InputError(
            f"MLIR bytecode with {error} is not supported; write the module as text "
            "(mlir_module() of what jax.export returns), or as a portable artifact of StableHLO "
            "without shardings, such as those of typed keys: jax.random.PRNGKey has none",
            start,
        ) from error
    except (DamagedError, UnicodeDecodeError) as error:
        raise InputError(f"the MLIR bytecode is damaged or truncated: {error}", start) from error
