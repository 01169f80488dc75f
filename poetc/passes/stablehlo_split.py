"""`stablehlo-split`: parameters in shards, so that no kernel holds a large one whole.

A parameter is replaced by slices of it along one axis, each an argument of its own. What reads the
parameter is computed shard by shard as far as the axis is parallel there: element-wise operations,
data movement, free dimensions of contractions. Where it is not, the reader takes the shards as
a concatenation, which `poet-fuse` makes an index map. The new value is computed for each shard from
slices of what the whole one is computed from, and so becomes as many results. Every float operation
stays what it was and where it was in the order of its reduction, so the bits stay.

Arguments keep their numbers: the first shard takes the place of the parameter, the others come
after all arguments, their new values after all results. On each shard
`poet.shard = array<i64: argument, axis, start>` tells which argument it is a slice of, and where it
begins. To the user it is one parameter still (poetc/image.py, backends/c/layout.py).

What is frozen on storage is a parameter without a new value: its shards are arguments only.

Parameters whose new values depend on one another element by element (weights and the state of their
optimiser) are split alike, whichever is asked for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    TensorType,
    UnitAttr,
    i32,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass

from poetc.errors import InputError
from poetc.ir import stablehlo as hlo
from poetc.ir.aliasing import ALIASING, updates_of
from poetc.ir.poet import SHARD, STORED, Shard
from poetc.ir.stablehlo.base import Along, Walk
from poetc.ir.stablehlo.contraction import in_blocks
from poetc.ir.types import computed_type
from poetc.options import default
from poetc.passes.stablehlo_to_poet import (
    argument_names,
    frozen_arguments,
    frozen_on_storage,
)
from poetc.simplify.driver import remove_dead
from poetc.splits import Split, parse_splits

LEAVES = (hlo.ConstantOp, hlo.IotaOp)


@dataclass(frozen=True)
class StableHLOSplitPass(ModulePass):
    """Splits parameters of `@main` as `params` says, for example `1:2,arg3:4,w@0:2`.

    What is `frozen` on storage, by that option of `stablehlo-to-poet`, can be split, too. The
    module must have been through `stablehlo-simplify`.
    """

    name = "stablehlo-split"

    params: str
    frozen: str = default("frozen")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        split_parameters(op, parse_splits(self.params), self.frozen)


def split_parameters(
    module: ModuleOp, splits: Sequence[Split], frozen: str = default("frozen")
) -> None:
    """Splits parameters of `@main` in place. Raises InputError for what cannot be split."""
    if not splits:
        return
    main = main_of(module)
    stored = _frozen_on_storage(main, frozen)
    _Splitter(main, resolve(main, splits, stored), stored).run()


def _frozen_on_storage(main: FuncOp, frozen: str) -> frozenset[int]:
    """The arguments that are frozen and on storage."""
    found = frozen_arguments(main, frozen)
    if frozen_on_storage(frozen):
        return found
    attributes = main.arg_attrs
    return frozenset(i for i in found if attributes and STORED in attributes.data[i].data)


def main_of(module: ModuleOp) -> FuncOp:
    """`@main` of a simplified module."""
    mains = [op for op in module.ops if isinstance(op, FuncOp) and op.sym_name.data == "main"]
    if len(mains) != 1 or len(mains[0].body.blocks) != 1:
        raise InputError("stablehlo-split needs one function @main of one block")
    return mains[0]


@dataclass(frozen=True)
class Cut:
    """How one argument is split: where the shards along `axis` begin, and where the last ends."""

    axis: int
    bounds: tuple[int, ...]

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Start and size of each shard."""
        return tuple((start, end - start) for start, end in pairwise(self.bounds))

    def mirrored(self) -> Cut:
        """The bounds seen from the other end."""
        return Cut(self.axis, tuple(self.bounds[-1] - b for b in reversed(self.bounds)))


def resolve(
    main: FuncOp, splits: Iterable[Split], stored: frozenset[int] = frozenset()
) -> dict[int, Cut]:
    """How each argument is split; those that are split alike are among them. `stored` are those
    that are frozen on storage."""
    alike = _companions(main, updates_of(main), stored)
    table: dict[int, Cut] = {}
    for split in splits:
        index = _index(main, split, alike)
        group = alike[index]
        shape = hlo.shape_of(main.body.block.args[index])
        axis = split.axis
        if axis is None:
            axis = best_axis(main, group, split.shards)
            if axis is None:
                raise InputError(f"--split={split}: no dimension of {list(shape)} has that many")
        elif axis >= len(shape) or shape[axis] < split.shards:
            raise InputError(
                f"--split={split}: there is no dimension {axis} with {split.shards} or more in "
                f"{list(shape)}"
            )
        size = shape[axis]
        bounds = tuple(size * k // split.shards for k in range(split.shards + 1))
        for member in group:
            if member in table and table[member] != Cut(axis, bounds):
                raise InputError(f"--split={split}: argument {member} is split in another way")
            table[member] = Cut(axis, bounds)
    return table


def _index(main: FuncOp, split: Split, parameters: Collection[int]) -> int:
    names = names_for_splits(main)
    if isinstance(split.parameter, int):
        index = split.parameter
        if index >= len(main.body.block.args):
            raise InputError(f"--split={split}: there is no argument {index}")
    else:
        found = [i for i, name in enumerate(names) if name == split.parameter]
        if len(found) != 1:
            known = ", ".join(dict.fromkeys(names[i] for i in parameters))
            count = "no parameter has" if not found else f"{len(found)} parameters have"
            raise InputError(f"--split={split}: {count} that name; there are {known}")
        index = found[0]
    if index not in parameters:
        raise InputError(
            f"--split={split}: argument {index} is no parameter that the step updates, nor frozen "
            "on storage"
        )
    if _is_shard(main, index):
        raise InputError(f"--split={split}: argument {index} is split already")
    return index


def splittable(module: ModuleOp, frozen: str = default("frozen")) -> dict[int, tuple[int, int]]:
    """For each parameter of a simplified module the argument that stands for all that are split
    alike, and the most shards that it can be had in: 1 if it is a shard already. What is `frozen`
    elsewhere than on storage is none."""
    main = main_of(module)
    stored = _frozen_on_storage(main, frozen)
    elsewhere = frozen_arguments(main, frozen) - stored
    shapes = [
        () if _is_shard(main, argument.index) else hlo.shape_of(argument)
        for argument in main.body.block.args
    ]
    return {
        index: (alike[0], max(shapes[index], default=1))
        for index, alike in _companions(main, updates_of(main), stored).items()
        if index not in elsewhere
    }


def _is_shard(main: FuncOp, index: int) -> bool:
    return main.arg_attrs is not None and SHARD in main.arg_attrs.data[index].data


def names_for_splits(main: FuncOp) -> list[str]:
    """The names by which a parameter can be split: its own, or `arg<i>`."""
    return [name or f"arg{i}" for i, name in enumerate(argument_names(main))]


def _companions(
    main: FuncOp, updates: dict[int, int], stored: frozenset[int]
) -> dict[int, tuple[int, ...]]:
    """For each parameter those that are split with it, in order: the new value of one of them
    depends on both, element by element. Those that are `stored` and frozen have no new values."""
    arguments = main.body.block.args
    returned = _returned(main)
    group = {i: {i} for i in sorted(stored.union(updates))}
    for i, result in updates.items():
        seen: set[SSAValue] = set()
        stack = [returned[result]]
        while stack:
            value = stack.pop()
            if value in seen or value.type != arguments[i].type:
                continue
            seen.add(value)
            if isinstance(value, BlockArgument):
                if value.index in group and group[value.index] is not group[i]:
                    joined = group[i] | group[value.index]
                    for member in joined:
                        group[member] = joined
            elif isinstance(value.owner, hlo.ElementwiseOp):
                stack.extend(value.owner.operands)
    return {i: tuple(sorted(members)) for i, members in group.items()}


def _returned(main: FuncOp) -> Sequence[SSAValue]:
    last = main.body.block.last_op
    assert isinstance(last, ReturnOp)
    return last.operands


def best_axis(main: FuncOp, alike: Sequence[int], shards: int) -> int | None:
    """The axis along which to split the parameters `alike`; None if none is that long.

    Along it the fewest readers need all of a parameter at once. Of such axes it is one along which
    fewest results are in shards that something reads together with another tensor of their size, as
    a gradient is with the mask of an activation, and then in shards at all; then the longest.
    """
    arguments = main.body.block.args
    shape = hlo.shape_of(arguments[alike[0]])
    axes = [axis for axis, size in enumerate(shape) if size >= shards]
    if not axes:
        return None
    updates = updates_of(main)
    region = region_of(main, {updates[index] for index in alike if index in updates})

    def price(axis: int) -> tuple[int, ...]:
        found = [_readers(arguments[index], axis, region) for index in alike]
        return (*map(sum, zip(*found, strict=True)), -shape[axis])

    return min(axes, key=price)


def _readers(argument: SSAValue, axis: int, region: set[SSAValue]) -> tuple[int, int, int]:
    """How many operations need all of an argument at once when it is split along `axis`; and how
    many make shards of what others than its new value (`region`) are computed from: with another
    tensor, and at all."""
    whole = beside = joined = 0
    seen: set[tuple[SSAValue, int]] = set()
    stack: list[tuple[SSAValue, int]] = [(argument, axis)]
    while stack:
        value, dim = stack.pop()
        if (value, dim) in seen:
            continue
        seen.add((value, dim))
        for use in value.uses:
            op = use.operation
            if not isinstance(op, hlo.StablehloOp):
                whole += isinstance(op, hlo.RepeatOp)
                continue
            found = _result_dim(op, use.index, dim)
            if found is None:
                sums = isinstance(op, hlo.ContractionOp)
                whole += not sums or op.along_outermost(use.index, dim) is None
            elif is_light(op):
                stack.append((op.result, found))
            elif op.result not in region:
                joined += 1
                beside += _has_company(op.result)
    return whole, beside, joined


def _has_company(value: SSAValue) -> bool:
    """Whether what is done at once to each element of a value reads elements of another tensor."""
    while value.has_one_use():
        use = next(iter(value.uses))
        op = use.operation
        if not isinstance(op, hlo.StablehloOp) or not is_light(op):
            return False
        others = [operand for operand in op.operands if operand is not value]
        if not all(is_free(operand, {}) for operand in others):
            return True
        value = op.result
    return False


def is_free(value: SSAValue, known: dict[SSAValue, bool]) -> bool:
    """Whether the value is an argument, a constant, or made of those element by element."""
    if value not in known:
        op = value.owner
        known[value] = isinstance(op, Block) or (
            is_light(op) and all(is_free(operand, known) for operand in op.operands)
        )
    return known[value]


def region_of(main: FuncOp, wanted: Collection[int]) -> set[SSAValue]:
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


def _result_dim(op: hlo.StablehloOp, operand: int, dim: int) -> int | None:
    """The dimension of the result along which `dim` of the operand is walked."""
    for result_dim in range(len(hlo.shape_of(op.result))):
        walk = op.along(result_dim)
        step = walk[operand] if walk is not None else None
        if step is not None and step.dim == dim:
            return result_dim
    return None


def is_light(op: Operation) -> bool:
    """Whether the operation moves elements or does arithmetic on single ones."""
    return isinstance(op, (hlo.MovementOp, hlo.ElementwiseOp, *LEAVES))


@dataclass(frozen=True)
class _Shards:
    """A value that is there in shards, and their concatenation, which is dead if nothing needs it.

    `heavy`: a contraction or reduction lies between a parameter and them.
    """

    cut: Cut
    values: tuple[SSAValue, ...]
    whole: SSAValue
    heavy: bool


class _Splitter:
    """Adds to the block of `main` what computes in shards, and removes what that replaces."""

    def __init__(self, main: FuncOp, table: dict[int, Cut], stored: frozenset[int]) -> None:
        self.main, self.table, self.stored = main, table, stored
        self.block = main.body.block
        self.updates = updates_of(main)
        wanted = {self.updates[i] for i in table if i in self.updates}
        last = self.block.last_op
        assert isinstance(last, ReturnOp)
        self.last: ReturnOp = last
        self.region = region_of(main, wanted)
        self.shards: dict[SSAValue, _Shards] = {}
        self.sums: dict[SSAValue, SSAValue] = {}
        self.slices: dict[tuple[SSAValue, int, int, int], SSAValue] = {}
        self.free: dict[SSAValue, bool] = {}
        self.at: Operation = self.last
        """New operations are put before this one."""

    def run(self) -> None:
        ops = list(self.block.ops)
        split = [self.block.args[index] for index in self.table]
        self.at = ops[0]
        self._split_arguments()
        for op in ops:
            if isinstance(op, hlo.StablehloOp):
                self.at = op
                for index, operand in enumerate(op.operands):
                    if operand in self.shards and self._compute_in_shards(op, index):
                        break
        self.at = ops[-1]
        self._split_results()
        for value, shards in self.shards.items():
            value.replace_all_uses_with(shards.whole)
        for value, total in self.sums.items():
            value.replace_all_uses_with(total)
        remove_dead(self.block)
        for argument in split:
            self.block.erase_arg(argument)
        self.main.update_function_type()

    # Arguments and results

    def _split_arguments(self) -> None:
        arguments = self.block.args
        attributes = _dictionaries(self.main.arg_attrs, len(arguments))
        results = len(self.last.operands)
        for index, whole in [(i, arguments[i]) for i in sorted(self.table)]:
            cut = self.table[index]
            if index in self.stored:
                attributes[index] = attributes[index] | {STORED: UnitAttr()}
            values: list[SSAValue] = []
            for k, (start, size) in enumerate(cut.ranges):
                place = len(self.block.args) if k else whole.index
                argument = self.block.insert_arg(_cut_type(whole, cut.axis, size), place)
                argument.name_hint = _hint(whole, k) if k else whole.name_hint
                argument.location = whole.location
                values.append(argument)
                marked = attributes[index] | {SHARD: Shard(index, cut.axis, start).attribute}
                if k and index in self.updates:
                    marked[ALIASING] = IntegerAttr(results, i32)
                    results += 1
                if k:
                    attributes.append(marked)
            attributes[index] = attributes[index] | {SHARD: Shard(index, cut.axis, 0).attribute}
            self._add(whole, cut, values, heavy=False)
        self.main.arg_attrs = ArrayAttr(map(DictionaryAttr, attributes))

    def _split_results(self) -> None:
        results = list(self.last.operands)
        attributes = _dictionaries(self.main.res_attrs, len(results))
        for index in sorted(self.table.keys() & self.updates.keys()):
            result, cut = self.updates[index], self.table[index]
            first, *others = (
                self._slice(results[result], cut.axis, start, size, push=True)
                for start, size in cut.ranges
            )
            results[result] = first
            results += others
            attributes += [attributes[result]] * len(others)
        self.last.operands = results
        self.main.res_attrs = ArrayAttr(map(DictionaryAttr, attributes))

    # Values in shards

    def _add(self, value: SSAValue, cut: Cut, values: Sequence[SSAValue], heavy: bool) -> None:
        whole = self._emit(hlo.ConcatenateOp(values, cut.axis), self.at)
        whole.name_hint = value.name_hint
        self.shards[value] = _Shards(cut, tuple(values), whole, heavy)
        self.free[value] = False

    def _compute_in_shards(self, op: hlo.StablehloOp, operand: int) -> bool:
        """Computes `op` in shards, if the shards of that operand allow it."""
        given = self.shards[op.operands[operand]]
        heavy = not is_light(op)
        dim = _result_dim(op, operand, given.cut.axis)
        if dim is None and not given.heavy:
            return self._sum_up(op, operand)
        # What a contraction gives is stored in shards, after what is done to each of its
        # elements at once: bias, activation. Whatever reads it then reads all shards.
        behind = given.heavy and (heavy or not op.operands[operand].has_one_use())
        if dim is None or behind:
            return False
        walk = op.along(dim)
        step = walk[operand] if walk is not None else None
        assert walk is not None and step is not None
        cut = Cut(dim, (given.cut.mirrored() if step.mirrored else given.cut).bounds)
        for value, each in zip(op.operands, walk, strict=True):
            if each is not None and not self._sliceable(value, cut, each):
                return False
        values = [self._piece(op, walk, dim, start, size, push=True) for start, size in cut.ranges]
        for k, value in enumerate(values):
            value.name_hint = _hint(op.result, k)
        heavy |= any(self.shards[v].heavy for v in op.operands if v in self.shards)
        self._add(op.result, cut, values, heavy)
        return True

    def _sliceable(self, value: SSAValue, cut: Cut, step: Along) -> bool:
        """Whether slices of an operand are there, cost nothing, or are all that is needed of it."""
        wanted = Cut(step.dim, (cut.mirrored() if step.mirrored else cut).bounds)
        if value in self.shards and self.shards[value].cut == wanted:
            return True
        return value in self.region or is_free(value, self.free)

    def _piece(
        self, op: hlo.StablehloOp, walk: Walk, dim: int, start: int, size: int, push: bool
    ) -> SSAValue:
        """`size` indices of the result of `op` from `start` on."""
        extent = hlo.shape_of(op.result)[dim]
        push = push and is_light(op)
        operands: list[SSAValue] = []
        for value, each in zip(op.operands, walk, strict=True):
            if each is None:
                operands.append(value)
            else:
                begin = extent - start - size if each.mirrored else start
                operands.append(self._slice(value, each.dim, begin, size, push))
        return self._emit(op.piece(dim, operands, start, size), op)

    def _sum_up(self, op: hlo.StablehloOp, operand: int) -> bool:
        """Computes sums over the axis that is cut, one shard after the other, if that is the order
        in which they are computed."""
        cut = self.shards[op.operands[operand]].cut
        walk = op.along_outermost(operand, cut.axis) if isinstance(op, hlo.ContractionOp) else None
        if walk is None:
            return False
        assert isinstance(op, hlo.ContractionOp)
        every = op.block_positions
        total = None if every is None else self._constant(op, 0.0)
        # The sum of a block that is not complete.
        part: SSAValue | None = None
        for start, size in in_blocks(cut.ranges, every):
            operands = [
                value if step is None else self._slice(value, step.dim, start, size, push=False)
                for value, step in zip(op.operands, walk, strict=True)
            ]
            end = start + size
            ends = every is None or not end % every or end == cut.bounds[-1]
            if every is None or (part is None and not start % every and ends):
                sums = op.summand(walk, operands, start, total, whole=every is not None)
                total = self._emit(sums, op)
                continue
            assert total is not None
            part = self._constant(op, -0.0) if part is None else part
            part = self._emit(op.summand(walk, operands, start, part), op)
            if ends:
                total, part = self._emit(hlo.AddOp(total, part), op), None
        assert total is not None
        if total.type != op.result.type:
            total = self._emit(hlo.ConvertOp(total, hlo.element_type_of(op.result)), op)
        total.name_hint = op.result.name_hint
        self.sums[op.result] = total
        return True

    def _constant(self, op: hlo.StablehloOp, number: float) -> SSAValue:
        """A tensor of `number`, from which sums of `op` start."""
        element = computed_type(hlo.element_type_of(op.result))
        type = TensorType(element, hlo.shape_of(op.result))
        return self._emit(hlo.ConstantOp.splat(number, type), op)

    def _slice(self, value: SSAValue, dim: int, start: int, size: int, push: bool) -> SSAValue:
        """`size` indices of `value` from `start` on. With `push`, they are computed by themselves
        where nothing needs the others."""
        if size == hlo.shape_of(value)[dim]:
            return value
        key = (value, dim, start, size)
        if key not in self.slices:
            self.slices[key] = self._new_slice(value, dim, start, size, push)
        return self.slices[key]

    def _new_slice(self, value: SSAValue, dim: int, start: int, size: int, push: bool) -> SSAValue:
        found, op = self.shards.get(value), value.owner
        if found is not None:
            for (first, length), shard in zip(found.cut.ranges, found.values, strict=True):
                if found.cut.axis == dim and first <= start and start + size <= first + length:
                    return self._cut(shard, dim, start - first, size)
        elif isinstance(op, hlo.StablehloOp):
            walk = op.along(dim)
            computed = is_free(value, self.free) or (push and value in self.region)
            if walk is not None and computed:
                return self._piece(op, walk, dim, start, size, push)
        return self._cut(value, dim, start, size)

    def _cut(self, value: SSAValue, dim: int, start: int, size: int) -> SSAValue:
        shape = hlo.shape_of(value)
        if size == shape[dim]:
            return value
        starts = [start if d == dim else 0 for d in range(len(shape))]
        limits = [start + size if d == dim else n for d, n in enumerate(shape)]
        return self._emit(hlo.SliceOp(value, starts, limits), self.at)

    def _emit(self, op: hlo.StablehloOp, origin: Operation) -> SSAValue:
        """Puts a new operation where the rewriting is; the result."""
        op.location = origin.location
        self.block.insert_op_before(op, self.at)
        return op.result


def _dictionaries(
    attributes: ArrayAttr[DictionaryAttr] | None, count: int
) -> list[dict[str, Attribute]]:
    return [dict(a.data) for a in attributes] if attributes else [{} for _ in range(count)]


def _cut_type(value: SSAValue, axis: int, size: int) -> TensorType:
    type_ = hlo.tensor_type(value)
    shape = list(type_.get_shape())
    shape[axis] = size
    return TensorType(type_.element_type, shape)


def _hint(value: SSAValue, shard: int) -> str | None:
    return f"{value.name_hint}_{shard}" if value.name_hint else None
