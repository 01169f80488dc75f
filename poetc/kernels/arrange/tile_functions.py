"""Tile functions with their loops arranged for a core.

What is arranged is a tile that is not cut off, whose loops run from 0 on over all of it: its
starts are numbers like others, the same in all of its iterations. Where the last tile of a loop is
smaller, the function keeps its loops as they are beside that, for such tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from xdsl.dialects import affine, func, memref
from xdsl.dialects.builtin import FloatAttr, StringAttr, SymbolRefAttr, f64
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.ir.index import Condition, Index, Var, affine_map, affine_set
from poetc.kernels.access import map_indices, starts_around, tile_of, tiles_of
from poetc.kernels.addresses import IN_ALL, extent, extent_of, tile_start
from poetc.kernels.arrange import Machine, arranged

ARRANGED = "poet.arranged"
"""Attribute of a kernel as it is lowered: the one that is the same with its loops arranged. Tiles
are made of this one."""

PRICE = "poet.price"
"""Attribute of such a kernel: the instructions of a run that each operation of more code saves."""


def lowered_of(function: func.FuncOp, price: float) -> func.FuncOp:
    """A copy of a kernel as it is lowered, to stand beside that whose loops are arranged."""
    copy = function.clone()
    copy.properties["sym_name"] = StringAttr(f"{function.sym_name.data}_lowered")
    copy.attributes[ARRANGED] = SymbolRefAttr(function.sym_name)
    copy.attributes[PRICE] = FloatAttr(price, f64)
    return copy


def lowered_kernels(functions: Iterable[Operation]) -> dict[str, tuple[func.FuncOp, float]]:
    """Kernels as they are lowered, and what code costs in them, by the names of those that are
    arranged."""
    found: dict[str, tuple[func.FuncOp, float]] = {}
    for op in functions:
        if isinstance(op, func.FuncOp):
            name, price = op.attributes.get(ARRANGED), op.attributes.get(PRICE)
            if isinstance(name, SymbolRefAttr) and isinstance(price, FloatAttr):
                found[name.string_value()] = op, price.value.data
    return found


def arranged_tile(function: func.FuncOp, machine: Machine, price: float) -> func.FuncOp:
    """A tile function that does the same with its loops arranged for a core, or the function itself
    where there is nothing to gain.

    Each operation of more code is to save `price` instructions of a run of all tiles.
    """
    full = full_tile(function)
    count = prod(-(-end // size) for end, size in tiles_of(function))
    new = arranged(full, machine, price / count, keeps=is_cut(function))
    return function if new is full else for_all_tiles(function, new)


def is_cut(function: func.FuncOp) -> bool:
    """Whether the last tile of a loop of a tile function is smaller than the others."""
    return any(end % size for end, size in tiles_of(function))


def full_tile(function: func.FuncOp) -> func.FuncOp:
    """A tile function for tiles that are not cut off: its loops run from 0 on."""
    copy = function.clone()
    first = copy.body.block.first_op
    starts = () if first is None else starts_around(first)
    known: dict[SSAValue, Index] = {
        start: Index.of(Var(number, tile_of(start)[0], ssa=start))
        for number, start in enumerate(starts)
    }
    moved: dict[SSAValue, BlockArgument] = {}
    for number, loop in enumerate(list(copy.walk()), len(starts)):
        if not isinstance(loop, affine.ForOp):
            continue
        variable = loop.body.block.args[0]
        if (start := tile_start(loop)) is None:
            size = 1 << 31 if IN_ALL in loop.attributes else extent(loop)
            known[variable] = Index.of(Var(number, size, ssa=variable))
            continue
        size = tile_of(start)[1]
        known[variable] = known[start] + Index.of(Var(number, size, ssa=variable))
        moved[variable] = start
        _from_zero(loop, size)
    # All maps are read before one is changed.
    changes = [
        change
        for op in copy.walk()
        if moved.keys() & set(op.operands) and (change := _Maps.of(op, known)) is not None
    ]
    for change in changes:
        change.apply()
    for variable, start in moved.items():
        _as_number(variable, start, {change.op for change in changes})
    return copy


def _from_zero(loop: affine.ForOp, size: int) -> None:
    """Lets a loop run from 0 to `size`."""
    body = loop.detach_region(loop.body)
    new = affine.ForOp.from_region([], [], list(loop.inits), list(loop.result_types), 0, size, body)
    new.attributes.update(loop.attributes)
    for old, result in zip(loop.results, new.results, strict=True):
        result.name_hint = old.name_hint
    Rewriter.replace_op(loop, new)


@dataclass(frozen=True)
class _Maps:
    """An operation whose map, or condition, is to be another one, on other operands."""

    op: Operation
    name: str
    value: Attribute
    others: list[SSAValue]
    operands: list[SSAValue]

    @staticmethod
    def of(op: Operation, known: Mapping[SSAValue, Index]) -> _Maps | None:
        """The maps of an operation whose operands are these numbers; None if it has no map."""
        match op:
            case affine.LoadOp():
                map_, operands, others = op.map.data, op.indices, [op.memref]
            case affine.StoreOp():
                map_, operands, others = op.map.data, op.indices, [op.value, op.memref]
            case affine.ApplyOp():
                map_, operands, others = op.map.data, op.mapOperands, list[SSAValue]()
            case affine.IfOp():
                return _Maps._guard(op, known)
            case _:
                return None
        indices = map_indices(map_, list(operands), known)
        found = [index for index in indices if index is not None]
        if len(found) < len(indices):
            return None
        value, new = affine_map(found)
        return _Maps(op, "map", value, others, new)

    @staticmethod
    def _guard(op: affine.IfOp, known: Mapping[SSAValue, Index]) -> _Maps | None:
        set_ = op.condition.data
        conditions: list[Condition] = []
        for each in set_.constraints:
            sides = AffineMap(set_.num_dims, set_.num_symbols, (each.lhs, each.rhs))
            left, right = map_indices(sides, list(op.args), known)
            if left is None or right is None:
                return None
            if each.kind.value == "<=":
                left, right = right, left
            conditions.append(Condition(left - right, equal=each.kind.value == "=="))
        value, new = affine_set(conditions)
        return _Maps(op, "condition", value, [], new)

    def apply(self) -> None:
        self.op.properties[self.name] = self.value
        self.op.operands = [*self.others, *self.operands]


def _as_number(variable: SSAValue, start: SSAValue, changed: set[Operation]) -> None:
    """Gives what is not `changed` the position in the whole loop in place of that in the tile."""
    uses = [use for use in variable.uses if use.operation not in changed]
    if not uses:
        return
    position = Index.of(Var(0, extent_of(variable), ssa=variable))
    attribute, operands = affine_map([position + Index.of(Var(1, extent_of(start), ssa=start))])
    op = affine.ApplyOp(operands, attribute)
    assert isinstance(variable, BlockArgument)
    first = variable.block.first_op
    assert first is not None
    Rewriter.insert_op(op, InsertPoint.before(first))
    for use in uses:
        use.operation.operands[use.index] = op.result


def for_all_tiles(function: func.FuncOp, full: func.FuncOp) -> func.FuncOp:
    """A tile function that does what `full` does in tiles that are not cut off, and what `function`
    does in others. The operations of `full` are moved to it, or it is `full` itself if no tile of
    `function` is cut off."""
    if not is_cut(function):
        return full
    result = function.clone()
    block, other = result.body.block, full.body.block
    for old, new in zip(other.args, block.args, strict=True):
        old.replace_all_uses_with(new)
    shared = {op.name_.string_value(): op for op in block.ops if isinstance(op, memref.GetGlobalOp)}
    then, cut = Block(), Block()
    for op in list(other.ops):
        if isinstance(op, memref.GetGlobalOp) and op.name_.string_value() in shared:
            op.memref.replace_all_uses_with(shared[op.name_.string_value()].memref)
        elif not isinstance(op, func.ReturnOp):
            op.detach()
            then.add_op(op)
    for op in list(block.ops):
        if not isinstance(op, func.ReturnOp) and op not in shared.values():
            op.detach()
            cut.add_op(op)
    for branch in (then, cut):
        branch.add_op(affine.YieldOp.get())
    last = block.last_op
    assert last is not None
    conditions: list[Condition] = []
    for number, start in enumerate(starts_around(last)):
        end, size = tile_of(start)
        if end % size:
            conditions.append(Condition(-Index.of(Var(number, end, ssa=start)) + (end - size)))
    attribute, operands = affine_set(conditions)
    guard = affine.IfOp.build(
        operands=[operands],
        result_types=[[]],
        properties={"condition": attribute},
        regions=[Region(then), Region(cut)],
    )
    block.insert_op_before(guard, last)
    return result
