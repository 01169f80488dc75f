"""A loop whose steps are counted -> one `resume.repeat`.

What of its state is known in each step needs no memory: a counter, and each place that a step reads
or writes, becomes a linear function of the number of the step where it is one. A tensor of which
each step only writes a window at such a place (the outputs that a scan stacks) is filled where it
is, and not carried. What the results that are read do not depend on is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType, UnknownLoc, i32
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from poetc.ir import stablehlo as hlo
from poetc.ir.dataflow import reached
from poetc.ir.dense import dtype_of
from poetc.ir.stablehlo.base import Array
from poetc.simplify.driver import remove_dead
from poetc.simplify.history import History, Window

Outside = Callable[[SSAValue], tuple[SSAValue, Array | None]]
"""The value in place of one from outside of the loop, and its elements where they are known."""


def prune_captured(op: hlo.RepeatOp) -> hlo.RepeatOp:
    """The loop without operands that its body, once it is simplified, does not read."""
    block, carries, filled = op.body.block, op.carries, len(op.results)
    unread = [n for n in range(len(op.captured)) if not block.args[1 + carries + n].first_use]
    if not unread:
        return op
    for n in reversed(unread):
        block.erase_arg(block.args[1 + carries + n])
    new = hlo.RepeatOp(
        op.trips,
        op.operands[:carries],
        op.operands[carries:filled],
        [value for n, value in enumerate(op.captured) if n not in unread],
        op.stacks,
        op.detach_region(0),
    )
    new.location = op.location
    parent = op.parent
    assert parent is not None
    parent.insert_op_before(new, op)
    for old, result in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(result)
    parent.erase_op(op)
    return new


@dataclass(frozen=True)
class Kept:
    """A loop that is kept, in no block yet."""

    op: hlo.RepeatOp
    positions: dict[int, int]
    """Of results of the `while`, the number that they have among those of `op`."""


def kept_loop(
    op: hlo.WhileOp, inits: Sequence[SSAValue], history: History, outside: Outside
) -> Kept:
    """The loop as an operation of its own. `inits` are the values that it begins with."""
    return _Keeper(op, inits, history, outside).keep()


class _Keeper:
    def __init__(
        self, op: hlo.WhileOp, inits: Sequence[SSAValue], history: History, outside: Outside
    ) -> None:
        self.op, self.inits, self.history, self.outside = op, inits, history, outside
        self.old = op.body.block
        last = self.old.last_op
        assert last is not None
        self.returned = last.operands
        self.block = Block(arg_types=[TensorType(i32, ())])
        self.values: dict[SSAValue, SSAValue] = {}
        """The values of the new body in place of those of the old one."""
        self.captured: dict[SSAValue, SSAValue] = {}
        """The same for values from outside that are arguments of the new one."""
        self.sunk: dict[SSAValue, SSAValue] = {}
        self.places: dict[tuple[int, int, TensorType], SSAValue] = {}

    def keep(self) -> Kept:
        carried = [k for k in self._live() if not self._is_known(k)]
        for k in carried:
            argument = self.block.insert_arg(self.old.args[k].type, len(self.block.args))
            argument.name_hint = self.old.args[k].name_hint
            self.values[self.old.args[k]] = argument
        inner = {value for op in self.old.walk() for value in op.results}
        inner |= {a for op in self.old.walk() for r in op.regions for a in r.block.args}
        needed = {value.owner for k in carried for value in self._reads(self.returned[k])}
        for op in self.old.ops:
            if op not in needed:
                continue
            for each in op.walk():
                for value in each.operands:
                    if value not in inner:
                        self._value(value)
            copy = op.clone(self.values)
            self._emit(copy)
            self.values.update(zip(op.results, copy.results, strict=True))
            if isinstance(op, Window):
                self._place_window(op, copy)
        end = hlo.ReturnOp(*(self._value(self.returned[k]) for k in carried))
        self._emit(end)
        return self._build(carried, end)

    def _build(self, carried: Sequence[int], end: hlo.ReturnOp) -> Kept:
        arguments = self.block.args[1 : 1 + len(carried)]
        stacks = [self._stack(a, v) for a, v in zip(arguments, end.operands, strict=True)]
        rest = [n for n, stack in enumerate(stacks) if stack is None]
        filled = [n for n, stack in enumerate(stacks) if stack is not None]
        windows: list[SSAValue] = []
        for n in filled:
            update = end.operands[n].owner
            assert isinstance(update, hlo.DynamicUpdateSliceOp)
            windows.append(update.update)
        final = hlo.ReturnOp(*(end.operands[n] for n in rest), *windows)
        final.location = end.location
        self.block.erase_op(end)
        self.block.add_op(final)
        remove_dead(self.block)
        for n in reversed(filled):
            self.block.erase_arg(arguments[n])
        kept = hlo.RepeatOp(
            self.history.trips,
            [self.inits[carried[n]] for n in rest],
            [self.inits[carried[n]] for n in filled],
            list(self.captured),
            [stack for stack in stacks if stack is not None],
            Region(self.block),
        )
        kept.location = self.op.location
        return Kept(kept, {carried[n]: at for at, n in enumerate([*rest, *filled])})

    # Carried values

    def _live(self) -> list[int]:
        """The values of the state that the results which are read depend on."""
        live: set[int] = set()
        pending = [k for k, result in enumerate(self.op.results) if result.first_use]
        while pending:
            k = pending.pop()
            if k not in live:
                live.add(k)
                read = self._reads(self.returned[k])
                pending += [a.index for a in read if a in self.old.args]  # pyright: ignore
        return sorted(live)

    def _reads(self, value: SSAValue) -> set[SSAValue]:
        """The values that one depends on, and it itself."""

        def operands(value: SSAValue) -> list[SSAValue]:
            if not (isinstance(value.owner, Operation) and value.owner.parent is self.old):
                return []
            return [v for op in value.owner.walk() for v in op.operands]

        return reached([value], operands)

    def _is_known(self, k: int) -> bool:
        """Whether a value of the state needs no memory: it is known in each step, or stays."""
        argument, history = self.old.args[k], self.history
        if self.returned[k] is argument:
            return True
        if history.last[k] is None and self.op.results[k].first_use:
            # Known in all steps, but not after the last.
            return False
        return history.array(argument) is not None or history.place(argument) is not None

    def _value(self, value: SSAValue) -> SSAValue:
        """The value of the new body in place of one that the old body uses."""
        if value not in self.values:
            self.values[value] = self._new_value(value)
        return self.values[value]

    def _new_value(self, value: SSAValue) -> SSAValue:
        if not (isinstance(value, BlockArgument) and value.block is self.old):
            return self._from_outside(*self.outside(value))
        if (array := self.history.array(value)) is not None:
            return self._emit(hlo.ConstantOp(array)).results[0]
        if (place := self.history.place(value)) is not None:
            return self._place(*place, value)
        assert self.returned[value.index] is value
        return self._from_outside(*self.outside(self.inits[value.index]))

    def _from_outside(self, value: SSAValue, known: Array | None) -> SSAValue:
        """A value from outside: computed in the body where that costs nothing, else an argument."""
        if known is not None:
            return self._emit(hlo.ConstantOp(known)).results[0]
        if value in self.sunk:
            return self.sunk[value]
        op = value.owner
        if isinstance(op, hlo.ConstantOp | hlo.IotaOp) or (
            isinstance(op, hlo.MovementOp) and op.ONE_SOURCE
        ):
            inputs = {v: self._from_outside(*self.outside(v)) for v in op.operands}
            self.sunk[value] = self._emit(op.clone(inputs)).results[0]
            return self.sunk[value]
        if value not in self.captured:
            self.captured[value] = self.block.insert_arg(value.type, len(self.block.args))
            self.captured[value].name_hint = value.name_hint
        return self.captured[value]

    # Places

    def _place_window(self, op: Window, copy: Operation) -> None:
        """Windows begin at linear functions of the number of the step where they can."""
        first = len(op.operands) - len(op.start_indices)
        for n, (start, limit) in enumerate(zip(op.start_indices, op.limits, strict=True)):
            place = self.history.place(start, limit)
            if place is not None:
                new = self._place(*place, start, before=copy)
                copy.operands[first + n] = new

    def _place(
        self, first: int, step: int, like: SSAValue, before: Operation | None = None
    ) -> SSAValue:
        type = like.type
        assert isinstance(type, TensorType)
        key = (first, step, type)
        if key not in self.places:
            if step:
                op = hlo.PositionOp(self.block.args[0], self.history.trips, first, step, type)
            else:
                op = hlo.ConstantOp(dtype_of(type.element_type).type(first))
            op.location = self.op.location
            if before is None:
                self.block.add_op(op)
            else:
                self.block.insert_op_before(op, before)
            self.places[key] = op.results[0]
        return self.places[key]

    def _stack(self, argument: SSAValue, value: SSAValue) -> hlo.Stack | None:
        """Where each step writes into a carried tensor that nothing else in the body uses."""
        op = value.owner
        if not (
            isinstance(op, hlo.DynamicUpdateSliceOp)
            and op.operand is argument
            and argument.has_one_use()
            and value.has_one_use()
            and 0 not in op.sizes
        ):
            return None
        partial = [d for d, limit in enumerate(op.limits) if limit]
        if len(partial) != 1:
            return None
        start = op.start_indices[partial[0]].owner
        if isinstance(start, hlo.PositionOp):
            return hlo.Stack(partial[0], start.first, start.step)
        return None

    def _emit(self, op: Operation) -> Operation:
        if isinstance(op.location, UnknownLoc):
            op.location = self.op.location
        self.block.add_op(op)
        return op
