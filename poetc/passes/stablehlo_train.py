"""`stablehlo-train`: only some parameters are trained, or some channels of one.

The new value of every other parameter becomes its old one. Gradients that nothing needs any more
are gone then, with the activations that were kept for them, and the parameter is frozen
(`stablehlo-to-poet`). State of the optimiser that was for such parameters only stays as it is, too.
State that no new parameter depends on, such as the running statistics of batch norm, goes on.

Parameters are what results other than new values depend on: the weights that the loss reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from poetc.errors import InputError, collected
from poetc.ir import stablehlo as hlo
from poetc.ir.aliasing import read_for_results, updates_of
from poetc.ir.dataflow import computed_from
from poetc.ir.locations import source_location
from poetc.passes.stablehlo_to_poet import argument_names
from poetc.patterns import chosen
from poetc.simplify.driver import remove_dead


def main_of(module: ModuleOp) -> FuncOp:
    """`@main` of a simplified module. Raises InputError where there is none of one block."""
    mains = [op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "main"]
    if len(mains) != 1 or len(mains[0].body.blocks) != 1:
        raise InputError(
            "there must be one function @main, of one block: stablehlo-simplify makes it"
        )
    return mains[0]


@dataclass(frozen=True)
class StableHLOTrainPass(ModulePass):
    """Trains only parameters whose names match `only`: patterns such as `*.bias,head.*`, separated
    by commas. `NAME@AXIS:START:STOP` trains the indices from START up to STOP along an axis.

    The module must have been through `stablehlo-simplify`, and should go through it again.
    """

    name = "stablehlo-train"

    only: str

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        _Trainer(main_of(op)).train([_parse(word) for word in self.only.split(",")])


@dataclass(frozen=True)
class Trained:
    """Parameters whose names match a `pattern`; `part` is an axis, and where indices begin and end
    that are trained along it."""

    pattern: str
    part: tuple[int, int, int] | None = None


def _parse(word: str) -> Trained:
    found = re.fullmatch(r"(.+?)@(\d{1,9}):(\d{1,9}):(\d{1,9})", word, re.ASCII)
    if found is None:
        return Trained(word)
    axis, start, stop = map(int, found.groups()[1:])
    if start >= stop:
        raise InputError(f"--train={word}: nothing from {start} to {stop}")
    return Trained(found[1], (axis, start, stop))


class _Trainer:
    """Changes what `main` returns."""

    def __init__(self, main: FuncOp) -> None:
        self.main, self.arguments = main, main.body.block.args
        self.updates = updates_of(main)
        last = main.body.block.last_op
        assert isinstance(last, ReturnOp)
        self.last: ReturnOp = last
        self.returned = list(last.operands)
        read = read_for_results(main)
        self.parameters = [i for i in self.updates if i in read]

    def train(self, wanted: Sequence[Trained]) -> None:
        """Keeps old values where new ones are not wanted."""
        trained = self._trained(wanted)
        serves = self._serves()
        for i, k in self.updates.items():
            for_what = {i} if i in self.parameters else serves[i]
            if for_what and for_what.isdisjoint(trained):
                self.returned[k] = self.arguments[i]
        for i, part in trained.items():
            if part is not None:
                alike = [s for s, served in serves.items() if served == {i}]
                for member in (i, *alike):
                    if self.arguments[member].type == self.arguments[i].type:
                        self._train_part(member, part)
        self.last.operands = self.returned
        remove_dead(self.main.body.block)

    def _trained(self, wanted: Sequence[Trained]) -> dict[int, tuple[int, int, int] | None]:
        """The parameters that are trained. Raises InputError that lists all that is wrong."""
        names = [name or f"arg{i}" for i, name in enumerate(argument_names(self.main))]
        trained: dict[int, tuple[int, int, int] | None] = {}
        problems: list[str] = []
        for each in wanted:
            found = [i for i in chosen(names, each.pattern) if i in self.parameters]
            if not found:
                known = ", ".join(names[i] for i in self.parameters)
                problems.append(f"--train: no parameter {each.pattern!r}; there are {known}")
            for i in found:
                shape = hlo.shape_of(self.arguments[i])
                if each.part is not None:
                    axis, _, stop = each.part
                    if axis >= len(shape) or stop > shape[axis]:
                        problems.append(
                            f"--train: {names[i]} of shape {list(shape)} has no index {stop - 1} "
                            f"along axis {axis}"
                        )
                trained[i] = each.part
        if problems:
            where = source_location(self.main)
            raise collected([InputError(problem, where) for problem in problems])
        return trained

    def _serves(self) -> dict[int, set[int]]:
        """For each argument that is updated and is no parameter, the parameters whose new values
        depend on it."""
        states = {i: set[int]() for i in self.updates if i not in self.parameters}
        for p in self.parameters:
            sources = computed_from([self.returned[self.updates[p]]])
            for i, serves in states.items():
                if self.arguments[i] in sources:
                    serves.add(p)
        return states

    def _train_part(self, index: int, part: tuple[int, int, int]) -> None:
        axis, start, stop = part
        old, k = self.arguments[index], self.updates[index]
        new = _Slicer(self.last, _region_of(self.main, {k})).slice(
            self.returned[k], axis, start, stop - start
        )
        size = hlo.shape_of(old)[axis]
        kept = _Slicer(self.last, set())
        pieces = [
            *([kept.slice(old, axis, 0, start)] if start else []),
            new,
            *([kept.slice(old, axis, stop, size - stop)] if stop < size else []),
        ]
        if len(pieces) > 1:
            self.returned[k] = kept.emit(hlo.ConcatenateOp(pieces, axis), self.last)


class _Slicer:
    """Computes indices of values by themselves, where nothing but they is needed: in `region`."""

    def __init__(self, at: Operation, region: set[SSAValue]) -> None:
        self.at, self.region = at, region
        self.known: dict[tuple[SSAValue, int, int, int], SSAValue] = {}

    def slice(self, value: SSAValue, dim: int, start: int, size: int) -> SSAValue:
        """`size` indices of `value` along `dim`, from `start` on."""
        if size == hlo.shape_of(value)[dim]:
            return value
        key = (value, dim, start, size)
        if key not in self.known:
            self.known[key] = self._new(value, dim, start, size)
        return self.known[key]

    def _new(self, value: SSAValue, dim: int, start: int, size: int) -> SSAValue:
        op, shape = value.owner, hlo.shape_of(value)
        walk = op.along(dim) if isinstance(op, hlo.StablehloOp) else None
        if isinstance(op, hlo.StablehloOp) and walk is not None and value in self.region:
            operands = [
                operand
                if step is None
                else self.slice(
                    operand, step.dim, shape[dim] - start - size if step.mirrored else start, size
                )
                for operand, step in zip(op.operands, walk, strict=True)
            ]
            return self.emit(op.piece(dim, operands, start, size), op)
        starts = [start if d == dim else 0 for d in range(len(shape))]
        limits = [start + size if d == dim else n for d, n in enumerate(shape)]
        return self.emit(hlo.SliceOp(value, starts, limits), self.at)

    def emit(self, op: hlo.StablehloOp, origin: Operation) -> SSAValue:
        """Puts a new operation at the end of the block; its result."""
        op.location = origin.location
        block = self.at.parent_block()
        assert block is not None
        block.insert_op_before(op, self.at)
        return op.result


def _region_of(main: FuncOp, wanted: Collection[int]) -> set[SSAValue]:
    """Values that nothing but the results `wanted` is computed from."""
    region: set[SSAValue] = set()
    last = main.body.block.last_op
    for op in reversed(list(main.body.block.ops)):
        for result in op.results:
            uses = list(result.uses)
            inside = all(
                use.index in wanted
                if use.operation is last
                else region.issuperset(use.operation.results)
                for use in uses
            )
            if uses and inside:
                region.add(result)
    return region
