"""Prints kernels as C99.

A kernel is a `func.func` over memrefs (or, for mathematical functions, over scalars) whose body
uses `affine.for`, `affine.if`, loads and stores, and scalar arithmetic; see `kernels/lower.py`. The
C does the same scalar operations in the same order. It is printed to be read:

- a value used once is printed where it is used, other values become `const` variables of the
  innermost scope;
- `iter_args` become variables that the loop assigns; a variable is handed on to inner loops and
  guards instead of being copied;
- subscripts are flat, row-major and simplified (`indexing.py`);
- operations that C leaves undefined or inexact are calls of `runtime/poetc_scalar.h`.

What is outside this subset is an `InputError` that names the operation.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from xdsl.dialects import affine, arith, func, math, memref
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    Float32Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    MemRefType,
    ModuleOp,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstraintKind, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.hints import isa

from poetc.backends.c.indexing import (
    NO_FACTS,
    Facts,
    Index,
    Variable,
    comparison,
    from_affine,
    to_c,
)
from poetc.errors import InputError
from poetc.ir.dense import to_array
from poetc.ir.types import type_in_code
from poetc.kernels import mathlib
from poetc.names import printable

_INDENT = "    "
_WIDTH = 100
# Longer expressions are split by naming their parts.
_LONG = 72

MATH_CALLS: Mapping[type[Operation], str] = {
    math.ExpOp: mathlib.SYMBOLS["exp"],
    math.LogOp: mathlib.SYMBOLS["log"],
    math.TanhOp: mathlib.SYMBOLS["tanh"],
    math.RsqrtOp: mathlib.SYMBOLS["rsqrt"],
    math.SqrtOp: mathlib.SYMBOLS["sqrt"],
    math.PowFOp: mathlib.SYMBOLS["pow"],
}
"""The C function for each operation of the math dialect."""

# Words that are no identifiers in C99, C23 or POSIX headers that a port may include.
_KEYWORDS = frozenset(
    (
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "bool",
        "true",
        "false",
        "asm",
        "typeof",
        "alignas",
        "alignof",
        "nullptr",
        "constexpr",
        "thread_local",
        "static_assert",
        "memcpy",
        "memset",
    )
)


class _Level(IntEnum):
    """How tightly an expression holds together; operands that hold less get parentheses."""

    CHOICE = 0
    OR = 1
    AND = 2
    COMPARE = 3
    SUM = 4
    PRODUCT = 5
    UNARY = 6
    ATOM = 7


@dataclass(frozen=True)
class _Expression:
    """C text of a value.

    `reads` are the variables and buffers in it that may change later. `operation` has left operand,
    operator and right operand (without parentheses) of a sum or product.
    """

    text: str
    level: _Level = _Level.ATOM
    reads: frozenset[str] = frozenset()
    operation: tuple[str, str, str] | None = None

    def at(self, level: _Level) -> str:
        """The text as an operand where `level` is needed."""
        return self.text if self.level >= level else f"({self.text})"


_BINARY: Mapping[type[Operation], tuple[str, _Level]] = {
    arith.AddfOp: ("+", _Level.SUM),
    arith.SubfOp: ("-", _Level.SUM),
    arith.MulfOp: ("*", _Level.PRODUCT),
    arith.DivfOp: ("/", _Level.PRODUCT),
}

_WRAPPING: Mapping[type[Operation], str] = {
    arith.AddiOp: "poetc_add",
    arith.SubiOp: "poetc_sub",
    arith.MuliOp: "poetc_mul",
    arith.ShLIOp: "poetc_shift_left",
    arith.ShRSIOp: "poetc_shift_right",
}

# On i1 these are logical; operands have no effects, so that short-circuiting does no harm.
_BITWISE: Mapping[type[Operation], tuple[str, str, _Level]] = {
    arith.AndIOp: ("&", "&&", _Level.AND),
    arith.OrIOp: ("|", "||", _Level.OR),
    arith.XOrIOp: ("^", "!=", _Level.COMPARE),
}

# By predicate number: the operator, and whether the result is negated (true if unordered).
_CMPF: Mapping[int, tuple[str, bool]] = {
    1: ("==", False),
    2: (">", False),
    3: (">=", False),
    4: ("<", False),
    5: ("<=", False),
    9: ("<=", True),
    10: ("<", True),
    11: (">=", True),
    12: (">", True),
    13: ("!=", False),
}

# What prints a value on a line of its own, so that the length of its expression is no matter.
_STATEMENTS = (affine.YieldOp, affine.StoreOp, memref.StoreOp, func.ReturnOp)

_CMPI: Sequence[str] = ("==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">=")

_FIRST_UNSIGNED_CMPI = 6


def c_identifier(text: str) -> str:
    """`text` with everything that C does not allow in an identifier replaced by `_`."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII).lstrip("_") or "x"
    return f"x{name}" if name[0].isdigit() else name


def c_comment(text: str, width: int = _WIDTH) -> str:
    """A C comment that says `text`, wrapped to `width` columns."""
    safe = printable(text).replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?")
    lines = [
        wrapped
        for line in safe.splitlines()
        for wrapped in (textwrap.wrap(line, width - 6) or [""])
    ]
    if len(lines) <= 1:
        return f"/* {''.join(lines)} */"
    return "/* " + "\n * ".join(lines) + "\n */"


def element_c_type(type_: Attribute) -> str:
    """The C type of an element in memory. Raises InputError for a type C code cannot hold."""
    return type_in_code(type_).c_memory


def _scalar_c_type(type_: Attribute) -> str:
    return type_in_code(type_).c


def float_literal(value: float) -> _Expression:
    """The float32 `value` exactly."""
    number = np.float32(value)
    bits = int(number.view(np.uint32))
    if not np.isfinite(number):
        return _Expression(f"poetc_float(0x{bits:08x}u)")
    if 0 < abs(number) < np.finfo(np.float32).tiny:
        # Compilers may warn of decimal denormals.
        text = float(number).hex()
    else:
        text = np.format_float_scientific(number, unique=True, trim="0")
        mantissa, exponent = text.split("e")
        if -5 <= int(exponent) <= 7:
            text = np.format_float_positional(number, unique=True, trim="0")
        else:
            text = f"{mantissa}e{int(exponent)}"
    return _Expression(f"{text}f", _Level.UNARY if text[0] == "-" else _Level.ATOM)


def stored_arguments(function: func.FuncOp) -> frozenset[int]:
    """Positions of the memref arguments that the function writes."""
    arguments: dict[SSAValue, int] = {a: i for i, a in enumerate(function.body.block.args)}
    return frozenset(
        arguments[op.memref]
        for op in function.walk()
        if isinstance(op, affine.StoreOp | memref.StoreOp) and op.memref in arguments
    )


def called_functions(function: func.FuncOp) -> frozenset[str]:
    """C names of the functions that the printed function calls, `poetc_scalar.h` left out."""
    names = {MATH_CALLS[type(op)] for op in function.walk() if type(op) in MATH_CALLS}
    names |= {
        op.callee.root_reference.data for op in function.walk() if isinstance(op, func.CallOp)
    }
    return frozenset(names)


@dataclass(frozen=True)
class Signature:
    """How a function is declared: its name, and which pointers may overlap others."""

    name: str
    static: bool = False
    overlapping: Collection[int] = frozenset()
    """Positions of memref arguments that are printed without `restrict`."""


def print_prototype(function: func.FuncOp, signature: Signature) -> str:
    """The declaration of the function, with a semicolon."""
    return _Function(function, signature).head() + ";\n"


def print_function(function: func.FuncOp, signature: Signature) -> str:
    """The definition of the function. Raises InputError for what C cannot be printed of."""
    try:
        return _Function(function, signature).definition()
    except ValueError as error:
        raise InputError(f"kernel @{function.sym_name.data}: {error}") from error


def print_table(op: memref.GlobalOp) -> str:
    """The definition of a table of constants. One with infinities or NaN has them as bits."""
    assert isa(op.type, MemRefType)
    array = _table(op).reshape(-1)
    name = c_identifier(op.sym_name.data)
    if not _is_finite(op):
        items = [f"{{.bits = 0x{bits:08x}u}}" for bits in array.view(np.uint32).tolist()]
        type_ = "poetc_float_bits"
    else:
        literal = float_literal if array.dtype.kind == "f" else _integer_literal
        items = [literal(value).text for value in array.tolist()]
        type_ = element_c_type(op.type.element_type)
    lines = textwrap.wrap(
        f"static const {type_} {name}[{len(items)}] = {{{', '.join(items)}}};",
        _WIDTH,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def tables_of(function: func.FuncOp) -> tuple[memref.GlobalOp, ...]:
    """The tables of constants that a function reads."""
    tables = _tables(function)
    names = dict.fromkeys(
        op.name_.root_reference.data for op in function.walk() if isinstance(op, memref.GetGlobalOp)
    )
    return tuple(tables[name] for name in names if name in tables)


def _tables(function: func.FuncOp) -> dict[str, memref.GlobalOp]:
    module = function.parent_op()
    ops = module.ops if isinstance(module, ModuleOp) else ()
    return {op.sym_name.data: op for op in ops if isinstance(op, memref.GlobalOp)}


def _table(op: memref.GlobalOp) -> np.ndarray:
    if not isinstance(op.initial_value, DenseIntOrFPElementsAttr):
        raise InputError(f"memref.global @{op.sym_name.data} has no value")
    return to_array(op.initial_value)


def _is_finite(op: memref.GlobalOp) -> bool:
    array = _table(op)
    return array.dtype.kind != "f" or bool(np.isfinite(array).all())


def _check_order(region: Region, defined: set[SSAValue]) -> None:
    """Raises InputError for a value that is used before it is defined or outside of its scope."""
    for block in region.blocks:
        inside = {*defined, *block.args}
        for op in block.ops:
            for operand in op.operands:
                if operand not in inside:
                    name = f"%{operand.name_hint}" if operand.name_hint else "a value"
                    raise InputError(f"{op.name} uses {name} where it is not defined")
            for nested in op.regions:
                _check_order(nested, inside)
            inside.update(op.results)


class _Function:
    """State while one function is printed."""

    def __init__(self, function: func.FuncOp, signature: Signature) -> None:
        self.signature = signature
        self.stored = stored_arguments(function)
        self.tables = _tables(function)
        _check_order(function.body, set())
        # Simplified in a copy: printing changes nothing.
        self.function = function.clone()
        _inline_single_iterations(self.function)
        _erase_unused(self.function)
        self.block = self.function.body.block
        self.names: set[str] = {*_KEYWORDS, *map(c_identifier, self.tables)}
        self.values: dict[SSAValue, _Expression] = {}
        self.indices: dict[SSAValue, Index] = {}
        # Constant tables that are stored as bits.
        self.bit_tables: set[SSAValue] = set()
        # Values to be printed where they are used, in order of their definition.
        self.pending: dict[SSAValue, None] = {}
        # The value of the program that an assigned variable has now; None: nothing of use yet.
        self.holds: dict[str, SSAValue | None] = {}
        # The variables that the yield at the end of a block assigns.
        self.targets: dict[Operation, Sequence[str]] = {}
        self.facts = NO_FACTS
        self.lines: list[str] = []
        self.depth = 1
        for argument in self.block.args:
            name = self.name(argument, "x")
            self.values[argument] = _Expression(name)
            if isinstance(argument.type, IndexType):
                self.indices[argument] = Index.of(Variable(name))

    # Names, lines and pending values

    def name(self, value: SSAValue, default: str) -> str:
        """A new C name for a value, after its name in the IR."""
        base = c_identifier(value.name_hint or default)
        name = base
        number = 1
        while name in self.names:
            number += 1
            name = f"{base}{number}" if not base[-1].isdigit() else f"{base}_{number}"
        self.names.add(name)
        return name

    def line(self, text: str, depth: int | None = None) -> None:
        self.lines += _broken(text, _INDENT * (self.depth if depth is None else depth))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is named inside is unknown afterwards, and the names are free again."""
        names, values, indices = set(self.names), dict(self.values), dict(self.indices)
        self.depth += 1
        yield
        self.depth -= 1
        self.names, self.values, self.indices = names, values, indices
        self.holds = {name: value for name, value in self.holds.items() if name in names}

    def expression(self, value: SSAValue) -> _Expression:
        """The expression of an operand, which is no longer pending then."""
        self.pending.pop(value, None)
        return self.peek(value)

    def assignment(self, target: str, expression: _Expression) -> str:
        left, operator, right = expression.operation or ("", "", "")
        if left == target:
            return f"{target} {operator}= {right};"
        return f"{target} = {expression.text};"

    def peek(self, value: SSAValue) -> _Expression:
        """The expression of a value that stays pending."""
        if value in self.values:
            return self.values[value]
        index = self.indices[value]
        return _Expression(to_c(index, self.facts), _index_level(index), self.changing(index))

    def text(self, value: SSAValue) -> str:
        return self.peek(value).text

    def atom(self, value: SSAValue) -> str:
        """The text of an operand that is printed several times: a name or a literal."""
        if value in self.pending:
            self.materialize(value)
        expression = self.expression(value)
        return expression.at(_Level.UNARY)

    def changing(self, *indices: Index) -> frozenset[str]:
        """The assigned variables in index expressions."""
        names = frozenset().union(*(index.variables for index in indices))
        return names & self.holds.keys()

    def bind(self, value: SSAValue, name: str, *, changing: bool) -> None:
        """Binds a value to an assigned variable, which may still change or not."""
        if isinstance(value.type, IndexType):
            self.values.pop(value, None)
            self.indices[value] = Index.of(Variable(name))
        else:
            self.values[value] = _Expression(name, reads=frozenset({name} if changing else ()))

    def define(self, value: SSAValue, expression: _Expression) -> None:
        """Binds a value to an expression: printed at its only use, or as a variable now."""
        uses = list(value.uses)
        self.values[value] = expression
        self.pending[value] = None
        block = value.owner if isinstance(value.owner, Block) else value.owner.parent
        here = len(uses) == 1 and uses[0].operation.parent is block
        if not uses:
            del self.pending[value]
        elif not here or (
            len(expression.text) > _LONG and not isinstance(uses[0].operation, _STATEMENTS)
        ):
            self.materialize(value)

    def materialize(self, value: SSAValue) -> None:
        """Prints a pending value as a variable."""
        expression = self.expression(value)
        name = self.name(value, "t")
        self.line(f"const {_scalar_c_type(value.type)} {name} = {expression.text};")
        self.bind(value, name, changing=False)

    def flush(self, changed: Collection[str]) -> None:
        """Prints the pending values that read what is about to change."""
        for value in list(self.pending):
            if not self.values[value].reads.isdisjoint(changed):
                self.materialize(value)

    # Declaration and definition

    def head(self) -> str:
        parameters = [self.parameter(i, argument) for i, argument in enumerate(self.block.args)]
        results = self.function.function_type.outputs.data
        if len(results) > 1:
            raise InputError(f"function @{self.function.sym_name.data} returns several values")
        result = _scalar_c_type(results[0]) if results else "void"
        start = f"{'static ' if self.signature.static else ''}{result} {self.signature.name}("
        line = f"{start}{', '.join(parameters) or 'void'})"
        if len(line) <= _WIDTH:
            return line
        return f"{start}\n{_INDENT}" + f",\n{_INDENT}".join(parameters) + ")"

    def parameter(self, i: int, argument: SSAValue) -> str:
        name = self.values[argument].text
        if not isa(argument.type, MemRefType):
            return f"{_scalar_c_type(argument.type)} {name}"
        const = "" if i in self.stored else "const "
        restrict = "" if i in self.signature.overlapping else "restrict "
        shape = "x".join(map(str, argument.type.get_shape())) or "scalar"
        type_ = element_c_type(argument.type.element_type)
        return f"{const}{type_} *{restrict}{name} /* {shape} */"

    def definition(self) -> str:
        head = self.head()
        for argument in self.block.args:
            if not argument.uses.get_length():
                self.line(f"(void){self.values[argument].text};")
        self.operations(self.block)
        return "\n".join([head, "{", *self.lines, "}"]) + "\n"

    # Operations

    def operations(self, block: Block) -> None:
        """Prints all operations of a block but its terminator, unless that is a return."""
        for op in block.ops:
            match op:
                case affine.YieldOp():
                    pass
                case func.ReturnOp():
                    if op.operands:
                        self.line(f"return {self.expression(op.operands[0]).text};")
                case affine.ForOp():
                    self.loop(op)
                case affine.IfOp():
                    self.guard(op)
                case affine.StoreOp():
                    self.store(op.value, op.memref, self.map(op.map.data, op.indices))
                case memref.StoreOp():
                    indices = [self.index(i) for i in op.indices]
                    self.store(op.value, op.memref, indices)
                case affine.LoadOp():
                    self.load(op.result, op.memref, self.map(op.map.data, op.indices))
                case memref.LoadOp():
                    self.load(op.res, op.memref, [self.index(i) for i in op.indices])
                case memref.GetGlobalOp():
                    name = op.name_.root_reference.data
                    self.values[op.memref] = _Expression(c_identifier(name))
                    if name in self.tables and not _is_finite(self.tables[name]):
                        self.bit_tables.add(op.memref)
                case affine.ApplyOp():
                    self.define_index(op.result, self.map(op.map.data, op.operands)[0])
                case _:
                    self.scalar(op)

    def index(self, value: SSAValue) -> Index:
        """The index arithmetic form of a value of index type."""
        if value not in self.indices:
            raise InputError(f"index {value} does not come from a loop, a constant or a cast")
        return self.indices[value]

    def map(self, map_: AffineMap, operands: Sequence[SSAValue]) -> list[Index]:
        indices = [self.index(operand) for operand in operands]
        dims, symbols = indices[: map_.num_dims], indices[map_.num_dims :]
        return [from_affine(e, dims, symbols, self.facts) for e in map_.results]

    def element(self, buffer: SSAValue, indices: Sequence[Index]) -> str:
        assert isa(buffer.type, MemRefType)
        flat = Index()
        for size, index in zip(buffer.type.get_shape(), indices, strict=True):
            flat = flat * size + index
        text = f"{self.values[buffer].text}[{to_c(flat, self.facts)}]"
        return f"{text}.value" if buffer in self.bit_tables else text

    def load(self, result: SSAValue, buffer: SSAValue, indices: Sequence[Index]) -> None:
        text = self.element(buffer, indices)
        reads = frozenset({self.values[buffer].text}) | self.changing(*indices)
        if result.type == IntegerType(1):
            self.define(result, _Expression(f"{text} != 0", _Level.COMPARE, reads))
        else:
            self.define(result, _Expression(text, _Level.ATOM, reads))

    def store(self, value: SSAValue, buffer: SSAValue, indices: Sequence[Index]) -> None:
        expression = self.expression(value)
        text = expression.text
        if value.type == IntegerType(1):
            text = f"(uint8_t){expression.at(_Level.UNARY)}"
        if not isinstance(buffer, BlockArgument) or buffer.block is not self.block:
            raise InputError("a kernel stores to what is not one of its arguments")
        # Any pointer without `restrict` may point to what is stored.
        position = buffer.index
        overlapping = self.signature.overlapping
        changed = overlapping if position in overlapping else {position}
        self.flush({self.values[self.block.args[i]].text for i in changed})
        self.line(f"{self.element(buffer, indices)} = {text};")

    def loop(self, op: affine.ForOp) -> None:
        if len(op.lowerBoundMap.data.results) != 1 or len(op.upperBoundMap.data.results) != 1:
            raise InputError("affine.for with a minimum or maximum as bound is not supported")
        first = self.map(op.lowerBoundMap.data, op.lowerBoundOperands)[0]
        end = self.map(op.upperBoundMap.data, op.upperBoundOperands)[0]
        variable, *carried = op.body.block.args
        targets: list[str] = []
        for init, argument, result in zip(op.inits, carried, op.results, strict=True):
            target = self.reusable(op, result, init)
            text = self.expression(init).text
            if target is None:
                target = self.name(argument, "acc")
                self.line(f"{_scalar_c_type(argument.type)} {target} = {text};")
            else:
                self.flush({target})
                if self.holds[target] is not init:
                    self.line(f"{target} = {text};")
            self.holds[target] = argument
            self.bind(argument, target, changing=True)
            targets.append(target)
        with self.scope():
            name = self.name(variable, "i")
            high = end.bounds[1]
            last = None if high is None else high - 1
            self.indices[variable] = Index.of(Variable(name, first.bounds[0], last))
            step = op.step.value.data
            advance = f"++{name}" if step == 1 else f"{name} += {step}"
            start, stop = to_c(first, self.facts), to_c(end, self.facts)
            head = f"for (int32_t {name} = {start}; {name} < {stop}; {advance}) {{"
            self.line(head, depth=self.depth - 1)
            self.assigning(op.body.block, targets)
        self.line("}")
        for target, result in zip(targets, op.results, strict=True):
            self.holds[target] = result
            self.bind(result, target, changing=False)

    def guard(self, op: affine.IfOp) -> None:
        conditions, facts = self.conditions(op)
        if conditions is None or not conditions:
            taken = op.then_region if conditions is not None else op.else_region
            if taken.blocks:
                self.inline(taken.block, op.results)
            return
        reused = [self.reusable(op, result, None) for result in op.results]
        if len(op.results) == 1 and not self.keeps(op, reused[0]):
            choice = self.choice(op, conditions, facts)
            if choice is not None:
                self.define(op.results[0], choice)
                return
        targets: list[str] = []
        for target, result in zip(reused, op.results, strict=True):
            if target is None:
                target = self.name(result, "t")
                self.line(f"{_scalar_c_type(result.type)} {target};")
                self.holds[target] = None
            self.flush({target})
            targets.append(target)
        before = dict(self.holds)
        self.line(f"if ({' && '.join(conditions)}) {{")
        with self.scope(), self.known(facts):
            self.assigning(op.then_region.block, targets)
        if op.else_region.blocks:
            self.holds = dict(before)
            outer, self.lines = self.lines, []
            with self.scope():
                self.assigning(op.else_region.block, targets)
            inner, self.lines = self.lines, outer
            if inner:
                self.line("} else {")
                self.lines += inner
        self.line("}")
        self.holds = before
        for target, result in zip(targets, op.results, strict=True):
            self.holds[target] = result
            self.bind(result, target, changing=False)

    def conditions(self, op: affine.IfOp) -> tuple[list[str] | None, Facts]:
        """The comparisons that are not always true, None if one never is; what they establish."""
        affine_set = op.condition.data
        indices = [self.index(operand) for operand in op.args]
        dims, symbols = indices[: affine_set.num_dims], indices[affine_set.num_dims :]
        constraints: list[tuple[Index, bool]] = []  # >= 0, or == 0 if true
        facts = self.facts
        for constraint in affine_set.constraints:
            # Later comparisons are evaluated only where the earlier ones hold.
            index = from_affine(constraint.lhs, dims, symbols, facts) - from_affine(
                constraint.rhs, dims, symbols, facts
            )
            if constraint.kind is AffineConstraintKind.le:
                index = index * -1
            equal = constraint.kind is AffineConstraintKind.eq
            facts = facts.and_([index, index * -1] if equal else [index])
            opposite = next((i for i, (c, _) in enumerate(constraints) if c + index == Index()), -1)
            if opposite >= 0:
                constraints[opposite] = (index, True)
            else:
                constraints.append((index, equal))
        texts: list[str] = []
        facts = self.facts
        for index, equal in constraints:
            low, high = facts.low(index), facts.high(index)
            if (high is not None and high < 0) or (equal and low is not None and low > 0):
                return None, facts
            if low is None or low < 0 or (equal and (high is None or high > 0)):
                texts.append(comparison(index, "==" if equal else ">=", facts))
            facts = facts.and_([index, index * -1] if equal else [index])
        return texts, facts

    @contextmanager
    def known(self, facts: Facts) -> Iterator[None]:
        outer, self.facts = self.facts, facts
        yield
        self.facts = outer

    def keeps(self, op: affine.IfOp, target: str | None) -> bool:
        """Whether a branch leaves the assigned variable as it is."""
        return target is not None and any(
            _yielded(region.block)[0] is self.holds[target]
            for region in op.regions
            if region.blocks
        )

    def choice(
        self, op: affine.IfOp, conditions: Sequence[str], facts: Facts
    ) -> _Expression | None:
        """The conditional expression of a guard whose branches are short expressions."""
        if any(_nested_guards(region) > 1 for region in op.regions):
            # Too long, and it would take time that doubles with each level.
            return None
        saved = (self.values, self.indices, self.pending, self.names, self.lines)
        holds = self.holds
        self.values, self.indices, self.holds = dict(self.values), dict(self.indices), dict(holds)
        self.pending, self.names, self.lines = {}, set(self.names), []
        branches: list[_Expression] = []
        for region, known in zip(op.regions, (facts, self.facts), strict=True):
            with self.known(known):
                self.operations(region.block)
                branches.append(self.expression(_yielded(region.block)[0]))
        short = not self.lines
        self.values, self.indices, self.pending, self.names, self.lines = saved
        self.holds = holds
        yes, no = branches
        text = f"{' && '.join(conditions)} ? {yes.at(_Level.OR)} : {no.at(_Level.OR)}"
        if not short or len(text) > _LONG:
            return None
        reads = self.changing(*(self.index(operand) for operand in op.args))
        return _Expression(text, _Level.CHOICE, reads | yes.reads | no.reads)

    def inline(self, block: Block, results: Sequence[SSAValue]) -> None:
        """Prints a block that always runs where it stands."""
        self.operations(block)
        for result, value in zip(results, _yielded(block), strict=True):
            self.define(result, self.expression(value))

    # Assigned variables

    def assigning(self, block: Block, targets: Sequence[str]) -> None:
        """Prints a block and assigns what it yields to `targets`."""
        yield_op = block.last_op
        if targets:
            assert yield_op is not None
            self.targets[yield_op] = targets
        self.operations(block)
        values = _yielded(block)
        changes = []
        for target, value in zip(targets, values, strict=True):
            if self.text(value) != target:
                changes.append((target, value))
            else:
                self.pending.pop(value, None)
        # A new value that reads a variable is computed before that variable changes.
        for i, (_, value) in enumerate(changes):
            changed = {target for target, _ in changes[:i]}
            if not self.peek(value).reads.isdisjoint(changed):
                self.materialize(value)
        for target, value in changes:
            self.line(self.assignment(target, self.expression(value)))

    def reusable(self, op: Operation, result: SSAValue, init: SSAValue | None) -> str | None:
        """The variable of the enclosing block that may be assigned to compute `result`.

        That is the one the result ends up in, if nothing else reads its old value from here on.
        A loop (with an `init`) may read the old value only as the initial value.
        """
        uses = list(result.uses)
        if len(uses) != 1 or uses[0].operation not in self.targets:
            return None
        if uses[0].operation.parent is not op.parent:
            return None
        target: str = self.targets[uses[0].operation][uses[0].index]
        held = self.holds[target]
        if held is None:
            return target
        if init is not None and held is not init:
            return None
        inside = 0
        for use in held.uses:
            place = _common(op, use.operation)
            if place is None or place[0] is not place[1]:
                if place is not None and place[0].is_before_in_block(place[1]):
                    return None
            elif init is not None and place[0] is op:
                inside += 1
        return target if inside <= 1 else None

    # Scalar operations

    def scalar(self, op: Operation) -> None:
        if len(op.results) != 1 or op.regions:
            raise InputError(f"the C backend does not know {op.name}")
        result = op.results[0]
        if isinstance(op, arith.ConstantOp):
            self.constant(op)
        elif isinstance(result.type, IndexType):
            self.index_arithmetic(op)
        else:
            self.shorten(op.operands)
            expression = self.compute(op)
            self.define(result, expression)

    def constant(self, op: arith.ConstantOp) -> None:
        match op.value:
            case IntegerAttr() if isinstance(op.result.type, IndexType):
                self.indices[op.result] = Index((), op.value.value.data)
            case IntegerAttr() if op.result.type == IntegerType(1):
                self.values[op.result] = _Expression("true" if op.value.value.data else "false")
            case IntegerAttr():
                self.values[op.result] = _integer_literal(op.value.value.data)
            case FloatAttr() if isinstance(op.result.type, Float32Type):
                self.values[op.result] = float_literal(op.value.value.data)
            case _:
                raise InputError(f"the C backend has no constant of type {op.result.type}")

    def index_arithmetic(self, op: Operation) -> None:
        result = op.results[0]
        match op:
            case arith.AddiOp():
                self.define_index(result, self.index(op.lhs) + self.index(op.rhs))
            case arith.SubiOp():
                self.define_index(result, self.index(op.lhs) - self.index(op.rhs))
            case arith.MuliOp() if not self.index(op.lhs).terms:
                self.define_index(result, self.index(op.rhs) * self.index(op.lhs).constant)
            case arith.MuliOp() if not self.index(op.rhs).terms:
                self.define_index(result, self.index(op.lhs) * self.index(op.rhs).constant)
            case _:
                self.values[result] = self.compute(op)
                self.materialize(result)

    def define_index(self, value: SSAValue, index: Index) -> None:
        """Binds a value to an index expression; as a variable if something in it may change."""
        self.indices[value] = index
        if self.changing(index):
            self.materialize(value)

    def shorten(self, operands: Sequence[SSAValue]) -> None:
        """Names the longest operands until the expression of all of them is of bearable length."""
        while sum(len(self.text(operand)) for operand in operands) > _LONG:
            longest = max(
                (operand for operand in operands if operand in self.pending),
                key=lambda operand: len(self.text(operand)),
                default=None,
            )
            if longest is None:
                return
            self.materialize(longest)

    def compute(self, op: Operation) -> _Expression:
        """The expression of a scalar operation."""
        if isinstance(op, arith.CmpfOp):
            return self.compare_floats(op)
        if type(op) in (arith.MaximumfOp, arith.MinimumfOp):
            return self.limit(op)
        if type(op) in (arith.MaxSIOp, arith.MinSIOp):
            a, b = (self.atom(operand) for operand in op.operands)
            operator = ">" if isinstance(op, arith.MaxSIOp) else "<"
            return _Expression(f"{a} {operator} {b} ? {a} : {b}", _Level.CHOICE)
        parts = [self.expression(operand) for operand in op.operands]
        reads = frozenset().union(*(part.reads for part in parts))
        text, level = self.render(op, parts)
        operation = None
        if type(op) in _BINARY:
            operation = (parts[0].text, _BINARY[type(op)][0], parts[1].text)
        return _Expression(text, level, reads, operation)

    def render(self, op: Operation, parts: Sequence[_Expression]) -> tuple[str, _Level]:
        def call(name: str) -> tuple[str, _Level]:
            return f"{name}({', '.join(part.text for part in parts)})", _Level.ATOM

        boolean = op.operands and op.operands[0].type == IntegerType(1)
        kind = type(op)
        if kind in _BINARY:
            operator, level = _BINARY[kind]
            left, right = parts[0].at(level), parts[1].at(_Level(level + 1))
            return f"{left} {operator} {right}", level
        if kind in _BITWISE:
            bitwise, logical, level = _BITWISE[kind]
            if boolean:
                inner = _Level(level + 1) if kind is not arith.OrIOp else _Level.COMPARE
                return f"{parts[0].at(inner)} {logical} {parts[1].at(inner)}", level
            left, right = (part.at(_Level.UNARY) for part in parts)
            return f"{left} {bitwise} {right}", _Level.OR
        if kind in _WRAPPING and not boolean:
            return call(_WRAPPING[kind])
        if kind in MATH_CALLS:
            return call(MATH_CALLS[kind])
        match op:
            case arith.CmpiOp():
                predicate = op.predicate.value.data
                left, right = (part.at(_Level.SUM) for part in parts)
                if predicate >= _FIRST_UNSIGNED_CMPI:
                    left, right = (f"(uint32_t){part.at(_Level.UNARY)}" for part in parts)
                return f"{left} {_CMPI[predicate]} {right}", _Level.COMPARE
            case arith.SelectOp():
                condition, left, right = (part.at(_Level.OR) for part in parts)
                return f"{condition} ? {left} : {right}", _Level.CHOICE
            case arith.NegfOp():
                operand = parts[0].at(_Level.ATOM)
                return f"-{operand}", _Level.UNARY
            case math.AbsFOp():
                return call("poetc_abs")
            case arith.BitcastOp():
                to_float = isinstance(op.result.type, Float32Type)
                return call("poetc_as_float" if to_float else "poetc_as_int")
            case arith.FPToSIOp():
                return call("poetc_to_int")
            case arith.SIToFPOp() if not boolean:
                return f"(float){parts[0].at(_Level.UNARY)}", _Level.UNARY
            case arith.SIToFPOp():
                return f"{parts[0].at(_Level.OR)} ? -1.0f : 0.0f", _Level.CHOICE
            case arith.UIToFPOp() if boolean:
                return f"{parts[0].at(_Level.OR)} ? 1.0f : 0.0f", _Level.CHOICE
            case arith.UIToFPOp():
                return f"(float)(uint32_t){parts[0].at(_Level.UNARY)}", _Level.UNARY
            case arith.ExtUIOp() if boolean:
                return f"{parts[0].at(_Level.OR)} ? 1 : 0", _Level.CHOICE
            case arith.ExtSIOp() if boolean:
                return f"{parts[0].at(_Level.OR)} ? -1 : 0", _Level.CHOICE
            case arith.TruncIOp() if op.result.type == IntegerType(1):
                return f"({parts[0].at(_Level.UNARY)} & 1) != 0", _Level.COMPARE
            case arith.IndexCastOp():
                return parts[0].text, parts[0].level
            case func.CallOp():
                return call(op.callee.root_reference.data)
        raise InputError(f"the C backend does not know {op.name} of {op.results[0].type}")

    def compare_floats(self, op: arith.CmpfOp) -> _Expression:
        predicate = op.predicate.value.data
        if predicate in _CMPF:
            parts = [self.expression(operand) for operand in op.operands]
            reads = parts[0].reads | parts[1].reads
            operator, negated = _CMPF[predicate]
            text = f"{parts[0].at(_Level.SUM)} {operator} {parts[1].at(_Level.SUM)}"
            if negated:
                return _Expression(f"!({text})", _Level.UNARY, reads)
            return _Expression(text, _Level.COMPARE, reads)
        a, b = (self.atom(operand) for operand in op.operands)
        reads = frozenset().union(
            *(self.values[operand].reads for operand in op.operands if operand in self.values)
        )
        if a == b and predicate in (7, 14):  # ordered, unordered
            return _Expression(f"{a} {'==' if predicate == 7 else '!='} {a}", _Level.COMPARE, reads)
        match predicate:
            case 6:
                return _Expression(f"{a} < {b} || {a} > {b}", _Level.OR, reads)
            case 7:
                return _Expression(f"{a} == {a} && {b} == {b}", _Level.AND, reads)
            case 8:
                return _Expression(f"!({a} < {b} || {a} > {b})", _Level.UNARY, reads)
            case 14:
                return _Expression(f"{a} != {a} || {b} != {b}", _Level.OR, reads)
        return _Expression("true" if predicate else "false")

    def limit(self, op: Operation) -> _Expression:
        """maximumf and minimumf; cheaper with a constant, see `poetc_at_least`."""
        maximum = isinstance(op, arith.MaximumfOp)
        # The zero for which the comparison with -0 or +0 alone is not enough.
        excluded = 0x80000000 if maximum else 0
        operands = list(op.operands)
        if isinstance(operands[0].owner, arith.ConstantOp):
            operands.reverse()
        name = "poetc_maximum" if maximum else "poetc_minimum"
        constant = operands[1].owner
        if isinstance(constant, arith.ConstantOp) and isinstance(constant.value, FloatAttr):
            value = np.float32(constant.value.value.data)
            if not np.isnan(value) and int(value.view(np.uint32)) != excluded:
                name = "poetc_at_least" if maximum else "poetc_at_most"
        parts = [self.expression(operand) for operand in operands]
        text = f"{name}({', '.join(part.text for part in parts)})"
        return _Expression(text, _Level.ATOM, parts[0].reads | parts[1].reads)


def _broken(text: str, indent: str) -> list[str]:
    """A statement on as many lines as its length needs."""
    if len(indent) + len(text) <= _WIDTH:
        return [indent + text]
    room = _WIDTH - len(indent)
    target, equals, value = text.partition(" = ")
    if equals and len(_INDENT) + len(value) <= room:
        return [f"{indent}{target} =", f"{indent}{_INDENT}{value}"]
    # Before the last operator that fits, of those in the fewest parentheses.
    places = [
        (text.count("(", 0, m.start()) - text.count(")", 0, m.start()), -m.start())
        for m in re.finditer(r" (?=[-+*/?:|&]{1,2} )", text)
        if m.start() <= room
    ]
    if not places:
        return [indent + text]
    at = -min(places)[1]
    rest = _broken(text[at + 1 :], indent + _INDENT)
    return [indent + text[:at], *rest]


def _integer_literal(value: int) -> _Expression:
    value = int(value)
    if value == -(2**31):
        return _Expression("INT32_MIN")
    return _Expression(str(value), _Level.UNARY if value < 0 else _Level.ATOM)


def _index_level(index: Index) -> _Level:
    if not index.terms:
        return _Level.ATOM if index.constant >= 0 else _Level.UNARY
    single = len(index.terms) == 1 and index.constant == 0 and index.terms[0][1] == 1
    return _Level.ATOM if single and isinstance(index.terms[0][0], Variable) else _Level.SUM


def _nested_guards(region: Region) -> int:
    """The most guards in `region` that are inside each other."""
    return max(
        (
            isinstance(op, affine.IfOp) + max(map(_nested_guards, op.regions), default=0)
            for block in region.blocks
            for op in block.ops
        ),
        default=0,
    )


def _yielded(block: Block) -> Sequence[SSAValue]:
    last = block.last_op
    return last.operands if isinstance(last, affine.YieldOp) else ()


def _common(a: Operation, b: Operation) -> tuple[Operation, Operation] | None:
    """The operations of the innermost block around both that are or contain `a` and `b`."""
    above: dict[Block, Operation] = {}
    for op in _ancestors(a):
        if op.parent is not None:
            above[op.parent] = op
    for op in _ancestors(b):
        if op.parent is not None and op.parent in above:
            return above[op.parent], op
    return None


def _ancestors(op: Operation | None) -> Iterator[Operation]:
    while op is not None:
        yield op
        op = op.parent_op()


def _inline_single_iterations(function: func.FuncOp) -> None:
    """Replaces each loop that runs exactly once by its body."""
    for op in list(function.walk()):
        if not isinstance(op, affine.ForOp) or op.lowerBoundOperands or op.upperBoundOperands:
            continue
        bounds = op.lowerBoundMap.data.eval([], []), op.upperBoundMap.data.eval([], [])
        if any(len(results) != 1 for results in bounds):
            continue
        (low,), (high,) = bounds
        if not low < high <= low + op.step.value.data:
            continue
        start = arith.ConstantOp.from_int_and_width(low, IndexType())
        Rewriter.insert_op(start, InsertPoint.before(op))
        body = op.body.block
        last = body.last_op
        yielded = _yielded(body)
        if isinstance(last, affine.YieldOp):
            last.detach()
        Rewriter.inline_block(body, InsertPoint.before(op), [start.result, *op.inits])
        for result, value in zip(op.results, yielded, strict=True):
            result.replace_all_uses_with(value)
        if isinstance(last, affine.YieldOp):
            last.erase()
        Rewriter.erase_op(op)


def _erase_unused(function: func.FuncOp) -> None:
    """Removes scalars that nothing uses: an argument that only they read counts as unused."""
    for op in reversed(list(function.walk())):
        effects = isinstance(op, affine.ForOp | affine.IfOp | affine.StoreOp | memref.StoreOp)
        if op.results and not effects and all(not r.uses.get_length() for r in op.results):
            Rewriter.erase_op(op)
