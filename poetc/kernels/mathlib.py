"""The generated programs' own mathematical functions, evaluated on NumPy arrays.

Their source is `math.mlir`, from which the C backend prints the functions of the same names. Both
do the same float32 and int32 operations in the same order, so both return the same bits.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

import numpy as np
from xdsl.context import Context
from xdsl.dialects import arith, builtin, func
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.parser import Parser

SOURCE = Path(__file__).parent / "math.mlir"
"""The MLIR text of all functions."""

SYMBOLS: Mapping[str, str] = MappingProxyType(
    {
        "exp": "poetc_expf",
        "log": "poetc_logf",
        "tanh": "poetc_tanhf",
        "rsqrt": "poetc_rsqrtf",
        "sqrt": "poetc_sqrtf",
        "pow": "poetc_powf",
    }
)
"""Symbol in `math.mlir`, and so in C, of each function by its short name."""

CHANGED_BY_FUSING: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"exp": (8.625,), "log": (5.546142578125,), "tanh": (0.78125,), "pow": (19.125, 1.5)}
)
"""Arguments for which a function returns other bits if a compiler fuses multiplications and
additions. sqrt and rsqrt return the same ones anyway."""

# Elements evaluated at a time: the temporaries of a block stay in the processor's cache.
_BLOCK = 1 << 14

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

_SIMPLE: Mapping[type[Operation], Callable[..., np.ndarray]] = {
    arith.AddfOp: np.add,
    arith.SubfOp: np.subtract,
    arith.MulfOp: np.multiply,
    arith.DivfOp: np.divide,
    arith.AddiOp: np.add,
    arith.SubiOp: np.subtract,
    arith.MuliOp: np.multiply,
    arith.AndIOp: np.bitwise_and,
    arith.OrIOp: np.bitwise_or,
    arith.XOrIOp: np.bitwise_xor,
    arith.ShLIOp: np.left_shift,
    arith.ShRSIOp: np.right_shift,
    arith.SelectOp: np.where,
}


@lru_cache(maxsize=1)
def functions() -> Mapping[str, func.FuncOp]:
    """The functions of `math.mlir` by symbol; callees precede their callers. Not to be changed."""
    context = Context()
    for dialect in (builtin.Builtin, func.Func, arith.Arith):
        context.load_dialect(dialect)
    module = Parser(context, SOURCE.read_text(), str(SOURCE)).parse_module()
    module.verify()
    return MappingProxyType(
        {op.sym_name.data: op for op in module.ops if isinstance(op, func.FuncOp)}
    )


def callees(symbol: str) -> tuple[str, ...]:
    """Symbols of `symbol` and of all functions it calls, callees before their callers."""
    needed: set[str] = set()
    pending = [symbol]
    while pending:
        name = pending.pop()
        if name not in needed:
            needed.add(name)
            for op in functions()[name].walk():
                if isinstance(op, func.CallOp):
                    pending.append(op.callee.root_reference.data)
    return tuple(name for name in functions() if name in needed)


def evaluate(name: str, *arrays: np.ndarray) -> np.ndarray:
    """Apply one of `SYMBOLS` to float32 arrays, element by element.

    The arrays are broadcast against each other. The bits of the result are those of the C function.
    Raises KeyError for an unknown name and TypeError for other element types.
    """
    symbol = SYMBOLS[name]
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


def _call(symbol: str, arguments: list[np.ndarray]) -> np.ndarray:
    block = functions()[symbol].body.block
    size = arguments[0].shape
    values: dict[SSAValue, np.ndarray] = dict(zip(block.args, arguments, strict=True))
    for op in block.ops:
        operands = [values[operand] for operand in op.operands]
        match op:
            case func.ReturnOp():
                return operands[0]
            case func.CallOp():
                result = _call(op.callee.root_reference.data, operands)
            case arith.ConstantOp():
                result = np.broadcast_to(_constant(op), size)
            case arith.CmpfOp():
                result = _CMPF[op.predicate.value.data](*operands)
            case arith.CmpiOp():
                result = _CMPI[op.predicate.value.data](*operands)
            case arith.BitcastOp():
                result = np.ascontiguousarray(operands[0]).view(_dtype(op.result.type))
            case arith.SIToFPOp() | arith.FPToSIOp() | arith.ExtUIOp():
                result = operands[0].astype(_dtype(op.results[0].type))
            case _:
                result = _SIMPLE[type(op)](*operands)
        values[op.results[0]] = result
    raise AssertionError(f"{symbol} does not return")


def _constant(op: arith.ConstantOp) -> np.generic:
    assert isinstance(op.value, builtin.IntegerAttr | builtin.FloatAttr)
    return _dtype(op.result.type).type(op.value.value.data)


def _dtype(type_: Attribute) -> np.dtype:
    if isinstance(type_, builtin.Float32Type):
        return np.dtype(np.float32)
    if isinstance(type_, builtin.IntegerType):
        return np.dtype(bool if type_.width.data == 1 else np.int32)
    raise TypeError(f"no array type for {type_}")
