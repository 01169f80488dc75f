"""The loop nest of a kernel as tiling looks at it: extents, accesses, and what depends on what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import affine, arith, func, memref
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from poetc.backends.c.indexing import flat_index, mapped, variables_of
from poetc.ir.index import NO_FACTS, Index, Variable
from poetc.kernels.addresses import extent
from poetc.kernels.dependences import dependences

Loop = affine.ForOp


@dataclass(frozen=True)
class Vectors:
    """The vector registers of a processor: float32 elements of each, and how many there are."""

    lanes: int
    registers: int


@dataclass(frozen=True)
class Access:
    """A load or store, and the loops around it."""

    op: Operation
    loops: tuple[Loop, ...]
    flat: Index | None
    """None for a place that is read from memory."""

    def coefficient(self, variable: Variable) -> int | None:
        """The elements by which an iteration moves it; None where that is not constant."""
        if self.flat is None:
            return None
        total = 0
        for term, coefficient in self.flat.terms:
            if term == variable:
                total = coefficient
            elif variable.name in variables_of(Index.of(term)):
                return None
        return total


class Nest:
    """The facts about a kernel that choices are made by."""

    def __init__(self, function: func.FuncOp, vectors: Vectors) -> None:
        self.function, self.vectors = function, vectors
        self.depends = dependences(function)
        self.extents: dict[Loop, int] = {}
        self.variables: dict[Loop, Variable] = {}
        self.around: dict[Operation, tuple[Loop, ...]] = {}
        self.accesses: dict[Operation, Access] = {}
        self.indices: dict[SSAValue, Index] = {}
        self._walk(function.body.block, ())

    def _walk(self, block: Block, loops: tuple[Loop, ...]) -> None:
        for op in block.ops:
            self.around[op] = loops
            match op:
                case affine.ForOp():
                    count = self.extents[op] = extent(op)
                    name = f"loop{len(self.variables)}"
                    self.variables[op] = Variable(name, 0, max(0, count - 1))
                    self.indices[op.body.block.args[0]] = Index.of(self.variables[op])
                    self._walk(op.body.block, (*loops, op))
                case affine.IfOp():
                    for region in op.regions:
                        if region.blocks:
                            self._walk(region.block, loops)
                case affine.LoadOp() | affine.StoreOp():
                    flat = self._flat(op)
                    self.accesses[op] = Access(op, loops, flat)
                case memref.LoadOp() | memref.StoreOp():
                    self.accesses[op] = Access(op, loops, None)
                case arith.ConstantOp() if isinstance(op.result.type, IndexType):
                    value = op.value
                    assert hasattr(value, "value")
                    self.indices[op.result] = Index(value.value.data)  # pyright: ignore
                case affine.ApplyOp() if all(o in self.indices for o in op.operands):
                    self.indices[op.result] = self._map(op.map.data, op.operands)[0]
                case _:
                    pass

    def _map(self, map_: AffineMap, operands: Sequence[SSAValue]) -> list[Index]:
        return mapped(map_, [self.indices[operand] for operand in operands], NO_FACTS)

    def _flat(self, op: affine.LoadOp | affine.StoreOp) -> Index | None:
        if any(operand not in self.indices for operand in op.indices):
            return None
        return flat_index(op.memref, self._map(op.map.data, op.indices))

    def _varies(self, op: Operation, along: Loop) -> bool:
        return any(along in self.depends.get(result, ()) for result in op.results)

    def _depends(self, op: Operation) -> frozenset[Loop]:
        return frozenset[Loop]().union(*(self.depends.get(r, ()) for r in op.results))

    def _guarded(self, op: Operation | None) -> frozenset[Loop]:
        """The loops that guards around an operation depend on."""
        found = frozenset[Loop]()
        while op is not None:
            if isinstance(op, affine.IfOp):
                found = found.union(*(self.depends.get(value, ()) for value in op.args))
            op = op.parent_op()
        return found

    def _is_transposed(self, op: Operation, along: Loop) -> bool:
        """Whether lanes load from rows of a matrix, along which the innermost loop runs."""
        access = self.accesses[op]
        if not isinstance(op, affine.LoadOp) or along not in access.loops:
            return False
        step = access.coefficient(self.variables[along])
        return step not in (0, 1, None) and self._in_rows(access)

    def _in_rows(self, access: Access) -> bool:
        """Whether the innermost loop is a sum along consecutive elements."""
        inner = access.loops[-1]
        long_enough = self.extents[inner] >= self.vectors.lanes
        consecutive = access.coefficient(self.variables[inner]) == 1
        return bool(inner.inits) and long_enough and consecutive

    def may_vectorise(self, loop: Loop) -> bool:
        """Whether iterations can be lanes: independent, and alike in all guards."""
        if not self.may_copy(loop) or self.extents[loop] < 2:
            return False
        variable = loop.body.block.args[0]
        return not any(
            isinstance(op, affine.IfOp)
            and any(loop in self.depends.get(operand, ()) for operand in op.args)
            for op in loop.walk()
        ) and bool(variable.uses.get_length())

    def may_copy(self, loop: Loop) -> bool:
        """Whether iterations can run together: what each stores is its own.

        A workspace may be shared by the iterations of a loop around it.
        """
        if loop.inits:
            return False
        return all(
            access.coefficient(self.variables[loop]) != 0
            for op, access in self.accesses.items()
            if loop in access.loops and isinstance(op, affine.StoreOp | memref.StoreOp)
        )

    def sums(self) -> Iterator[Loop]:
        """The reductions that are in no other one."""
        for op, loops in self.around.items():
            if isinstance(op, affine.ForOp) and op.inits and not any(one.inits for one in loops):
                yield op

    def _weight(self, loop: Loop) -> float:
        inner = max(
            prod(self.extents[one] for one in self.around[op]) for op in loop.body.block.ops
        )
        for op in loop.walk():
            inner = max(inner, prod(self.extents[one] for one in self.around.get(op, ())))
        return inner

    def _is_dense(self, loop: Loop) -> bool:
        """Whether the sum takes far longer than what is done with it."""
        return self._weight(loop) >= 32 * prod(self.extents[one] for one in self.around[loop])

    def _vectors_of(self, loop: Loop, lanes: set[Loop]) -> int:
        # Fewer elements than lanes are one vector as well.
        return max(self.extents[loop] // (self.vectors.lanes if loop in lanes else 1), 1)

    def _innermost(self, loop: Loop) -> Loop:
        """The loop inside a sum that runs most often."""
        inner = [op for op in loop.walk() if isinstance(op, affine.ForOp)]
        return max(inner, key=lambda one: prod(self.extents[o] for o in (*self.around[one], one)))

    def _is_vector(self, op: Operation, along: Loop | None) -> bool:
        return along is not None and self._varies(op, along)

    def _chain(self, inner: Loop) -> int:
        """Operations from what a loop carries to what it hands on."""
        longest = 1
        depth: dict[SSAValue, int] = dict.fromkeys(inner.body.block.args[1:], 0)
        for op in inner.body.block.ops:
            found = [depth[operand] for operand in op.operands if operand in depth]
            if found and op.results and not op.regions:
                for result in op.results:
                    depth[result] = max(found) + 1
                longest = max(longest, max(found) + 1)
        return longest
