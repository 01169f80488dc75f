"""The generated programs' own mathematical functions, evaluated on NumPy arrays.

Their source are the files of `math/`, from which the C backend prints the functions of the same
names. Both do the same float32 and int32 operations in the same order, so both return the same
bits. An operation finds its function by its name: `math.exp` is `poetc_expf`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from xdsl.context import Context
from xdsl.dialects import arith, builtin, func
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser

from poetc.ir.remainder import RemOp

DIRECTORY = Path(__file__).parent / "math"
"""The MLIR texts of all functions."""

_HEAD = re.compile(r"^func\.func (private )?@(\w+)", re.MULTILINE)

# Elements evaluated at a time: the temporaries of a block stay in the processor's cache.
_BLOCK = 1 << 14

Value = TypeVar("Value")

_CMPF: tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], ...] = (
    lambda a, b: np.zeros(a.shape, bool),  # false
    lambda a, b: a == b,  # oeq
    lambda a, b: a > b,  # ogt
    lambda a, b: a >= b,  # oge
    lambda a, b: a < b,  # olt
    lambda a, b: a <= b,  # ole
    lambda a, b: (a < b) | (a > b),  # one
    lambda a, b: (a == a) & (b == b),  # ord
    lambda a, b: ~((a < b) | (a > b)),  # ueq
    lambda a, b: ~(a <= b),  # ugt
    lambda a, b: ~(a < b),  # uge
    lambda a, b: ~(a >= b),  # ult
    lambda a, b: ~(a > b),  # ule
    lambda a, b: a != b,  # une
    lambda a, b: (a != a) | (b != b),  # uno
    lambda a, b: np.ones(a.shape, bool),  # true
)

_CMPI: tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], ...] = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a < b,
    lambda a, b: a <= b,
    lambda a, b: a > b,
    lambda a, b: a >= b,
)  # the signed comparisons, in the order of the `predicate` attribute

_UNSIGNED_CMPI = 6
"""The predicate of the first comparison of numbers without a sign; four less has one."""

_SIMPLE: Mapping[type[Operation], Callable[..., np.ndarray]] = {
    arith.AddfOp: np.add,
    arith.SubfOp: np.subtract,
    arith.MulfOp: np.multiply,
    arith.DivfOp: np.divide,
    arith.NegfOp: np.negative,
    arith.AddiOp: np.add,
    arith.SubiOp: np.subtract,
    arith.MuliOp: np.multiply,
    arith.RemSIOp: np.fmod,
    arith.AndIOp: np.bitwise_and,
    arith.OrIOp: np.bitwise_or,
    arith.XOrIOp: np.bitwise_xor,
    arith.ShLIOp: np.left_shift,
    arith.ShRSIOp: np.right_shift,
    arith.SelectOp: np.where,
}


@cache
def _files() -> Mapping[str, tuple[Path, bool]]:
    """The file of each function, and whether other code may call it. Nothing is parsed for it."""
    return {
        symbol: (path, not private)
        for path in sorted(DIRECTORY.glob("*.mlir"))
        for private, symbol in _HEAD.findall(path.read_text())
    }


@cache
def _parsed(path: Path) -> Mapping[str, func.FuncOp]:
    context = Context()
    for dialect in (builtin.Builtin, func.Func, arith.Arith):
        context.load_dialect(dialect)
    module = Parser(context, path.read_text(), str(path)).parse_module()
    return {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}


def function(symbol: str) -> func.FuncOp:
    """The function of that symbol; not to be changed. KeyError if there is none."""
    return _parsed(_files()[symbol][0])[symbol]


@cache
def functions() -> Mapping[str, func.FuncOp]:
    """All functions by symbol; callees precede their callers. Not to be changed."""
    return MappingProxyType({symbol: function(symbol) for symbol in _files()})


@cache
def symbols() -> Mapping[str, str]:
    """Symbol, and so the name in C, of each function by its short name: of `poetc_expf`, `exp`."""
    return MappingProxyType(
        {short_name(symbol): symbol for symbol, (_, public) in _files().items() if public}
    )


def short_name(symbol: str) -> str:
    """`exp` for `poetc_expf`."""
    return symbol.removeprefix("poetc_").removesuffix("f")


def symbol_of(op: Operation | type[Operation]) -> str | None:
    """The function that a scalar operation calls, None for one that is arithmetic."""
    dialect, _, name = op.name.partition(".")
    is_function = dialect == "math" or op.name == RemOp.name
    return symbols().get(name.removesuffix("f")) if is_function else None


def unlike_fused(symbol: str) -> tuple[float, ...]:
    """Arguments for which a function returns other bits if a compiler fuses multiplications and
    additions; none if it returns the same ones anyway."""
    values = function(symbol).attributes.get("unlike_fused")
    if not isinstance(values, builtin.ArrayAttr):
        return ()
    return tuple(v.value.data for v in values if isinstance(v, builtin.FloatAttr))


def cycles(symbol: str) -> float:
    """Cycles of a call, with one number or a vector of them, on a processor that starts two
    operations in a cycle."""
    known = function(symbol).attributes.get("cycles")
    if isinstance(known, builtin.FloatAttr):
        return known.value.data
    return sum(len(function(name).body.block.ops) for name in callees(symbol)) / 2


def callees(*symbols: str) -> tuple[str, ...]:
    """The symbols and those of all functions that they call, callees before their callers."""
    needed: set[str] = set()
    pending = [*symbols]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            for op in function(name).walk():
                if isinstance(op, func.CallOp):
                    pending.append(op.callee.root_reference.data)
    return tuple(name for name in _files() if name in needed)


def evaluate(name: str, *arrays: np.ndarray) -> np.ndarray:
    """Apply one of `symbols()` to float32 arrays, element by element.

    The arrays are broadcast against each other. The bits of the result are those of the C function.
    Raises KeyError for an unknown name and TypeError for other element types.
    """
    symbol = symbols()[name]
    inputs = [np.asarray(array) for array in arrays]
    if any(array.dtype != np.float32 for array in inputs):
        raise TypeError(f"{name} takes float32 arrays, not {[str(a.dtype) for a in inputs]}")
    inputs = np.broadcast_arrays(*inputs)
    shape = inputs[0].shape
    flat = [np.ascontiguousarray(array).reshape(-1) for array in inputs]
    result = np.empty(flat[0].size, np.float32)
    # Overflow, division by zero and NaN are results like any other here.
    with np.errstate(all="ignore"):
        for start in range(0, result.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            result[block] = _call(symbol, [array[block] for array in flat])
    return result.reshape(shape)


def call(
    symbol: str, arguments: Sequence[Value], do: Callable[[Operation, Sequence[Value]], Value]
) -> Value:
    """The result of a function, also of those that it calls, for values of any kind: `do` is the
    result of one operation on them."""
    block = function(symbol).body.block
    values: dict[SSAValue, Value] = dict(zip(block.args, arguments, strict=True))
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        match op:
            case func.ReturnOp():
                return operands[0]
            case func.CallOp():
                values[op.results[0]] = call(op.callee.root_reference.data, operands, do)
            case _:
                values[op.results[0]] = do(op, operands)
    raise AssertionError(f"{symbol} does not return")


def _call(symbol: str, arguments: list[np.ndarray]) -> np.ndarray:
    size = arguments[0].shape

    def do(op: Operation, operands: Sequence[np.ndarray]) -> np.ndarray:
        match op:
            case arith.ConstantOp():
                return np.broadcast_to(_constant(op), size)
            case arith.BitcastOp():
                return np.ascontiguousarray(operands[0]).view(_dtype(op.result.type))
            case arith.SIToFPOp() | arith.FPToSIOp() | arith.ExtUIOp():
                return operands[0].astype(_dtype(op.results[0].type))
            case _:
                return arithmetic(op, operands)

    return call(symbol, arguments, do)


def arithmetic(op: Operation, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The result of a comparison, a choice or an operation on numbers of one type.

    Raises KeyError for any other operation."""
    match op:
        case arith.CmpfOp():
            return _CMPF[op.predicate.value.data](*operands)
        case arith.CmpiOp():
            predicate = op.predicate.value.data
            if predicate >= _UNSIGNED_CMPI:
                return _CMPI[predicate - 4](*map(unsigned, operands))
            return _CMPI[predicate](*operands)
        case _:
            return _SIMPLE[type(op)](*operands)


def unsigned(array: np.ndarray) -> np.ndarray:
    """The same bits as numbers without a sign."""
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "i" else array


def _constant(op: arith.ConstantOp) -> np.generic:
    assert isinstance(op.value, builtin.IntegerAttr | builtin.FloatAttr)
    return _dtype(op.result.type).type(op.value.value.data)


def _dtype(type_: Attribute) -> np.dtype:
    if isinstance(type_, builtin.Float32Type):
        return np.dtype(np.float32)
    if isinstance(type_, builtin.IntegerType):
        return np.dtype(bool if type_.width.data == 1 else np.int32)
    raise TypeError(f"no array type for {type_}")
