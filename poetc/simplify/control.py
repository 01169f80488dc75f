"""Loops and branches -> the operations that they run, one after the other.

What depends on constants alone is evaluated on the way, by the meaning that each operation has. So
the number of steps of a loop is known where constants decide it, whatever the counting looks like,
and so are the places that a step reads and writes. Of a branch on a value that is not known, all
regions are run, and a select takes the results of the right one: what is in the others, NaN too,
has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from poetc.errors import InputError
from poetc.interpreter.functions import evaluate
from poetc.ir import stablehlo as hlo
from poetc.ir.locations import source_location
from poetc.ir.stablehlo.base import Array
from poetc.ir.types import is_float
from poetc.simplify.facts import MAX_FOLDED_ELEMENTS
from poetc.simplify.folds import FoldLike, expand_folds

MAX_OPERATIONS = 20_000
"""Operations that all loops and branches of a function may come to, and steps of a loop."""


def expand_control(block: Block) -> None:
    """Put the operations that loops and branches run in place of them.

    Raises InputError for a loop whose steps cannot be counted, and for too many operations.
    """
    if any(isinstance(op, hlo.ControlOp) for op in block.ops):
        _Expander(block).run()


class _TooManyError(Exception):
    """There are more than `MAX_OPERATIONS`."""


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
        self.here: Operation | None = None
        """Before which operation of the block the next one goes."""

    def run(self) -> None:
        for op in list(self.block.ops):
            self.here = op
            if isinstance(op, hlo.ControlOp):
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
                found = self._evaluated(op, [self.known.get(v) for v in op.operands])
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
            if isinstance(op, hlo.ControlOp):
                self.values.update(zip(op.results, self._expand(op), strict=True))
            else:
                self._copy(op)
        return self._now(end.operands)

    def _now(self, values: Sequence[SSAValue]) -> list[SSAValue]:
        return [self.values.get(value, value) for value in values]

    def _copy(self, op: Operation) -> None:
        """Run an operation: as a constant where its operands are known."""
        if isinstance(op, hlo.StablehloOp):
            found = self._evaluated(op, [self.known.get(v) for v in self._now(op.operands)])
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
        values, steps = self._now(op.operands), 0
        before = self.operations
        while True:
            done = self.operations
            state = [self.known.get(value) for value in values]
            try:
                (goes_on,) = self._inline(op.cond.block, values)
                decided = self.known.get(goes_on)
                if decided is None:
                    raise InputError(
                        f"{op.name}: whether step {steps + 1} is done depends on data, so that the "
                        "steps cannot be counted; use jax.lax.fori_loop or jax.lax.scan with a "
                        "number of steps that is a constant of Python",
                        source_location(op),
                    )
                if not decided:
                    return values
                values = self._inline(op.body.block, values)
            except _TooManyError:
                self._check_size(op, steps, done - before, state)
                raise
            steps += 1
            if steps > MAX_OPERATIONS:
                raise _TooManyError

    def _check_size(
        self, op: hlo.WhileOp, steps: int, operations: int, state: Sequence[Array | None]
    ) -> None:
        """Raise an InputError with the size of a loop, if that alone is too large: its first
        `steps` have come to `operations`, and `state` is known then."""
        if steps == 0:
            return
        all_steps = self._count_steps(op, steps, state)
        total = all_steps * operations // steps
        if total <= MAX_OPERATIONS:
            return
        least = "at least " if all_steps > MAX_OPERATIONS else ""
        raise InputError(
            f"{op.name}: {least}{all_steps} steps of {operations // steps} operations come to "
            f"{total} when unrolled, more than {MAX_OPERATIONS}; {_FEWER}",
            source_location(op),
        )

    def _count_steps(self, op: hlo.WhileOp, steps: int, state: Sequence[Array | None]) -> int:
        """The steps of a loop that goes on after some; no more than one too many."""
        while steps <= MAX_OPERATIONS:
            (goes_on,) = self._run_known(op.cond.block, state)
            if goes_on is None or not goes_on:
                break
            state = self._run_known(op.body.block, state)
            steps += 1
        return steps

    def _run_known(self, block: Block, arguments: Sequence[Array | None]) -> list[Array | None]:
        """What is known of the results of a block, which is not run."""
        found: dict[SSAValue, Array | None] = dict(zip(block.args, arguments, strict=True))

        def known(value: SSAValue) -> Array | None:
            if value in found:
                return found[value]
            return self.known.get(self.values.get(value, value))

        end = block.last_op
        assert end is not None
        for op in block.ops:
            if isinstance(op, hlo.StablehloOp):
                found[op.result] = self._evaluated(op, [known(v) for v in op.operands])
            else:
                found.update(dict.fromkeys(op.results))
        return [known(value) for value in end.operands]

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

    def _evaluated(self, op: hlo.StablehloOp, operands: Sequence[Array | None]) -> Array | None:
        """The result of an operation whose operands are known, if it is small. What a NaN is
        differs between processors, and CHLO is rounded otherwise once it is expanded."""
        if hlo.element_count(op.result) > MAX_FOLDED_ELEMENTS or op.name.startswith("chlo."):
            return None
        arrays = [array for array in operands if array is not None]
        if len(arrays) != len(operands):
            return None
        result = evaluate(op, arrays)
        is_nan = is_float(result.dtype) and bool(np.isnan(result).any())
        return None if is_nan else result

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
