"""Bounds of loops in which there is only a guard, by what the guard lets through.

    for (int32_t k = 0; k < 3; ++k) {          const int32_t k_first = i <= 1 ? 1 - i : 0;
        if (i + k >= 1) {                      for (int32_t k = k_first; k < 3; ++k) {
            acc += x[i + k - 1] * w[k];            acc += x[i + k - 1] * w[k];
        }                                      }
    }

Compilers leave what is chosen in the loops, so it stands in the outermost one where it is known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.dialects import affine, func
from xdsl.ir import Operation

from poetc.backends.c.bindings import Bindings
from poetc.backends.c.indexing import comparison, constraints_of, to_c, variables_of
from poetc.backends.c.text import c_identifier
from poetc.errors import InputError
from poetc.ir.index import Facts, Index, Variable
from poetc.kernels.guards import only_guard


@dataclass(frozen=True)
class Bounds:
    """Where a loop starts and stops, as C, if that is not where its own bounds are."""

    start: str | None = None
    stop: str | None = None
    conditions: tuple[tuple[int, Index], ...] = ()
    """`factor * counter + rest >= 0` in the loop."""

    def are_in(self, text: str) -> bool:
        """Whether a loop with these bounds is in the C."""
        names = [name for name in (self.start, self.stop) if name is not None]
        return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) for name in names)

    def head(
        self, op: affine.ForOp, name: str, bindings: Bindings, lanes: int = 1
    ) -> tuple[str, Facts]:
        """The first line of the loop, whose variable has that name then, and what holds in it; it
        does so many iterations at a time."""
        first, ends = _given(op, bindings)
        last = min(end.high for end in ends) - 1
        end, *others = ends
        stop = self.stop or to_c(end, bindings.facts)
        for other in others:
            stop = _chosen(end, other, other - end, f"{name}_end", bindings)
        counter = Index.of(Variable(name, first.low, last))
        bindings.indices[op.body.block.args[0]] = counter
        step = op.step.value.data * lanes
        advance = f"++{name}" if step == 1 else f"{name} += {step}"
        start = self.start or to_c(first, bindings.facts)
        inside = [counter * factor + rest for factor, rest in self.conditions]
        head = f"for (int32_t {name} = {start}; {name} < {stop}; {advance}) {{"
        return head, bindings.facts.and_(inside)


def _given(op: affine.ForOp, bindings: Bindings) -> tuple[Index, Sequence[Index]]:
    """Where a loop starts by itself, and where it stops: at the first of one place or two."""
    if len(op.lowerBoundMap.data.results) != 1 or len(op.upperBoundMap.data.results) > 2:
        raise InputError("affine.for with a maximum, or a minimum of many, is not supported")
    (first,) = bindings.map(op.lowerBoundMap.data, op.lowerBoundOperands)
    return first, bindings.map(op.upperBoundMap.data, op.upperBoundOperands)


def known_in(function: func.FuncOp) -> dict[affine.ForOp, list[affine.ForOp]]:
    """The loops the bounds of which are known in each loop, and in none around it."""
    found: dict[affine.ForOp, list[affine.ForOp]] = {}
    for op in function.walk():
        if not isinstance(op, affine.ForOp) or (guard := only_guard(op)) is None:
            continue
        used = {value.owner for value in guard.args} - {op.body.block}
        around: Operation | None = op.parent_op()
        while around is not None and not used.intersection(
            block for region in around.regions for block in region.blocks
        ):
            around = around.parent_op()
        if isinstance(around, affine.ForOp):
            found.setdefault(around, []).append(op)
    return found


def bounds_of(op: affine.ForOp, bindings: Bindings) -> Bounds:
    """The bounds of a loop, with variables for what has to be chosen."""
    guard = only_guard(op)
    variable = op.body.block.args[0]
    if guard is None or op.lowerBoundOperands or op.upperBoundOperands or op.step.value.data != 1:
        return Bounds()
    first, (end, *_) = _given(op, bindings)
    name = variable.name_hint or "i"
    counter = Variable("", first.const, end.const - 1)
    indices = [
        Index.of(counter) if value is variable else bindings.index(value) for value in guard.args
    ]
    start = stop = None
    conditions: list[tuple[int, Index]] = []
    for index, equal in constraints_of(guard.condition.data, indices, bindings.facts):
        factor = dict(index.terms).get(counter, 0)
        rest = index - Index.of(counter) * factor
        taken = start if factor > 0 else stop
        depends = counter.name in variables_of(rest) or bindings.changing(rest)
        if equal or not factor or depends or taken is not None:
            continue
        conditions.append((factor, rest))
        whole, _ = rest.divide(abs(factor), bindings.facts)
        if factor > 0:
            start = _chosen(-whole, first, -whole - first, f"{name}_first", bindings)
        else:
            behind = whole + 1
            stop = _chosen(behind, end, end - behind, f"{name}_end", bindings)
    return Bounds(start, stop, tuple(conditions))


@contextmanager
def declared(
    loops: Iterable[affine.ForOp], known: dict[affine.ForOp, Bounds], bindings: Bindings
) -> Iterator[None]:
    """Declares the bounds of `loops`, which are printed inside, and adds them to those `known`."""
    lines = bindings.lines
    places: list[tuple[Bounds, int, int]] = []
    for loop in loops:
        begin = len(lines)
        known[loop] = bounds_of(loop, bindings)
        places.append((known[loop], begin, len(lines)))
    yield
    for bounds, begin, end in reversed(places):
        # A loop behind a guard that never holds is not printed.
        if not bounds.are_in("\n".join(lines[end:])):
            del lines[begin:end]


def _chosen(bound: Index, given: Index, above: Index, name: str, bindings: Bindings) -> str:
    """`bound` where `above` is not negative, else `given`."""
    facts = bindings.facts
    if facts.low(above) >= 0:
        return to_c(bound, facts)
    if facts.high(above) <= 0:
        return to_c(given, facts)
    name = bindings.fresh(c_identifier(name))
    choice = f"{comparison(above, '>=', facts)} ? {to_c(bound, facts)} : {to_c(given, facts)}"
    bindings.line(f"const int32_t {name} = {choice};")
    return name
