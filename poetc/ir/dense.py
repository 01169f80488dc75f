"""Dense element literals (`dense<...>`) with exactly the bits they spell.

xDSL 0.75 reads a hexadecimal float literal as a number instead of a bit pattern: -inf, which is
`dense<0xFF800000>`, becomes 4286578688.0. It prints such literals itself, prints `[0.0, -0.0]` as a
splat of 0.0, and stores `true` as 0xFF from a keyword but as 0x01 from a blob. A constant read
wrongly is a wrong program in whatever tool it is read, so `install` replaces xDSL's reader and
printer of these literals by the ones below. The types and the stored form stay xDSL's.
"""

import math
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    BFloat16Type,
    BytesAttr,
    ComplexType,
    DenseIntOrFPElementsAttr,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    Signedness,
    TensorType,
)
from xdsl.ir import Attribute
from xdsl.parser import AttrParser
from xdsl.printer import Printer

from poetc.ir.types import ELEMENT_TYPES

# More elements than this are printed as one hexadecimal string, as MLIR does.
_LIST_LIMIT = 100

# A splat is stored with all its elements, so a short literal can ask for any amount of memory.
_MAX_BYTES = 1 << 28

# Before the elements of a resource.
_ALIGNMENT_BYTES = 4

_FLOAT_DTYPES = {
    BFloat16Type: ml_dtypes.bfloat16,
    Float16Type: np.float16,
    Float32Type: np.float32,
    Float64Type: np.float64,
}


def dtype_of(element_type: Attribute) -> np.dtype:
    """NumPy type whose elements have the meaning of `element_type`; raises TypeError."""
    if (found := ELEMENT_TYPES.get(element_type)) is not None:
        return found.dtype
    if isinstance(element_type, IntegerType):
        width = element_type.width.data
        if width in (8, 16, 32, 64):
            unsigned = element_type.signedness.data == Signedness.UNSIGNED
            return np.dtype(f"{'u' if unsigned else 'i'}{width // 8}")
    elif isinstance(element_type, IndexType):
        return np.dtype(np.int64)
    elif type(element_type) in _FLOAT_DTYPES:
        return np.dtype(_FLOAT_DTYPES[type(element_type)])
    raise TypeError(f"no NumPy type for {element_type}")


def to_array(attr: DenseIntOrFPElementsAttr) -> np.ndarray:
    """The elements as an array of the type's shape; booleans for i1."""
    dtype = dtype_of(attr.get_element_type())
    # xDSL stores i1 as one byte per element, zero for false.
    stored = np.frombuffer(attr.data.data, np.uint8 if dtype == np.bool_ else dtype)
    return stored.astype(dtype).reshape(attr.get_shape())


def from_array(array: np.ndarray, element_type: Attribute) -> DenseIntOrFPElementsAttr:
    """Attribute of type `tensor<shape x element_type>` holding `array`, bit for bit."""
    dtype = dtype_of(element_type)
    if array.dtype != dtype:
        raise TypeError(f"{array.dtype} array for elements of type {element_type}")
    stored = array.astype(np.int8) * np.int8(-1) if dtype == np.bool_ else array
    data = np.ascontiguousarray(stored).tobytes()
    tensor: Any = TensorType(element_type, array.shape)
    return DenseIntOrFPElementsAttr(tensor, BytesAttr(data))


def _pack_element(parser: AttrParser, element: Any, element_type: Any) -> bytes:
    """Stored bytes of one parsed literal element."""
    if not isinstance(element_type, AnyFloat):
        value = element.to_type(parser, element_type)
        if isinstance(element_type, IntegerType):
            value = element_type.get_normalized_value(value)
            if value is None:
                parser.raise_error(f"integer does not fit in {element_type}", element.span)
        return element_type.pack((value,))
    if element.span.text[:2] in ("0x", "0X"):
        if element.value.bit_length() > element_type.bitwidth:
            parser.raise_error(f"float bits do not fit in {element_type}", element.span)
        return element.value.to_bytes(element_type.compile_time_size, "little")
    value = element.to_float(parser)
    dtype = _FLOAT_DTYPES.get(type(element_type))
    if dtype is None:
        return element_type.pack((value,))
    # Rounds to nearest and overflows to infinity, where `struct` would raise an error.
    with np.errstate(over="ignore"):
        return dtype(value).tobytes()


def _hexadecimal(text: str) -> bytes | None:
    """The bytes of `0x...`; None for other text."""
    try:
        return bytes.fromhex(text[2:]) if text[:2] in ("0x", "0X") else None
    except ValueError:
        return None


def _unpack_blob(
    parser: AttrParser,
    data: bytes,
    element_type: Any,
    count: int,
    may_be_splat: bool,
    place: tuple[int, int],
) -> bytes:
    """Stored bytes of a literal that has those of `count` elements, or of one that all are.

    `place` is where the literal begins and ends, as for all that is called here.
    """
    if element_type == IntegerType(1):
        # MLIR packs i1 eight to a byte, lowest bit first; xDSL writes one byte for each.
        if len(data) == (count + 7) // 8 and len(data) != count:
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[:count]
        else:
            bits = np.frombuffer(data, np.uint8)
        data = np.where(bits != 0, 0xFF, 0).astype(np.uint8).tobytes()
    size = element_type.compile_time_size
    if may_be_splat and len(data) == size:
        return data * count
    if len(data) != size * count:
        parser.raise_error(
            f"dense literal has {len(data)} bytes, its type needs {size * count}", *place
        )
    return data


def _parse_shaped_type(parser: AttrParser) -> Any:
    """The type after a literal. Tensors, by far the most frequent, get a fast check."""
    position = parser.pos
    type = parser.parse_type()
    if isinstance(type, TensorType) and DYNAMIC_INDEX not in type.get_shape():
        if isinstance(type.element_type, AnyFloat | IntegerType | IndexType | ComplexType):
            return type
        parser.raise_error(f"dense literal of type {type}", position, parser.pos)
    parser._resume_from(position)
    return parser._parse_dense_literal_type()


def parse_dense(parser: AttrParser, type: Any = None) -> DenseIntOrFPElementsAttr:
    """Parse `<...> : type` after the keyword `dense`; without the type where it is given."""
    begin = parser.pos
    parser.parse_punctuation("<", " in dense attribute")
    blob, elements, shape = None, [], None
    if parser.parse_optional_punctuation(">") is None:
        blob = parser.parse_optional_str_literal()
        if blob is None:
            elements, shape = parser._parse_tensor_literal()
        parser.parse_punctuation(">", " in dense attribute")
    place = begin, parser.pos
    if type is None:
        parser.parse_punctuation(":", " in dense attribute")
        type = _parse_shaped_type(parser)
    count = _count(parser, type, place)
    if blob is not None:
        data = _hexadecimal(blob)
        if data is None:
            parser.raise_error("expected a hexadecimal string in the dense literal", *place)
        data = _unpack_blob(parser, data, type.element_type, count, True, place)
    elif shape is None:
        if count:
            parser.raise_error(f"empty dense literal for {type}", *place)
        data = b""
    elif shape == []:
        data = _pack_element(parser, elements[0], type.element_type) * count
    elif tuple(shape) != tuple(type.get_shape()):
        parser.raise_error(f"dense literal has shape {shape}, its type is {type}", *place)
    else:
        data = b"".join(_pack_element(parser, e, type.element_type) for e in elements)
    return DenseIntOrFPElementsAttr(type, BytesAttr(data))


def _count(parser: AttrParser, type: Any, place: tuple[int, int]) -> int:
    """The number of elements, of which there may not be too many."""
    count = math.prod(type.get_shape())
    if count * type.element_type.compile_time_size > _MAX_BYTES:
        parser.raise_error(f"a constant of more than {_MAX_BYTES} bytes: {type}", *place)
    return count


def parse_dense_resource(
    parser: AttrParser, resources: Mapping[str, str]
) -> DenseIntOrFPElementsAttr:
    """Parse `<name> : type` after the keyword `dense_resource`.

    `resources` are the strings that the file has for names: 0x, four bytes for an alignment, and
    the elements.
    """
    parser.parse_punctuation("<", " in dense_resource attribute")
    position = parser.pos
    name = parser.parse_optional_identifier()
    name = parser.parse_str_literal() if name is None else name
    place = position, parser.pos
    parser.parse_punctuation(">", " in dense_resource attribute")
    parser.parse_punctuation(":", " in dense_resource attribute")
    type = _parse_shaped_type(parser)
    if name not in resources:
        what = f"the file does not have the elements of resource '{name}'"
        if name == "__elided__":
            what = "the elements of this constant were left out when the module was printed"
        parser.raise_error(f"{what}; print the module with all of them", *place)
    data = _hexadecimal(resources[name])
    if data is None or len(data) < _ALIGNMENT_BYTES:
        parser.raise_error(f"resource '{name}' is not a hexadecimal string", *place)
    count = _count(parser, type, place)
    data = _unpack_blob(parser, data[_ALIGNMENT_BYTES:], type.element_type, count, False, place)
    return DenseIntOrFPElementsAttr(type, BytesAttr(data))


def print_dense(attr: DenseIntOrFPElementsAttr, printer: Printer) -> None:
    """Print `dense<...>` without the type, so that `parse_dense` reads the same bytes."""
    data = attr.data.data
    element_type: Any = attr.get_element_type()
    size = element_type.compile_time_size
    count = len(data) // size
    # A splat repeats its first element byte for byte: 0.0 and -0.0 differ, equal NaNs do not.
    is_splat = count > 0 and data == data[:size] * count
    printer.print_string("dense<")
    if is_splat:
        _print_element(attr, data[:size], printer)
    elif count > _LIST_LIMIT and element_type != IntegerType(1):
        printer.print_string(f'"0x{data.hex().upper()}"')
    elif count:
        shape = attr.get_shape() if attr.shape_is_complete else (count,)
        _print_list(attr, data, shape, printer)
    printer.print_string(">")


def _print_list(
    attr: DenseIntOrFPElementsAttr, data: bytes, shape: tuple[int, ...], printer: Printer
) -> None:
    if not shape:
        _print_element(attr, data, printer)
        return
    stride = len(data) // shape[0]
    with printer.in_square_brackets():
        printer.print_list(
            range(shape[0]),
            lambda i: _print_list(attr, data[i * stride : (i + 1) * stride], shape[1:], printer),
        )


def _print_element(attr: DenseIntOrFPElementsAttr, data: bytes, printer: Printer) -> None:
    element_type: Any = attr.get_element_type()
    value = element_type.unpack(data, 1)[0]
    if isinstance(element_type, AnyFloat):
        if math.isfinite(value):
            printer.print_float(value, element_type)
        else:
            printer.print_string(f"0x{data[::-1].hex().upper()}")
    elif isinstance(element_type, ComplexType):
        printer.print_complex(value, element_type)
    else:
        printer.print_int(value, element_type)


def install() -> None:
    """Make xDSL's parser and printer use `parse_dense` and `print_dense`; may be repeated."""
    setattr(AttrParser, "parse_dense_int_or_fp_elements_attr", parse_dense)  # noqa: B010
    setattr(DenseIntOrFPElementsAttr, "print_without_type", print_dense)  # noqa: B010
