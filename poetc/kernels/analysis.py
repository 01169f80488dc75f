"""The work of a lowered kernel, and whether a result may take over an operand's buffer.

Both read nothing but the function (docs/kernels.md says what it may contain) and neither runs it:
work is counted from trip counts, aliasing is proven from index maps. A kernel may also come from
the text of a user, so what is not as our own lowering makes it is an InputError that says where.

Dimensions and symbols of maps and sets are the same here (access.py says why).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from math import prod

import numpy as np
from xdsl.dialects import affine, arith, func, math, memref
from xdsl.dialects.builtin import IntegerAttr, MemRefType, TensorType
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import (
    AffineConstraintExpr,
    AffineExpr,
    AffineSet,
)

from poetc.errors import InputError
from poetc.ir import mathlib
from poetc.ir.buffers import buffer_type, element_bytes
from poetc.ir.dataflow import computed_from
from poetc.ir.locations import source_location
from poetc.kernels.access import Linear, Place, holds, places_of, tile_of, tiles_of
from poetc.kernels.addresses import (
    COPIES,
    IN_ALL,
    SEQUENTIAL,
    all_pinned,
    extent,
    extent_of,
    never_equal,
    tile_start,
)
from poetc.kernels.counting import Test, passing
from poetc.kernels.dependences import dependences
from poetc.kernels.functions import BUFFERS
from poetc.kernels.lanes import lanes_of, parts_of, step_of
from poetc.kernels.together import accesses_together

# Work


@dataclass(frozen=True)
class Work:
    """The work of one run of a kernel. Counts are exact where guards are not too many to enumerate
    (more than about a million iterations of loops tied by one guard), else upper bounds."""

    adds: int = 0  # float additions, subtractions and negations
    muls: int = 0
    chained: int = 0  # of those two, in loops that hand on values from one iteration to the next
    divs: int = 0
    compares: int = 0  # float comparisons, maxima, minima and absolute values
    math: tuple[tuple[str, int], ...] = ()  # calls by the short name of the function
    int_ops: int = 0  # integer and index arithmetic, comparisons, selects and conversions
    loads: int = 0  # executed, and the bytes that they load
    load_bytes: int = 0
    stores: int = 0
    store_bytes: int = 0
    loops: int = 0  # how often one is begun
    iterations: int = 0  # of all loops
    # Of these, what the instruction of another does, in lanes of vectors or together with it:
    spared_chained: int = 0
    spared_loads: int = 0
    spared_stores: int = 0
    spared_iterations: int = 0
    guards: int = 0  # how often one is tested

    @property
    def flops(self) -> int:
        """Float operations, those inside math functions too."""
        own = self.adds + self.muls + self.divs + self.compares
        return own + sum(calls * math_flops(name) for name, calls in self.math)


_KINDS: Mapping[type[Operation], str] = {
    arith.AddfOp: "adds",
    arith.SubfOp: "adds",
    arith.NegfOp: "adds",
    arith.MulfOp: "muls",
    arith.DivfOp: "divs",
    arith.CmpfOp: "compares",
    arith.MaximumfOp: "compares",
    arith.MinimumfOp: "compares",
    math.AbsFOp: "compares",
}


@cache
def math_flops(name: str) -> int:
    """Float operations of one call of a math function, by its short name."""
    count = 0
    pending = [mathlib.symbols()[name]]
    while pending:
        for op in mathlib.function(pending.pop()).walk():
            count += type(op) in _KINDS
            if isinstance(op, func.CallOp):
                pending.append(op.callee.root_reference.data)
    return count


@dataclass(frozen=True)
class _Guard:
    """One side of an affine.if. All variables of the condition are dimensions."""

    condition: AffineSet
    operands: tuple[SSAValue, ...]
    holds: bool

    @property
    def used(self) -> frozenset[SSAValue]:
        """The operands that the condition depends on."""
        sides = (side for each in self.condition.constraints for side in (each.lhs, each.rhs))
        return frozenset(self.operands[dim] for side in sides for dim in side.used_dims())

    def passes(self, positions: Mapping[SSAValue, np.ndarray]) -> np.ndarray:
        """Where it lets pass, at positions of its operands."""
        if not self.used <= positions.keys():
            raise InputError("a guard in a kernel may depend on its loop variables only")
        nowhere = np.asarray(0)  # of operands that it does not use
        result = holds(self.condition, [positions.get(each, nowhere) for each in self.operands])
        return result if self.holds else ~result


def work(function: func.FuncOp) -> Work:
    """The work of one run of a kernel, or of a tile function for all of its tiles; InputError for a
    function that is none."""
    buffers(function, "inputs")  # raises for what is no kernel
    tally: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    starts = function.body.block.args[-len(tiles_of(function)) :] if tiles_of(function) else ()
    _tally(function.body.block, tuple(starts), (), tally, calls, _shared_by(function))
    return Work(math=tuple(sorted(calls.items())), **tally)


def _tally(
    block: Block,
    loops: tuple[SSAValue, ...],
    guards: tuple[_Guard, ...],
    tally: Counter[str],
    calls: Counter[str],
    shared: Mapping[Operation, int],
) -> None:
    times = _executions(loops, guards)
    if not times:
        return
    within = _loop_of(loops[-1]) if loops else None
    chained = within is not None and bool(within.inits)
    for op in block.ops:
        match op:
            case affine.ForOp() if COPIES in op.attributes:
                copied(op)
            case affine.ForOp():
                body = op.body.block
                inner = (*loops, body.args[0])
                is_ranged = IN_ALL in op.attributes or tile_start(op) is not None
                runs = _executions(inner, guards) if is_ranged else times * extent(op)
                tally["loops"] += times
                tally["iterations"] += runs
                tally["spared_iterations"] += runs - runs // shared.get(op, 1)
                _tally(body, inner, guards, tally, calls, shared)
            case affine.IfOp():
                tally["guards"] += times
                for region, holds in ((op.then_region, True), (op.else_region, False)):
                    guard = _Guard(_without_symbols(op.condition.data), tuple(op.args), holds)
                    for side in region.blocks:
                        _tally(side, loops, (*guards, guard), tally, calls, shared)
            case affine.LoadOp() | memref.LoadOp():
                tally["loads"] += times
                tally["spared_loads"] += times - times // shared.get(op, 1)
                tally["load_bytes"] += times * element_bytes(op.results[0].type)
            case affine.StoreOp():
                tally["stores"] += times
                tally["spared_stores"] += times - times // shared.get(op, 1)
                tally["store_bytes"] += times * element_bytes(op.value.type)
            case affine.ApplyOp():
                tally["int_ops"] += times
            case arith.ConstantOp() | affine.YieldOp() | func.ReturnOp() | memref.GetGlobalOp():
                pass
            case _ if (symbol := mathlib.symbol_of(op)) is not None:
                calls[mathlib.short_name(symbol)] += times
            case _:
                kind = _KINDS.get(type(op), "int_ops")
                tally[kind] += times
                if chained and kind in ("adds", "muls"):
                    tally["chained"] += times
                    tally["spared_chained"] += times - times // shared.get(op, 1)


_BY_ANOTHER = 1 << 62
"""Shares of what the instruction of another operation does."""


def _shared_by(function: func.FuncOp) -> dict[Operation, int]:
    """The number of iterations or accesses that share an instruction, of operations that are done
    in lanes of vectors or are loads or stores done together."""
    shared: dict[Operation, int] = {}
    loops = [op for op in function.walk() if isinstance(op, affine.ForOp)]
    depends = dependences(function) if any(lanes_of(loop) > 1 for loop in loops) else {}
    for loop in loops:
        for group in accesses_together(loop):
            shared.update(dict.fromkeys(group[1:], _BY_ANOTHER))
        lanes = lanes_of(loop)
        if lanes == 1 or extent(loop) % lanes or (parts := parts_of(loop, depends)) is None:
            continue
        shared[loop] = lanes
        for op in (each for part in parts.vectors for each in part.walk()):
            is_access = isinstance(op, affine.LoadOp | affine.StoreOp)
            if not is_access or step_of(op, loop) in ((0, 1) if op.results else (1,)):
                shared[op] = lanes
    return shared


def _loop_of(variable: SSAValue) -> affine.ForOp | None:
    """The loop of a variable; None for a start of a tile."""
    assert isinstance(variable, BlockArgument)
    loop = variable.block.parent_op()
    return loop if isinstance(loop, affine.ForOp) else None


def _executions(loops: Sequence[SSAValue], guards: Sequence[_Guard]) -> int:
    """Iterations of the loops that pass the guards."""
    # All ranges of a loop that memory bounds, and all tiles of one, are counted in one.
    within = frozenset(around for loop in loops for around in _ranges_of(loop))
    starts = {start: loop for loop in loops if (start := _start_of(loop)) is not None}

    def passes(guard: _Guard, positions: Mapping[SSAValue, np.ndarray]) -> np.ndarray:
        begun = {
            start: positions[loop] // tile * tile
            for start, loop in starts.items()
            if loop in positions and (tile := _range_of(start).step)
        }
        return guard.passes({**positions, **begun})

    tests: list[Test[SSAValue]] = []
    for guard in guards:
        sets = [guard.condition]
        if guard.holds:
            sets = [AffineSet(sets[0].num_dims, 0, (one,)) for one in sets[0].constraints]
        for one in (replace(guard, condition=condition) for condition in sets):
            used = frozenset(starts.get(operand, operand) for operand in one.used)
            if not used and not one.passes({}).all():
                return 0  # a constant
            if used and not used & within:
                tests.append((used, partial(passes, one)))
    left = [loop for loop in loops if loop not in within and loop not in starts]
    return passing({loop: _range_of(loop) for loop in left}, tests)


def _start_of(variable: SSAValue) -> SSAValue | None:
    """The start of the tile that the loop of a variable runs over."""
    loop = _loop_of(variable)
    return None if loop is None else tile_start(loop)


def _ranges_of(variable: SSAValue) -> frozenset[SSAValue]:
    """The loop variables that the bounds of a loop depend on."""
    loop = _loop_of(variable)
    if loop is None:
        return frozenset()
    bounds = computed_from((*loop.lowerBoundOperands, *loop.upperBoundOperands))
    return frozenset(
        v
        for v in bounds
        if isinstance(v, BlockArgument) and isinstance(v.owner.parent_op(), affine.ForOp)
    )


def _range_of(variable: SSAValue) -> range:
    """The values of the variable of a loop, all tiles together, or of a start."""
    loop = _loop_of(variable)
    if loop is not None:
        return range(extent_of(variable))
    assert isinstance(variable, BlockArgument)
    return range(0, *tile_of(variable))


def _without_symbols(condition: AffineSet) -> AffineSet:
    """The same set with the symbols as further dimensions; operands keep their order."""
    dims, symbols = condition.num_dims, condition.num_symbols
    further = [AffineExpr.dimension(dims + s) for s in range(symbols)]
    constraints = (
        AffineConstraintExpr(
            c.kind,
            c.lhs.replace_dims_and_symbols((), further),
            c.rhs.replace_dims_and_symbols((), further),
        )
        for c in condition.constraints
    )
    return AffineSet(dims + symbols, 0, tuple(constraints))


# Buffers

ITERATION = "poet.iteration"
"""Attribute of a part of a loop's kernel: its last argument is the number of the step."""

STARTS = "poet.starts"
"""Attribute of a tile function: for each buffer where it begins, as a map of the starts of loops,
if it is a slice; a unit if it is whole."""


def buffers(function: func.FuncOp, kind: str) -> tuple[BlockArgument, ...]:
    """The arguments of a kernel that are its "inputs", "results" or "workspace".

    Raises InputError unless `poet.inputs`, `poet.results` and `poet.workspace` count its arguments.
    """
    counts = [_count(function, name) for name in BUFFERS]
    arguments = function.body.block.args if len(function.body.blocks) == 1 else ()
    if ITERATION in function.attributes:
        arguments = arguments[:-1]
    arguments = arguments[: len(arguments) - len(tiles_of(function))]
    if len(function.body.blocks) != 1 or sum(counts) != len(arguments):
        raise _error(
            function,
            f"poet.inputs + poet.results + poet.workspace is {sum(counts)}, "
            f"it has {len(arguments)} arguments in {len(function.body.blocks)} blocks",
        )
    at = BUFFERS.index(kind)
    first = sum(counts[:at])
    return tuple(arguments[first : first + counts[at]])


def workspace_numbers(function: func.FuncOp) -> range:
    """The numbers of the arguments that are workspaces; others may stand behind."""
    first = _count(function, "inputs") + _count(function, "results")
    return range(first, first + _count(function, "workspace"))


def _count(function: func.FuncOp, name: str) -> int:
    attribute = function.attributes.get(f"poet.{name}")
    number = attribute.value.data if isinstance(attribute, IntegerAttr) else -1
    if number < 0:
        raise _error(function, f"poet.{name} must be a number of arguments, got {attribute}")
    return number


def check_call(
    function: func.FuncOp, operands: Sequence[Attribute], results: Sequence[Attribute]
) -> None:
    """Raises InputError unless a kernel takes buffers for operands and results of these types."""
    for kind, types in (("inputs", operands), ("results", results)):
        own = [buffer.type for buffer in buffers(function, kind)]
        needed = [buffer_type(type) for type in types if isinstance(type, TensorType)]
        if own != needed:
            raise _error(
                function,
                f"its {kind} are ({', '.join(map(str, own))}), "
                f"a compute that runs it needs ({', '.join(map(str, needed))})",
            )


def _error(function: func.FuncOp, message: str) -> InputError:
    return InputError(f"kernel @{function.sym_name.data}: {message}", source_location(function))


def is_sequential(function: func.FuncOp) -> bool:
    """Whether a kernel has a loop whose iterations run in order."""
    return any(SEQUENTIAL in op.attributes for op in function.walk())


def workspace_bytes(function: func.FuncOp) -> int:
    """Bytes of all workspaces of a kernel."""
    return sum(buffer_bytes(buffer) for buffer in buffers(function, "workspace"))


def buffer_bytes(buffer: SSAValue) -> int:
    """Bytes of an argument of a kernel. Raises InputError for what is not a static memref."""
    if not isinstance(buffer.type, MemRefType) or not buffer.type.has_static_shape():
        raise InputError(
            f"a buffer of a kernel must be a memref of static shape, got {buffer.type}"
        )
    return prod(buffer.type.get_shape()) * element_bytes(buffer.type.element_type)


def copied(loop: affine.ForOp) -> tuple[SSAValue, SSAValue]:
    """The buffers from which and to which a loop with `COPIES` copies; InputError for one that
    does anything else."""
    loops = [op for op in loop.walk() if isinstance(op, affine.ForOp) and not op.inits]
    inside = [op for op in loop.walk() if op not in loops and not isinstance(op, affine.YieldOp)]
    match inside:
        case [affine.LoadOp() as load, affine.StoreOp() as store] if (
            store.value is load.result
            and (store.map, list(store.indices)) == (load.map, list(load.indices))
            and store.memref.type == load.memref.type
        ):
            return load.memref, store.memref
    raise InputError(
        f"a loop with {COPIES} copies each element to its place", source_location(loop)
    )


# Aliasing


def may_alias(function: func.FuncOp, result_index: int, operand_index: int) -> bool:
    """Whether the kernel still computes the same if this result and this operand are one buffer.

    True is a proof: no element of the operand is read after the result element in its place is
    stored. For every load of the operand and every store of the result it must follow from the
    index maps that equal addresses mean equal iterations of all loops around both, and within such
    an iteration the load comes first. False means that there is no such proof. Raises InputError
    where there is no such result or operand.
    """
    result = _buffer(function, "results", result_index)
    operand = _buffer(function, "inputs", operand_index)
    if result.type != operand.type:
        return False
    stores = [op for op in _users(result) if isinstance(op, affine.StoreOp | memref.StoreOp)]
    loads = [op for op in _users(operand) if isinstance(op, affine.LoadOp | memref.LoadOp)]
    # Kernels use buffers in no other way, but a function written by hand may.
    others = [op for op in _users(operand) if op not in loads]
    others += (
        op
        for op in _users(result)
        if op not in stores and not isinstance(op, affine.LoadOp | memref.LoadOp)
    )
    if others:
        return False
    first, second = places_of(loads), places_of(stores)
    known: dict[object, _Apart] = {}
    return all(_reads_first(load, store, known) for load in first for store in second)


def _buffer(function: func.FuncOp, kind: str, index: int) -> BlockArgument:
    of_kind = buffers(function, kind)
    if not 0 <= index < len(of_kind):
        raise _error(function, f"no {index} among its {len(of_kind)} {kind}")
    return of_kind[index]


def _users(value: SSAValue) -> Iterator[Operation]:
    return (use.operation for use in value.uses)


def _reads_first(load: Place, store: Place, known: dict[object, _Apart]) -> bool:
    # Of copies of accesses many are at the same distance from each other.
    apart = (
        None if stored is None or loaded is None else stored.const - loaded.const
        for stored, loaded in zip(store.indices, load.indices, strict=True)
    )
    common = (loop.body.block.args[0] for loop in load.loops if loop in store.loops)
    variables = [*load.starts, *common]
    key = (load.form, store.form, *apart)
    if key not in known:
        maps = list(zip(store.indices, load.indices, strict=True))
        same = {*load.starts, *(v for v in variables if extent_of(v) <= 1)}
        known[key] = _Apart(maps, all_pinned(maps, variables, same))
    found = known[key]
    # In one iteration of the common loops: whichever comes first in their innermost common block.
    in_one = found.pinned.issuperset(variables)
    return (in_one and _comes_first(load.op, store.op, load.parents)) or found.never_meet


@dataclass(frozen=True)
class _Apart:
    """Indices of a store and a load in each dimension, and the loop variables that are equal where
    these are."""

    maps: Sequence[tuple[Linear | None, Linear | None]]
    pinned: set[SSAValue]

    @cached_property
    def never_meet(self) -> bool:
        """Whether the addresses are never equal."""
        return any(never_equal(stored, loaded, self.pinned) for stored, loaded in self.maps)


def _comes_first(first: Operation, second: Operation, above_first: Sequence[Operation]) -> bool:
    chain = {op.parent_block(): op for op in [first, *above_first]}
    op: Operation | None = second
    while op is not None:
        block = op.parent_block()
        if block in chain:
            other = chain[block]
            if other is op:
                # The two sides of a guard: in one iteration only one of them runs.
                return isinstance(op, affine.IfOp)
            return other.is_before_in_block(op)
        op = op.parent_op()
    return False
