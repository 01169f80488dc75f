"""How values of the program are named and kept while a function is printed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from xdsl.dialects import affine, func, memref
from xdsl.dialects.builtin import Float32Type, IndexType
from xdsl.ir import Block, SSAValue
from xdsl.ir.affine import AffineMap

from poetc.backends.c.expressions import (
    Expression,
    Level,
    index_level,
    integers_type,
    scalar_c_type,
    spread,
    vector_type,
)
from poetc.backends.c.indexing import mapped, to_c, variables_of
from poetc.backends.c.text import INDENT, KEYWORDS, broken, c_identifier
from poetc.errors import InputError
from poetc.ir.index import NO_FACTS, Facts, Index, Variable

# Longer expressions are split by naming their parts.
LONG = 72

# Prints a value on a line of its own, so that the length of its expression is no matter.
_STATEMENTS = (affine.YieldOp, affine.StoreOp, memref.StoreOp, func.ReturnOp)


class Bindings:
    """The values of a function as C, at the place that has been reached, and the lines so far.

    A value used once is pending until it is printed where it is used; others are variables.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """`names` are taken: no variable gets one of them."""
        self.names: set[str] = {*KEYWORDS, *names}
        self.values: dict[SSAValue, Expression] = {}
        self.indices: dict[SSAValue, Index] = {}
        # Values to be printed where they are used, in order of their definition.
        self.pending: dict[SSAValue, None] = {}
        # The value of the program that an assigned variable has now; None: nothing of use yet.
        self.holds: dict[str, SSAValue | None] = {}
        self.facts = NO_FACTS
        # Values that are vectors, and of how many numbers.
        self.vectors: dict[SSAValue, int] = {}
        self.lines: list[str] = []
        self.depth = 1

    def name(self, value: SSAValue, default: str) -> str:
        """A new C name for a value, after its name in the IR."""
        return self.fresh(c_identifier(value.name_hint or default))

    def fresh(self, base: str) -> str:
        """A new C name like this one."""
        name = base
        number = 1
        while name in self.names:
            number += 1
            name = f"{base}{number}" if not base[-1].isdigit() else f"{base}_{number}"
        self.names.add(name)
        return name

    def line(self, text: str, depth: int | None = None) -> None:
        self.lines += broken(text, INDENT * (self.depth if depth is None else depth))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope of C: names given inside are unknown afterwards, and free again."""
        names, values, indices = set(self.names), dict(self.values), dict(self.indices)
        self.depth += 1
        yield
        self.depth -= 1
        self.names, self.values, self.indices = names, values, indices
        self.holds = {name: value for name, value in self.holds.items() if name in names}

    @contextmanager
    def known(self, facts: Facts) -> Iterator[None]:
        """Inside, these facts hold."""
        outer, self.facts = self.facts, facts
        yield
        self.facts = outer

    @contextmanager
    def aside(self) -> Iterator[list[str]]:
        """A trial: lines and values from inside are not kept. Gives the lines that are printed."""
        names, lines, pending = self.names, self.lines, self.pending
        values, indices, holds = self.values, self.indices, self.holds
        self.names, self.lines, self.pending = set(names), [], {}
        self.values, self.indices, self.holds = dict(values), dict(indices), dict(holds)
        yield self.lines
        self.names, self.lines, self.pending = names, lines, pending
        self.values, self.indices, self.holds = values, indices, holds

    def expression(self, value: SSAValue) -> Expression:
        """The expression of an operand, which is no longer pending then."""
        self.pending.pop(value, None)
        return self.peek(value)

    def c_type(self, value: SSAValue) -> str:
        """The type of a variable for a value."""
        lanes = self.vectors.get(value)
        if lanes is None:
            return scalar_c_type(value.type)
        return (vector_type if isinstance(value.type, Float32Type) else integers_type)(lanes)

    def given(self, value: SSAValue, like: SSAValue) -> Expression:
        """The expression of an operand that is handed on to a value, which may be a vector where
        the operand is one number for all of it."""
        expression = self.expression(value)
        lanes = self.vectors.get(like)
        if lanes is None or value in self.vectors:
            return expression
        return spread(expression, value.type, lanes)

    def assignment(self, target: str, expression: Expression) -> str:
        left, operator, right = expression.operation or ("", "", "")
        if left == target:
            return f"{target} {operator}= {right};"
        return f"{target} = {expression.text};"

    def peek(self, value: SSAValue) -> Expression:
        """The expression of a value that stays pending."""
        if value in self.values:
            return self.values[value]
        index = self.indices[value]
        return Expression(to_c(index, self.facts), index_level(index), self.changing(index))

    def text(self, value: SSAValue) -> str:
        return self.peek(value).text

    def atom(self, value: SSAValue) -> str:
        """The text of an operand that is printed several times: a name or a literal."""
        if value in self.pending:
            self.materialize(value)
        expression = self.expression(value)
        return expression.at(Level.UNARY)

    def changing(self, *indices: Index) -> frozenset[str]:
        """The assigned variables in index expressions."""
        names = frozenset().union(*map(variables_of, indices))
        return names & self.holds.keys()

    def bind(self, value: SSAValue, name: str, *, changing: bool) -> None:
        """Binds a value to an assigned variable, which may still change or not."""
        if isinstance(value.type, IndexType):
            self.values.pop(value, None)
            self.indices[value] = Index.of(Variable(name))
        else:
            self.values[value] = Expression(name, reads=frozenset({name} if changing else ()))

    def define(self, value: SSAValue, expression: Expression) -> None:
        """Binds a value to an expression: printed at its only use, or as a variable now."""
        uses = list(value.uses)
        self.values[value] = expression
        self.pending[value] = None
        block = value.owner if isinstance(value.owner, Block) else value.owner.parent
        here = len(uses) == 1 and uses[0].operation.parent is block
        if not uses:
            del self.pending[value]
        elif not here or (
            len(expression.text) > LONG and not isinstance(uses[0].operation, _STATEMENTS)
        ):
            self.materialize(value)

    def materialize(self, value: SSAValue) -> None:
        """Prints a pending value as a variable."""
        expression = self.expression(value)
        name = self.name(value, "t")
        self.line(f"const {self.c_type(value)} {name} = {expression.text};")
        self.bind(value, name, changing=False)

    def flush(self, changed: Collection[str]) -> None:
        """Prints the pending values that read what is about to change."""
        for value in list(self.pending):
            if not self.values[value].reads.isdisjoint(changed):
                self.materialize(value)

    def define_index(self, value: SSAValue, index: Index) -> None:
        """Binds a value to an index expression; as a variable if something in it may change."""
        self.indices[value] = index
        if self.changing(index):
            self.materialize(value)

    def index(self, value: SSAValue) -> Index:
        """The index arithmetic form of a value of index type."""
        if value not in self.indices:
            raise InputError(f"index {value} does not come from a loop, a constant or a cast")
        return self.indices[value]

    def map(self, map_: AffineMap, operands: Sequence[SSAValue]) -> list[Index]:
        return mapped(map_, [self.index(operand) for operand in operands], self.facts)
