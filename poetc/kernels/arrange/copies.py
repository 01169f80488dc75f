"""Loops whose iterations run several at a time.

`jam` is for parallel loops: what is in the loop is there in copies, operation by operation, so that
what the copies have in common is there once. `unroll` is for loops that carry values: the copies of
the body follow each other, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from xdsl.dialects import affine
from xdsl.dialects.builtin import AffineMapAttr, AffineSetAttr, IndexType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstraintExpr, AffineExpr, AffineMap, AffineSet
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.kernels.addresses import extent
from poetc.kernels.dependences import yielded
from poetc.kernels.lanes import lanes_of


@dataclass
class Position:
    """`factor * variable + offset`, in place of a loop variable; a number without a variable."""

    variable: SSAValue
    factor: int
    offset: int
    block: Block
    """The block in which it is computed, if it is wanted as a number."""
    number: SSAValue | None = None

    def in_map(self, place: AffineExpr) -> AffineExpr:
        """The position as an expression of a map in which its variable is at `place`."""
        scaled = place * self.factor if self.factor != 1 else place
        return scaled + self.offset if self.offset else scaled

    def value(self) -> SSAValue:
        """The number, at the beginning of the block."""
        if self.factor == 1 and not self.offset:
            return self.variable
        if self.number is None:
            position = self.in_map(AffineExpr.dimension(0))
            op = affine.ApplyOp([self.variable], AffineMapAttr(AffineMap(1, 0, (position,))))
            first = self.block.first_op
            Rewriter.insert_op(
                op, InsertPoint.before(first) if first else InsertPoint.at_end(self.block)
            )
            self.number = op.result
        return self.number


@dataclass
class Copy:
    """The replacements of the values of a loop in one copy of its body."""

    positions: dict[SSAValue, Position]
    values: dict[SSAValue, SSAValue] = field(default_factory=dict)

    def of(self, value: SSAValue) -> SSAValue:
        if value in self.values:
            return self.values[value]
        position = self.positions.get(value)
        return value if position is None else position.value()

    def clone(self, op: Operation) -> Operation:
        """A copy of an operation, with all that is in it; its results are known from then on."""
        new = op.clone_without_regions(clone_operands=False)
        new.operands = self._operands(op, new)
        for region, empty in zip(op.regions, new.regions, strict=True):
            for block in region.blocks:
                inner = Block(arg_types=block.arg_types)
                empty.add_block(inner)
                for old, argument in zip(block.args, inner.args, strict=True):
                    argument.name_hint = old.name_hint
                    self.values[old] = argument
                inner.add_ops([self.clone(each) for each in block.ops])
        for old, result in zip(op.results, new.results, strict=True):
            result.name_hint = old.name_hint
            self.values[old] = result
        return new

    def _operands(self, op: Operation, new: Operation) -> Sequence[SSAValue]:
        """The operands of a copy, whose map says what stands for the variable of the loop."""
        match op:
            case affine.LoadOp() | affine.StoreOp():
                first = len(op.operands) - len(op.indices)
                indices, map_ = op.indices, op.map.data
            case affine.ApplyOp():
                first, indices, map_ = 0, op.mapOperands, op.map.data
            case affine.IfOp():
                places = self._places(op.args, op.condition.data.num_dims)
                if places is not None:
                    new.properties["condition"] = _moved(op.condition.data, *places)
                return [self._operand(value) for value in op.operands]
            case _:
                return [self.of(value) for value in op.operands]
        places = self._places(indices, map_.num_dims)
        if places is not None:
            new.properties["map"] = AffineMapAttr(
                map_.replace_dims_and_symbols(*places, map_.num_dims, map_.num_symbols)
            )
        before = [self.of(value) for value in op.operands[:first]]
        return [*before, *(self._operand(value) for value in op.operands[first:])]

    def _operand(self, value: SSAValue) -> SSAValue:
        """An operand of a map or condition."""
        position = self.positions.get(value)
        return self.of(value) if position is None else position.variable

    def _places(
        self, operands: Sequence[SSAValue], dims: int
    ) -> tuple[list[AffineExpr], list[AffineExpr]] | None:
        """The expressions that replace the dimensions and symbols of a map; None if nothing
        changes."""
        if all(operand not in self.positions for operand in operands):
            return None
        places = [
            AffineExpr.dimension(i) if i < dims else AffineExpr.symbol(i - dims)
            for i in range(len(operands))
        ]
        for i, operand in enumerate(operands):
            if (position := self.positions.get(operand)) is not None:
                places[i] = position.in_map(places[i])
        return places[:dims], places[dims:]


def _moved(
    condition: AffineSet, dims: Sequence[AffineExpr], symbols: Sequence[AffineExpr]
) -> AffineSetAttr:
    constraints = (
        AffineConstraintExpr(
            c.kind,
            c.lhs.replace_dims_and_symbols(dims, symbols),
            c.rhs.replace_dims_and_symbols(dims, symbols),
        )
        for c in condition.constraints
    )
    return AffineSetAttr(AffineSet(condition.num_dims, condition.num_symbols, tuple(constraints)))


def jam(loop: affine.ForOp, copies: int) -> None:
    """Runs `copies` iterations of a parallel loop at a time, and those that remain one by one: of
    a loop in lanes `copies` vectors, each from a part of the loop of its own.

    The caller knows that iterations are independent (`legality.py`).
    """
    lanes = lanes_of(loop)
    whole = extent(loop) // lanes // copies * lanes
    rest = extent(loop) - whole * copies
    made: list[affine.ForOp] = []
    if whole and lanes > 1:
        made.append(_parallel(loop, whole, 1, [whole * part for part in range(copies)]))
    elif whole:
        made.append(_parallel(loop, whole, copies, [*range(copies)]))
    if rest:
        made.append(_parallel(loop, rest, 1, [whole * copies]))
    _replace(loop, made)


def split(loop: affine.ForOp, ranges: Sequence[tuple[int, int, int]]) -> list[affine.ForOp]:
    """Replaces a parallel loop by loops over its parts, and returns them: each of so many
    positions, so far apart, from the third number on.

    The caller knows that iterations are independent (`legality.py`).
    """
    made = [_parallel(loop, count, step, [first]) for count, step, first in ranges]
    _replace(loop, made)
    return made


def _replace(loop: affine.ForOp, made: Sequence[affine.ForOp]) -> None:
    for one in made:
        Rewriter.insert_op(one, InsertPoint.before(loop))
    Rewriter.erase_op(loop)


def _parallel(loop: affine.ForOp, count: int, factor: int, offsets: Sequence[int]) -> affine.ForOp:
    """A loop like this one that does what it does at `factor * i + offset` for all offsets."""
    block = Block(arg_types=[IndexType()])
    variable = loop.body.block.args[0]
    block.args[0].name_hint = variable.name_hint
    copies = [
        Copy({variable: Position(block.args[0], factor, offset, block)}) for offset in offsets
    ]
    _jammed(loop.body.block, block, copies, _depends(loop))
    new = affine.ForOp.from_region([], [], [], [], 0, count, Region(block))
    new.attributes.update(loop.attributes)
    return new


def _jammed(source: Block, target: Block, copies: Sequence[Copy], depends: set[SSAValue]) -> None:
    """Adds to a block what is in another one, in copies where it depends on which copy it is."""
    for op in source.ops:
        if isinstance(op, affine.YieldOp):
            parent = source.parent_op()
            assert parent is not None
            values = _each(op.operands, parent.results, copies, depends)
            target.add_op(affine.YieldOp.get(*values))
        elif isinstance(op, affine.ForOp) and depends.isdisjoint(
            (*op.lowerBoundOperands, *op.upperBoundOperands)
        ):
            target.add_op(_jammed_loop(op, copies, depends))
        elif isinstance(op, affine.IfOp) and depends.isdisjoint(op.args):
            target.add_op(_jammed_guard(op, copies, depends))
        elif op.results and not op.regions and depends.isdisjoint(op.results):
            (first, *others) = copies
            target.add_op(first.clone(op))
            for other in others:
                other.values.update((r, first.values[r]) for r in op.results)
        else:
            target.add_ops([copy.clone(op) for copy in copies])


def _each(
    values: Sequence[SSAValue],
    results: Sequence[SSAValue],
    copies: Sequence[Copy],
    depends: set[SSAValue],
) -> list[SSAValue]:
    """The values of the copies for values that are handed on to these results."""
    return [
        copy.of(value)
        for value, result in zip(values, results, strict=True)
        for copy in (copies if result in depends else copies[:1])
    ]


def _jammed_loop(op: affine.ForOp, copies: Sequence[Copy], depends: set[SSAValue]) -> affine.ForOp:
    body = op.body.block
    carried = body.args[1:]
    inits = _each(op.inits, carried, copies, depends)
    block = Block(arg_types=[IndexType(), *(init.type for init in inits)])
    block.args[0].name_hint = body.args[0].name_hint
    for copy in copies:
        copy.values[body.args[0]] = block.args[0]
    _bind(carried, block.args[1:], copies, depends)
    _jammed(body, block, copies, depends)
    new = affine.ForOp.build(
        operands=[
            [copies[0].of(v) for v in op.lowerBoundOperands],
            [copies[0].of(v) for v in op.upperBoundOperands],
            inits,
        ],
        result_types=[[init.type for init in inits]],
        properties={
            name: value
            for name, value in op.properties.items()
            if name in ("lowerBoundMap", "upperBoundMap", "step")
        },
        attributes=dict(op.attributes),
        regions=[Region(block)],
    )
    _bind(op.results, new.results, copies, depends)
    return new


def _jammed_guard(op: affine.IfOp, copies: Sequence[Copy], depends: set[SSAValue]) -> affine.IfOp:
    regions: list[Region] = []
    for region in op.regions:
        blocks: list[Block] = []
        for block in region.blocks:
            blocks.append(Block())
            _jammed(block, blocks[-1], copies, depends)
        regions.append(Region(blocks))
    types = [
        result.type for result in op.results for _ in (copies if result in depends else copies[:1])
    ]
    new = affine.IfOp.build(
        operands=[[copies[0].of(value) for value in op.args]],
        result_types=[types],
        properties={"condition": op.condition},
        attributes=dict(op.attributes),
        regions=regions,
    )
    _bind(op.results, new.results, copies, depends)
    return new


def _bind(
    old: Sequence[SSAValue],
    new: Sequence[SSAValue],
    copies: Sequence[Copy],
    depends: set[SSAValue],
) -> None:
    """Says what stands for values of which there are copies side by side."""
    rest = iter(new)
    for value in old:
        if value in depends:
            for copy in copies:
                copy.values[value] = next(rest)
                copy.values[value].name_hint = value.name_hint
        else:
            one = next(rest)
            one.name_hint = value.name_hint
            for copy in copies:
                copy.values[value] = one


def _depends(loop: affine.ForOp) -> set[SSAValue]:
    """The values in a parallel loop that are not the same in all of its iterations.

    What a loop carries, or a guard yields, is where each value that is handed to it is.
    """
    found: set[SSAValue] = {loop.body.block.args[0]}

    def any_of(values: Sequence[SSAValue]) -> bool:
        return not found.isdisjoint(values)

    def visit(block: Block) -> None:
        for op in block.ops:
            match op:
                case affine.ForOp():
                    body = op.body.block
                    carried = body.args[1:]
                    if any_of((*op.lowerBoundOperands, *op.upperBoundOperands)):
                        found.update(body.args)
                    while True:
                        before = len(found)
                        for value, init in zip(carried, op.inits, strict=True):
                            if init in found:
                                found.add(value)
                        visit(body)
                        for value, next_ in zip(carried, yielded(body), strict=True):
                            if next_ in found:
                                found.add(value)
                        if len(found) == before:
                            break
                    for result, value in zip(op.results, carried, strict=True):
                        if value in found:
                            found.add(result)
                case affine.IfOp():
                    branches = [region.block for region in op.regions if region.blocks]
                    for branch in branches:
                        visit(branch)
                    for i, result in enumerate(op.results):
                        if any_of(op.args) or any(yielded(b)[i] in found for b in branches):
                            found.add(result)
                case _:
                    if any_of(op.operands):
                        found.update(op.results)

    visit(loop.body.block)
    return found


def unroll(loop: affine.ForOp, copies: int) -> None:
    """Does `copies` iterations of a loop that carries values one after the other in each, and the
    rest behind it. A loop of no more iterations is replaced by them."""
    whole, rest = divmod(extent(loop), copies)
    _in_sequence(loop, [(whole, copies, 0), (rest, 1, whole * copies)])


def split_sum(loop: affine.ForOp, ends: Sequence[int]) -> list[affine.ForOp]:
    """Replaces a loop that carries values by such loops over its parts, which go to these
    positions, and returns those that have iterations."""
    parts = pairwise((0, *ends, extent(loop)))
    return _in_sequence(loop, [(end - start, 1, start) for start, end in parts])


def _in_sequence(loop: affine.ForOp, parts: Sequence[tuple[int, int, int]]) -> list[affine.ForOp]:
    """Replaces a loop that carries values by one after the other: each of so many iterations, in
    each of which so many of the old ones are, from the third number on."""
    made: list[affine.ForOp] = []
    values: Sequence[SSAValue] = loop.inits
    for count, copies, start in parts:
        if count:
            made.append(_sequence(loop, count, copies, start, values))
            Rewriter.insert_op(made[-1], InsertPoint.before(loop))
            values = made[-1].results
    for old, value in zip(loop.results, values, strict=True):
        old.replace_all_uses_with(value)
    Rewriter.erase_op(loop)
    return made


def _sequence(
    loop: affine.ForOp, count: int, copies: int, start: int, inits: Sequence[SSAValue]
) -> affine.ForOp:
    body = loop.body.block
    block = Block(arg_types=body.arg_types)
    for old, argument in zip(body.args, block.args, strict=True):
        argument.name_hint = old.name_hint
    values: Sequence[SSAValue] = block.args[1:]
    for i in range(copies):
        position = Position(block.args[0], copies, start + i, block)
        copy = Copy({body.args[0]: position}, dict(zip(body.args[1:], values, strict=True)))
        for op in body.ops:
            if not isinstance(op, affine.YieldOp):
                block.add_op(copy.clone(op))
        values = [copy.of(value) for value in yielded(body)]
    block.add_op(affine.YieldOp.get(*values))
    new = affine.ForOp.from_region(
        [], [], inits, [value.type for value in inits], 0, count, Region(block)
    )
    new.attributes.update(loop.attributes)
    for old, result in zip(loop.results, new.results, strict=True):
        result.name_hint = old.name_hint
    return new
