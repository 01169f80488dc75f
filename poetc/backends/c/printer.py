"""Prints kernels as C99.

A kernel is a `func.func` over memrefs (or, for mathematical functions, over scalars) whose body
uses `affine.for`, `affine.if`, loads and stores, and scalar arithmetic; see `kernels/lower.py`. The
C does the same scalar operations in the same order. It is printed to be read:

- a value used once is printed where it is used, other values become `const` variables of the
  innermost scope;
- `iter_args` become variables that the loop assigns; a variable is handed on to inner loops and
  guards instead of being copied;
- subscripts are flat, row-major and simplified (`ir/index.py`);
- operations that C leaves undefined or inexact are calls of `runtime/poetc_scalar.h`.

What is outside this subset is an `InputError` that names the operation.
"""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.dialects import affine, func, memref
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    IndexType,
    IntegerType,
    MemRefType,
)
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue
from xdsl.utils.hints import isa

from poetc.backends.c.bindings import LONG, Bindings
from poetc.backends.c.bounds import Bounds, bounds_of, declared, known_in
from poetc.backends.c.expressions import (
    Expression,
    Level,
    conditional,
    element_c_type,
    float_literal,
    integer_literal,
    place_type,
    scalar_c_type,
)
from poetc.backends.c.indexing import comparison, constraints_of, flat_index, to_c
from poetc.backends.c.lanes import lanes_in, load_vector
from poetc.backends.c.prepare import (
    check_order,
    inline_single_iterations,
    stored_arguments,
)
from poetc.backends.c.scalars import define_scalar
from poetc.backends.c.text import INDENT, WIDTH, c_identifier
from poetc.backends.c.together import Registers, together_in
from poetc.backends.c.vectors import define_vector, inline_functions
from poetc.errors import InputError
from poetc.ir.dense import to_array
from poetc.ir.index import ZERO, Facts, Index, Variable
from poetc.ir.symbols import named_in
from poetc.ir.types import computed_dtype
from poetc.kernels.access import Access, tiles_of
from poetc.kernels.addresses import COPIES, extent
from poetc.kernels.analysis import copied
from poetc.kernels.dependences import drop_dead, yielded
from poetc.kernels.lanes import Parts, lanes_of
from poetc.kernels.together import Group


@dataclass(frozen=True)
class Signature:
    """How a function is declared: its name, and which pointers may overlap others."""

    name: str
    static: bool = False
    overlapping: Collection[int] = frozenset()
    """Positions of memref arguments that are printed without `restrict`."""


def print_prototype(function: func.FuncOp, signature: Signature) -> str:
    """The declaration of the function, with a semicolon."""
    return _Function(function, signature, named_in(function, memref.GlobalOp)).head() + ";\n"


def print_function(function: func.FuncOp, signature: Signature) -> str:
    """The definition of the function. Raises InputError for what C cannot be printed of."""
    try:
        check_order(function.body, set())
        # Simplified in a copy: printing changes nothing.
        copy = function.clone()
        together = together_in(copy)
        inline_single_iterations(copy)
        inline_functions(copy)
        drop_dead(copy.body.block)
        tables = named_in(function, memref.GlobalOp)
        return _Function(copy, signature, tables, Registers(together)).definition()
    except ValueError as error:
        raise InputError(f"kernel @{function.sym_name.data}: {error}") from error


def print_table(op: memref.GlobalOp) -> str:
    """The definition of a table of constants. One with infinities or NaN has them as bits."""
    assert isa(op.type, MemRefType)
    array = _table(op).reshape(-1)
    name = c_identifier(op.sym_name.data)
    if computed_dtype(array.dtype) == array.dtype and not _is_finite(op):
        items = [f"{{.bits = 0x{bits:08x}u}}" for bits in array.view(np.uint32).tolist()]
        return _array(f"static const poetc_float_bits {name}", items, "IN_SECTION")
    type_ = element_c_type(op.type.element_type)
    return print_array(f"static const {type_} {name}", array, "IN_SECTION")


def print_array(declaration: str, array: np.ndarray, attribute: str = "") -> str:
    """The definition of an array of one dimension, which may have an attribute. Numbers of 32 bits
    and more are finite. Unsigned integers are, as everywhere in memory, the signed ones of the same
    bits."""
    if array.dtype.kind == "u":
        array = array.view(f"i{array.itemsize}")
    if computed_dtype(array.dtype) != array.dtype:
        items = [f"0x{bits:04x}u" for bits in array.view(np.uint16).tolist()]
        return _array(declaration, items, attribute)
    literal = float_literal if array.dtype.kind == "f" else integer_literal
    return _array(declaration, [literal(value).text for value in array.tolist()], attribute)


def _array(declaration: str, items: Sequence[str], attribute: str = "") -> str:
    lines = textwrap.wrap(
        f"{declaration}[{len(items)}] {attribute}{' ' * bool(attribute)}= {{{', '.join(items)}}};",
        WIDTH,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines) + "\n"


def tables_of(function: func.FuncOp) -> tuple[memref.GlobalOp, ...]:
    """The tables of constants that a function reads."""
    tables = named_in(function, memref.GlobalOp)
    names = dict.fromkeys(
        op.name_.root_reference.data for op in function.walk() if isinstance(op, memref.GetGlobalOp)
    )
    return tuple(tables[name] for name in names if name in tables)


def _table(op: memref.GlobalOp) -> np.ndarray:
    if not isinstance(op.initial_value, DenseIntOrFPElementsAttr):
        raise InputError(f"memref.global @{op.sym_name.data} has no value")
    return to_array(op.initial_value)


def _is_finite(op: memref.GlobalOp) -> bool:
    """Whether the elements can be written as numbers, or are bits anyway."""
    array = _table(op)
    return array.dtype != np.float32 or bool(np.isfinite(array).all())


class _Function:
    """State while one function is printed."""

    def __init__(
        self,
        function: func.FuncOp,
        signature: Signature,
        tables: Mapping[str, memref.GlobalOp],
        registers: Registers | None = None,
    ) -> None:
        self.function, self.signature, self.tables = function, signature, tables
        self.stored = stored_arguments(function)
        self.block = self.function.body.block
        self.lanes = lanes_in(function)
        self.bindings = Bindings((*map(c_identifier, self.tables), *self.lanes.types))
        self.bindings.vectors = self.lanes.vectors
        self.registers = registers or Registers()
        # Constant tables that are stored as bits.
        self.bit_tables: set[SSAValue] = set()
        # Bounds of loops that are known already, and where those of which loops will be.
        self.bounds: dict[affine.ForOp, Bounds] = {}
        self.ranges = known_in(function)
        # The variables that the yield at the end of a block assigns.
        self.targets: dict[Operation, Sequence[str]] = {}
        for argument in self.block.args:
            name = self.bindings.name(argument, "x")
            self.bindings.values[argument] = Expression(name)
            if isinstance(argument.type, IndexType):
                self.bindings.indices[argument] = Index.of(Variable(name))
        # A tile begins at one of the iterations of its loop.
        tiles = tiles_of(function)
        for argument, (count, _) in zip(self.block.args[::-1], tiles[::-1], strict=False):
            name = self.bindings.values[argument].text
            self.bindings.indices[argument] = Index.of(Variable(name, 0, count - 1))

    # Declaration and definition

    def head(self) -> str:
        parameters = [self.parameter(i, argument) for i, argument in enumerate(self.block.args)]
        results = self.function.function_type.outputs.data
        if len(results) > 1:
            raise InputError(f"function @{self.function.sym_name.data} returns several values")
        result = scalar_c_type(results[0]) if results else "void"
        start = f"{'static ' if self.signature.static else ''}{result} {self.signature.name}("
        line = f"{start}{', '.join(parameters) or 'void'})"
        if len(line) <= WIDTH:
            return line
        return f"{start}\n{INDENT}" + f",\n{INDENT}".join(parameters) + ")"

    def parameter(self, i: int, argument: SSAValue) -> str:
        name = self.bindings.values[argument].text
        if not isa(argument.type, MemRefType):
            return f"{scalar_c_type(argument.type)} {name}"
        const = "" if i in self.stored else "const "
        restrict = "" if i in self.signature.overlapping else "restrict "
        shape = "x".join(map(str, argument.type.get_shape())) or "scalar"
        type_ = element_c_type(argument.type.element_type)
        return f"{const}{type_} *{restrict}{name} /* {shape} */"

    def definition(self) -> str:
        head = self.head()
        for argument in self.block.args:
            if not argument.uses.get_length():
                self.bindings.line(f"(void){self.bindings.values[argument].text};")
        self.operations(self.block.ops)
        lines = self.bindings.lines
        types = [f"{INDENT}{line}" for line in self.lanes.used("\n".join(lines))]
        return "\n".join([head, "{", *types, *lines, "}"]) + "\n"

    # Operations

    def operations(self, ops: Iterable[Operation]) -> None:
        """Prints operations, all but the terminator of a block, unless that is a return."""
        for op in ops:
            match op:
                case affine.YieldOp():
                    pass
                case func.ReturnOp():
                    if op.operands:
                        self.bindings.line(
                            f"return {self.bindings.expression(op.operands[0]).text};"
                        )
                case affine.ForOp() if COPIES in op.attributes:
                    self.copy(op)
                case affine.ForOp():
                    self.loop(op)
                case affine.IfOp():
                    self.guard(op)
                case affine.LoadOp() | affine.StoreOp() if op in self.registers.groups:
                    _together(self, *self.registers.groups[op])
                case affine.LoadOp() | affine.StoreOp() if op in self.registers.printed:
                    pass
                case affine.StoreOp() | memref.StoreOp():
                    self.store(op)
                case affine.LoadOp() if op in self.lanes.loops:
                    is_bits = op.memref in self.bit_tables
                    load_vector(self.bindings, self.lanes, op, self.element, is_bits)
                case affine.LoadOp() | memref.LoadOp():
                    self.load(op)
                case memref.GetGlobalOp():
                    name = op.name_.root_reference.data
                    self.bindings.values[op.memref] = Expression(c_identifier(name))
                    if name in self.tables and not _is_finite(self.tables[name]):
                        self.bit_tables.add(op.memref)
                case affine.ApplyOp():
                    self.bindings.define_index(
                        op.result, self.bindings.map(op.map.data, op.operands)[0]
                    )
                case _ if op.results and op.results[0] in self.lanes.vectors:
                    define_vector(self.bindings, op)
                case _:
                    define_scalar(self.bindings, op)

    def element(self, buffer: SSAValue, indices: Sequence[Index], further: int = 0) -> str:
        flat = flat_index(buffer, indices) + further
        text = f"{self.bindings.values[buffer].text}[{to_c(flat, self.bindings.facts)}]"
        return f"{text}.value" if buffer in self.bit_tables else text

    def indices(self, op: Access) -> list[Index]:
        """The indices of a load or store."""
        if isinstance(op, affine.LoadOp | affine.StoreOp):
            return self.bindings.map(op.map.data, op.indices)
        return [self.bindings.index(i) for i in op.indices]

    def load(self, op: affine.LoadOp | memref.LoadOp) -> None:
        result, buffer, indices = op.results[0], op.memref, self.indices(op)
        text = self.element(buffer, indices)
        reads = frozenset({self.bindings.values[buffer].text}) | self.bindings.changing(*indices)
        if result.type == IntegerType(1):
            self.bindings.define(result, Expression(f"{text} != 0", Level.COMPARE, reads))
        else:
            self.bindings.define(result, Expression(text, Level.ATOM, reads))

    def store(self, op: affine.StoreOp | memref.StoreOp) -> None:
        indices = self.indices(op)
        expression = self.bindings.expression(op.value)
        text = expression.text
        if op.value.type == IntegerType(1):
            text = f"(uint8_t){expression.at(Level.UNARY)}"
        self.flush(op.memref)
        place = self.element(op.memref, indices)
        if (loop := self.lanes.loops.get(op)) is not None:
            place = f"*({place_type(lanes_of(loop))} *)&{place}"
        self.bindings.line(f"{place} = {text};")

    def flush(self, buffer: SSAValue) -> None:
        """Prints what is still to be read of a buffer, before that is stored to."""
        if not isinstance(buffer, BlockArgument) or buffer.block is not self.block:
            raise InputError("a kernel stores to what is not one of its arguments")
        # Any pointer without `restrict` may point to what is stored.
        position = buffer.index
        overlapping = self.signature.overlapping
        changed = overlapping if position in overlapping else {position}
        self.bindings.flush({self.bindings.values[self.block.args[i]].text for i in changed})

    def copy(self, op: affine.ForOp) -> None:
        """Prints a loop that copies an operand to a result, for where these are two buffers."""
        source, target = (self.bindings.values[buffer].text for buffer in copied(op))
        with self.bindings.scope():
            head = f"if ({target} != {source}) {{"
            self.bindings.line(head, depth=self.bindings.depth - 1)
            self.loop(op)
        self.bindings.line("}")

    def loop(self, op: affine.ForOp) -> None:
        variable, *carried = op.body.block.args
        targets: list[str] = []
        for init, argument, result in zip(op.inits, carried, op.results, strict=True):
            target = _reusable(self, op, result, init)
            text = self.bindings.given(init, argument).text
            if target is None:
                target = self.bindings.name(argument, "acc")
                self.bindings.line(f"{self.bindings.c_type(argument)} {target} = {text};")
            else:
                self.bindings.flush({target})
                if self.bindings.holds[target] is not init:
                    self.bindings.line(f"{target} = {text};")
            self.bindings.holds[target] = argument
            self.bindings.bind(argument, target, changing=True)
            targets.append(target)
        bounds = self.bounds.get(op) or bounds_of(op, self.bindings)
        with self.bindings.scope():
            name = self.bindings.name(variable, "i")
            parts = self.lanes.parts.get(op)
            lanes = 1 if parts is None else lanes_of(op)
            head, facts = bounds.head(op, name, self.bindings, lanes)
            self.bindings.line(head, depth=self.bindings.depth - 1)
            inner = declared(self.ranges.get(op, ()), self.bounds, self.bindings)
            with inner, self.bindings.known(facts):
                if parts is None:
                    self.assigning(op.body.block, targets, carried)
                else:
                    _print_lanes(self, op, parts, name)
        self.bindings.line("}")
        for target, result in zip(targets, op.results, strict=True):
            self.bindings.holds[target] = result
            self.bindings.bind(result, target, changing=False)

    def guard(self, op: affine.IfOp) -> None:
        conditions, facts = _conditions(op, self.bindings)
        if conditions is None or not conditions:
            taken = op.then_region if conditions is not None else op.else_region
            if taken.blocks:
                self.inline(taken.block, op.results)
            return
        reused = [_reusable(self, op, result, None) for result in op.results]
        is_vector = any(result in self.lanes.vectors for result in op.results)
        keeps = len(op.results) == 1 and _keeps(op, self.bindings.holds, reused[0])
        if len(op.results) == 1 and not is_vector and not keeps:
            choice = self.choice(op, conditions, facts)
            if choice is not None:
                self.bindings.define(op.results[0], choice)
                return
        targets: list[str] = []
        for target, result in zip(reused, op.results, strict=True):
            if target is None:
                target = self.bindings.name(result, "t")
                self.bindings.line(f"{self.bindings.c_type(result)} {target};")
                self.bindings.holds[target] = None
            self.bindings.flush({target})
            targets.append(target)
        before = dict(self.bindings.holds)
        self.bindings.line(f"if ({' && '.join(conditions)}) {{")
        with self.bindings.scope(), self.bindings.known(facts):
            self.assigning(op.then_region.block, targets, op.results)
        if op.else_region.blocks:
            self.bindings.holds = dict(before)
            outer, self.bindings.lines = self.bindings.lines, []
            with self.bindings.scope():
                self.assigning(op.else_region.block, targets, op.results)
            inner, self.bindings.lines = self.bindings.lines, outer
            if inner:
                self.bindings.line("} else {")
                self.bindings.lines += inner
        self.bindings.line("}")
        self.bindings.holds = before
        for target, result in zip(targets, op.results, strict=True):
            self.bindings.holds[target] = result
            self.bindings.bind(result, target, changing=False)

    def choice(self, op: affine.IfOp, conditions: Sequence[str], facts: Facts) -> Expression | None:
        """The conditional expression of a guard whose branches are short expressions."""
        if any(_nested_guards(region) > 1 for region in op.regions):
            # Too long, and it would take time that doubles with each level.
            return None
        branches: list[Expression] = []
        with self.bindings.aside() as lines:
            for region, known in zip(op.regions, (facts, self.bindings.facts), strict=True):
                with self.bindings.known(known):
                    self.operations(region.block.ops)
                    branches.append(self.bindings.expression(yielded(region.block)[0]))
        short = not lines
        yes, no = branches
        text, level = conditional(op.results[0].type, " && ".join(conditions), yes, no)
        if not short or len(text) > LONG:
            return None
        reads = self.bindings.changing(*(self.bindings.index(operand) for operand in op.args))
        return Expression(text, level, reads | yes.reads | no.reads)

    def inline(self, block: Block, results: Sequence[SSAValue]) -> None:
        """Prints a block that always runs where it stands."""
        uses = {use.operation for result in results for use in result.uses}
        for use in uses & self.targets.keys():
            # Its values are handed on at once: the same variables are assigned.
            if tuple(use.operands) == tuple(results) and block.last_op is not None:
                self.targets[block.last_op] = self.targets[use]
        self.operations(block.ops)
        for result, value in zip(results, yielded(block), strict=True):
            self.bindings.define(result, self.bindings.given(value, result))

    # Assigned variables

    def assigning(self, block: Block, targets: Sequence[str], assigned: Sequence[SSAValue]) -> None:
        """Prints a block and assigns what it yields to `targets`, which are those of the values
        `assigned`."""
        yield_op = block.last_op
        if targets:
            assert yield_op is not None
            self.targets[yield_op] = targets
        self.operations(block.ops)
        values = yielded(block)
        changes: list[tuple[str, SSAValue, SSAValue]] = []
        for target, value, like in zip(targets, values, assigned, strict=True):
            if self.bindings.text(value) != target:
                changes.append((target, value, like))
            else:
                self.bindings.pending.pop(value, None)
        # A new value that reads a variable is computed before that variable changes.
        for i, (_, value, _) in enumerate(changes):
            changed = {target for target, _, _ in changes[:i]}
            if not self.bindings.peek(value).reads.isdisjoint(changed):
                self.bindings.materialize(value)
        for target, value, like in changes:
            self.bindings.line(self.bindings.assignment(target, self.bindings.given(value, like)))


def _together(on: _Function, group: Group, registers: Sequence[str]) -> None:
    """Loads or stores of floats that follow each other, by one instruction where there is
    one."""
    first = group[0]
    values = [op.value for op in group if isinstance(op, affine.StoreOp)]
    if values:
        names = [on.bindings.expression(value).text for value in values]
        on.flush(first.memref)
    else:
        names = [on.bindings.name(op.results[0], "t") for op in group]
        on.bindings.line(f"float {', '.join(names)};")
    place = f"&{on.element(first.memref, on.bindings.map(first.map.data, first.indices))}"
    macro = f"POETC_{'STORE' if values else 'LOAD'}_{len(group)}"
    on.bindings.line(f"{macro}({', '.join((*names, place, *registers))});")
    if not values:
        for op, name in zip(group, names, strict=True):
            on.bindings.bind(op.results[0], name, changing=False)


def _print_lanes(printer: _Function, op: affine.ForOp, parts: Parts, first: str) -> None:
    """Prints the body of a loop in lanes, of which the variable `first` is the first one."""
    printer.operations(parts.vectors)
    if not parts.singly:
        return
    used = {value for each in parts.singly for inner in each.walk() for value in inner.operands}
    for value in [value for value in printer.bindings.pending if value in used]:
        printer.bindings.materialize(value)
    variable = op.body.block.args[0]
    with printer.bindings.scope():
        name = printer.bindings.name(variable, "i")
        head = f"for (int32_t {name} = {first}; {name} < {first} + {lanes_of(op)}; ++{name}) {{"
        printer.bindings.line(head, depth=printer.bindings.depth - 1)
        printer.bindings.indices[variable] = Index.of(Variable(name, 0, extent(op) - 1))
        # The facts of the first one hold for each.
        printer.operations(each for each in parts.vectors if isinstance(each, affine.ApplyOp))
        # Of these, what is a vector in a loop inside is not known yet.
        numbers = used & printer.bindings.values.keys() & printer.lanes.vectors.keys()
        vectors = {value: printer.lanes.vectors.pop(value) for value in numbers}
        for value in numbers:
            text = f"{printer.bindings.text(value)}[{name} - {first}]"
            if value.type == IntegerType(1):
                text = f"({text} != 0)"
            printer.bindings.values[value] = Expression(text)
        printer.operations(parts.singly)
        printer.lanes.vectors.update(vectors)
    printer.bindings.line("}")


def _reusable(
    printer: _Function, op: Operation, result: SSAValue, init: SSAValue | None
) -> str | None:
    """The variable of the enclosing block that may be assigned to compute `result`.

    That is the one the result ends up in, if nothing else reads its old value from here on.
    A loop (with an `init`) may read the old value only as the initial value.
    """
    uses = list(result.uses)
    if len(uses) != 1 or uses[0].operation not in printer.targets:
        return None
    if uses[0].operation.parent is not op.parent:
        return None
    parent = op.parent_op()
    ends_in = parent.results[uses[0].index] if parent is not None else result
    if (ends_in in printer.lanes.vectors) != (result in printer.lanes.vectors):
        return None
    target: str = printer.targets[uses[0].operation][uses[0].index]
    held = printer.bindings.holds[target]
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


def _conditions(op: affine.IfOp, bindings: Bindings) -> tuple[list[str] | None, Facts]:
    """The comparisons that are not always true, None if one never is; what they establish."""
    constraints: list[tuple[Index, bool]] = []  # >= 0, or == 0 if true
    indices = [bindings.index(operand) for operand in op.args]
    for index, equal in constraints_of(op.condition.data, indices, bindings.facts):
        opposite = next((i for i, (c, _) in enumerate(constraints) if c + index == ZERO), -1)
        if opposite >= 0:
            constraints[opposite] = (index, True)
        else:
            constraints.append((index, equal))
    texts: list[str] = []
    facts = bindings.facts
    for index, equal in constraints:
        low, high = facts.low(index), facts.high(index)
        if high < 0 or (equal and low > 0):
            return None, facts
        if low < 0 or (equal and high > 0):
            texts.append(comparison(index, "==" if equal else ">=", facts))
        facts = facts.and_([index, -index] if equal else [index])
    return texts, facts


def _keeps(op: affine.IfOp, holds: Mapping[str, SSAValue | None], target: str | None) -> bool:
    """Whether a branch leaves the assigned variable as it is."""
    return target is not None and any(
        yielded(region.block)[0] is holds[target] for region in op.regions if region.blocks
    )


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
