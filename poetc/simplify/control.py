"""Loops and branches -> the operations that they run, one after the other; long loops are kept.

What depends on constants alone is evaluated on the way, by the meaning that each operation has. So
the number of steps of a loop is known where constants decide it, whatever the counting looks like,
and so are the places that a step reads and writes. Of a branch on a value that is not known, all
regions are run, and a select takes the results of the right one: what is in the others, NaN too,
has no effect. A loop that comes to many operations becomes one `resume.repeat` (keep.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from poetc.errors import InputError
from poetc.ir import stablehlo as hlo
from poetc.ir.locations import source_location
from poetc.ir.stablehlo.base import Array
from poetc.simplify.folds import FoldLike, expand_folds
from poetc.simplify.history import History, evaluated, history_of
from poetc.simplify.keep import kept_loop

MAX_UNROLLED = 600
"""Operations that a loop may come to when it is unrolled. One that comes to more is kept as a loop.

Unrolled, its steps are scheduled one by one: what one needs of another can be evicted or computed
again, and it takes no RAM twice. But the time to compile grows faster than the operations do: a
few seconds for this many. A call of threefry comes to 125.
"""

MAX_OPERATIONS = 20_000
"""Operations that all loops and branches of a function may come to."""

MAX_STEPS = 100_000
"""Steps of a loop: they are counted one by one."""


def expand_control(block: Block) -> None:
    """Put the operations that loops and branches run in place of them.

    A loop that comes to more than `MAX_UNROLLED` becomes a `RepeatOp`, if its body can be expanded
    by itself. Raises InputError for a loop whose steps cannot be counted, and for too many
    operations.
    """
    if any(map(_is_control, block.ops)):
        _Expander(block).run()


def _is_control(op: Operation) -> TypeGuard[hlo.ControlOp]:
    return isinstance(op, hlo.ControlOp) and not isinstance(op, hlo.RepeatOp)


class _TooManyError(Exception):
    """There are more than `MAX_OPERATIONS`."""


class _UncountedError(InputError):
    """The number of steps of a loop is not known."""


@dataclass(frozen=True)
class _Constant:
    """Equal for constants of the same type and bits."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class _Expander:
    """Expands what is in one block. Values of the regions have what is now in their place in
    `values`: of what is run several times, what it was the last time."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.values: dict[SSAValue, SSAValue] = {}
        self.known: dict[SSAValue, Array] = {}
        self.constants: dict[_Constant, SSAValue] = {}
        self.operations = 0
        self.refused: str | None = None
        """Why a loop that comes to many operations is unrolled all the same."""
        self.here: Operation | None = None
        """Before which operation of the block the next one goes."""

    def run(self) -> None:
        for op in list(self.block.ops):
            self.here = op
            if _is_control(op):
                before = self.operations
                try:
                    results = self._expand(op)
                except _TooManyError:
                    raise InputError(
                        f"{op.name}: loops and branches up to here come to more than "
                        f"{MAX_OPERATIONS} operations when unrolled; {_FEWER}",
                        source_location(op),
                    ) from None
                if isinstance(op, hlo.RngBitGeneratorOp):
                    # Outside of loops there are as many as were written.
                    self.operations = before
                for old, new in zip(op.results, results, strict=True):
                    old.replace_all_uses_with(new)
                self.block.erase_op(op)
            elif isinstance(op, hlo.StablehloOp):
                found = evaluated(op, [self.known.get(v) for v in op.operands])
                if found is not None:
                    self.known[op.result] = found

    # Regions

    def _expand(self, op: hlo.ControlOp) -> list[SSAValue]:
        if isinstance(op, hlo.WhileOp):
            return self._loop(op)
        if isinstance(op, hlo.MapOp):
            return self._map(op)
        if isinstance(op, FoldLike):
            return expand_folds(op, self._now(op.operands), lambda new: self._new(new, op))
        if isinstance(op, hlo.RngBitGeneratorOp):
            (state,) = self._now(op.operands)
            return op.expanded(state, lambda new: self._new(new, op))
        assert isinstance(op, hlo.BranchOp)
        return self._branch(op)

    def _inline(self, block: Block, arguments: Sequence[SSAValue]) -> list[SSAValue]:
        """Run a block; what its terminator returns."""
        self.values.update(zip(block.args, arguments, strict=True))
        end = block.last_op
        assert end is not None
        for op in block.ops:
            if op is end:
                break
            if _is_control(op):
                self.values.update(zip(op.results, self._expand(op), strict=True))
            else:
                self._copy(op)
        return self._now(end.operands)

    def _now(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        return [self.values.get(value, value) for value in values]

    def _copy(self, op: Operation) -> None:
        """Run an operation: as a constant where its operands are known."""
        if isinstance(op, hlo.StablehloOp):
            found = evaluated(op, [self.known.get(v) for v in self._now(op.operands)])
            if found is not None:
                self.values[op.result] = self._constant(found, op)
                return
        self._emit(op.clone(self.values))

    def _emit(self, op: Operation) -> None:
        assert self.here is not None
        self.block.insert_op_before(op, self.here)
        self.operations += 1
        if self.operations > MAX_OPERATIONS:
            raise _TooManyError

    # Loops

    def _loop(self, op: hlo.WhileOp) -> list[SSAValue]:
        inits = values = self._now(op.operands)
        steps, before, refused = 0, self.operations, False
        first = [self.known.get(value) for value in inits]
        assert self.here is not None
        start = self.here.prev_op
        while True:
            done = self.operations
            state = [self.known.get(value) for value in values]
            try:
                (goes_on,) = self._inline(op.cond.block, values)
                decided = self.known.get(goes_on)
                if decided is None:
                    raise _UncountedError(_uncounted(op, steps), source_location(op))
                if not decided:
                    return values
                values = self._inline(op.body.block, values)
            except _TooManyError:
                self._check_size(op, steps, done - before, state)
                raise
            steps += 1
            # By what the first step comes to, or where that was less than others.
            operations = self.operations - before
            if not refused and (steps == 1 or operations > MAX_UNROLLED):
                total = self._total(op, first, -(-operations // steps), steps)
                if total > MAX_UNROLLED:
                    kept = self._keep(op, inits, first, (start, before))
                    if kept is not None:
                        return kept
                    refused = True
            if steps > MAX_STEPS:
                raise InputError(_endless(op), source_location(op))

    def _total(
        self, op: hlo.WhileOp, state: Sequence[Array | None], operations: int, steps: int
    ) -> int:
        """The operations of an unrolled loop with so many in each step, counted up to one step more
        than `MAX_UNROLLED` allows. One step alone is no loop."""
        if not operations:
            return 0
        history = self._history(op, state, max(steps, MAX_UNROLLED // operations))
        return 0 if history is None or history.trips == 1 else history.trips * operations

    def _keep(
        self,
        op: hlo.WhileOp,
        inits: Sequence[SSAValue],
        state: Sequence[Array | None],
        start: tuple[Operation | None, int],
    ) -> list[SSAValue] | None:
        """The results of a loop if it is kept, else None. The operations that its first steps have
        become, behind `start`, are then removed."""
        history = self._history(op, state, MAX_STEPS)
        if history is None:
            return None
        if history.trips > MAX_STEPS:
            raise InputError(_endless(op), source_location(op))
        found = kept_loop(op, inits, history, self._outside)
        try:
            expand_control(found.op.body.block)
        except InputError as error:
            # Unrolled, it may do: a loop inside may have steps that depend on those of this one.
            inside = isinstance(error, _UncountedError)
            self.refused = _DEPENDENT if inside else error.message
            found.op.erase()
            return None
        assert self.here is not None
        while (last := self.here.prev_op) is not start[0] and last is not None:
            self.block.erase_op(last)
        self.operations = start[1]
        self._emit(found.op)
        self.operations += len(found.op.body.block.ops)
        results = list(inits)
        for k, last in enumerate(history.last):
            if k in found.positions:
                results[k] = found.op.results[found.positions[k]]
            elif last is not None and op.results[k].first_use:
                results[k] = self._constant(last, op)
        return results

    def _outside(self, value: SSAValue) -> tuple[SSAValue, Array | None]:
        """The value that is now in place of one from outside of a loop, and its elements if
        known."""
        (now,) = self._now([value])
        return now, self.known.get(now)

    def _check_size(
        self, op: hlo.WhileOp, steps: int, operations: int, state: Sequence[Array | None]
    ) -> None:
        """Raise an InputError with the size of a loop, if that alone is too large: its first
        `steps` have come to `operations`, and `state` is known then."""
        if steps == 0:
            return
        history = self._history(op, state, MAX_STEPS - steps)
        all_steps = steps + (history.trips if history is not None else 0)
        total = all_steps * operations // steps
        if total <= MAX_OPERATIONS:
            return
        why = f" (it is not kept as a loop: {self.refused})" if self.refused else ""
        raise InputError(
            f"{op.name}: {all_steps} steps of {operations // steps} operations come to "
            f"{total} when unrolled, more than {MAX_OPERATIONS}{why}; {_FEWER}",
            source_location(op),
        )

    def _history(
        self, op: hlo.WhileOp, state: Sequence[Array | None], limit: int
    ) -> History | None:
        return history_of(op, state, limit, lambda value: self._outside(value)[1])

    # Branches

    def _branch(self, op: hlo.BranchOp) -> list[SSAValue]:
        (index,) = self._now(op.operands)
        number = self.known.get(index)
        if number is not None:
            return self._inline(op.branches[op.chosen(number)].block, ())
        *others, last = [self._inline(branch.block, ()) for branch in op.branches]
        results = last
        for number, values in reversed(list(enumerate(others))):
            chosen = self._is_chosen(op, index, number)
            pairs = zip(values, results, strict=True)
            results = [a if a is b else self._select(op, chosen, a, b) for a, b in pairs]
        return results

    def _map(self, op: hlo.MapOp) -> list[SSAValue]:
        """The operations of the body, on whole tensors."""
        block, shape = op.computation.block, hlo.shape_of(op.results[0])
        self.values.update(zip(block.args, self._now(op.operands), strict=True))

        def whole(value: SSAValue) -> SSAValue:
            (now,) = self._now([value])
            if hlo.shape_of(now) == shape:
                return now
            return self._new(hlo.BroadcastInDimOp(now, (), shape), op)

        end = block.last_op
        assert end is not None
        for inner in block.ops:
            if isinstance(inner, hlo.ConstantOp):
                self._copy(inner)
            elif isinstance(inner, hlo.ElementwiseOp) and not hlo.is_expanded(inner):
                type = hlo.TensorType(hlo.element_type_of(inner.result), shape)
                copy = inner.create(
                    operands=[whole(value) for value in inner.operands],
                    result_types=[type],
                    properties=inner.properties,
                )
                self.values[inner.result] = self._new(copy, inner)
            elif inner is not end:
                raise InputError(
                    f"{op.name}: {inner.name} in its body is not supported, only element-wise "
                    "operations and constants are",
                    source_location(inner),
                )
        return [whole(value) for value in end.operands]

    def _is_chosen(self, op: hlo.BranchOp, index: SSAValue, number: int) -> SSAValue:
        if isinstance(op, hlo.IfOp):
            return index
        wanted = self._constant(np.array(number, np.int32), op)
        return self._new(hlo.CompareOp(index, wanted, "EQ"), op)

    def _select(
        self, op: hlo.BranchOp, chosen: SSAValue, value: SSAValue, other: SSAValue
    ) -> SSAValue:
        return self._new(hlo.SelectOp(chosen, value, other), op)

    def _new(self, op: hlo.StablehloOp, origin: Operation) -> SSAValue:
        op.location = origin.location
        self._emit(op)
        return op.result

    # Constants

    def _constant(self, array: Array, origin: Operation) -> SSAValue:
        """A constant at the begin of the block, one for each value."""
        key = _Constant(array.dtype.str, array.shape, array.tobytes())
        if key not in self.constants:
            op = hlo.ConstantOp(array)
            op.location = origin.location
            first = self.block.first_op
            assert first is not None
            self.block.insert_op_before(op, first)
            self.constants[key] = op.result
            self.known[op.result] = array
        return self.constants[key]


_FEWER = (
    "make the loop shorter, or do one of its steps, or some, in a step of their own that the "
    "program calls again"
)

_DEPENDENT = "how many steps a loop inside has depends on the step"


def _uncounted(op: hlo.WhileOp, steps: int) -> str:
    return (
        f"{op.name}: whether step {steps + 1} is done depends on data, so that the steps cannot be "
        "counted; use jax.lax.fori_loop or jax.lax.scan with a number of steps that is a constant "
        "of Python"
    )


def _endless(op: hlo.WhileOp) -> str:
    return f"{op.name}: it has more than {MAX_STEPS} steps; {_FEWER}"
