"""Index maps of StableHLO operations: which operand elements make up the element at an index.

`movement` covers the operations that only rename elements. `Reduction` describes the operations
that fold many elements into one: the axes they run over in the order that poetc fixes for every
target, and what they read at each position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import i32, i64
from xdsl.ir import Block, Operation, SSAValue

from poetc.ir import stablehlo
from poetc.ir.stablehlo import element_type_of, shape_of
from poetc.kernels.index import NEVER, ZERO, Condition, Index, constant, holds, reshape, within

Indices = Sequence[Index]
Read = tuple[SSAValue, list[Index]]

REDUCTIONS = (
    stablehlo.ReduceOp,
    stablehlo.DotBase,
    stablehlo.ConvolutionBase,
    stablehlo.ReduceWindowOp,
    stablehlo.SelectAndScatterOp,
    stablehlo.ScatterOp,
    stablehlo.FoldOp,
)


@dataclass(frozen=True)
class Axis:
    """A sequential loop of a reduction; positions that fail the guard contribute nothing."""

    key: object
    extent: int
    name: str
    guard: Callable[[Index], list[Condition]] | None = None

    def conditions(self, position: Index) -> list[Condition]:
        """What has to hold at a position for it to contribute."""
        return self.guard(position) if self.guard is not None else []


@dataclass(frozen=True)
class Move:
    """The element is `source[indices]` where the conditions hold, else that of `otherwise`."""

    source: SSAValue
    indices: list[Index]
    conditions: list[Condition]
    otherwise: Read | None = None


def elementwise_at(operand: SSAValue, at: Indices) -> Indices:
    """Which element of an operand of an element-wise operation the result element `at` needs: that
    in the same place, or the only one of a scalar."""
    return at if shape_of(operand) else ()


def movement(op: Operation, at: Indices) -> list[Move] | None:
    """Where the element of a data-movement operation comes from: the first move whose conditions
    hold. None for other operations."""
    match op:
        case stablehlo.BroadcastInDimOp():
            shape = shape_of(op.operand)
            indices = [
                ZERO if size == 1 else at[dim] for size, dim in zip(shape, op.dims, strict=True)
            ]
            return [Move(op.operand, indices, [])]
        case stablehlo.ReshapeOp():
            indices = reshape(at, shape_of(op.result), shape_of(op.operand))
            return [Move(op.operand, indices, [])]
        case stablehlo.TransposeOp():
            indices = [ZERO] * len(at)
            for index, dim in zip(at, op.permutation, strict=True):
                indices[dim] = index
            return [Move(op.operand, indices, [])]
        case stablehlo.ReverseOp():
            indices = list(at)
            for dim in op.dims:
                indices[dim] = constant(shape_of(op.result)[dim] - 1) - at[dim]
            return [Move(op.operand, indices, [])]
        case stablehlo.SliceOp():
            indices = [
                index * stride + start
                for index, start, stride in zip(at, op.starts, op.strides, strict=True)
            ]
            return [Move(op.operand, indices, [])]
        case stablehlo.PadOp():
            indices, conditions = [], []
            for index, size, low, gap in zip(
                at, shape_of(op.operand), op.low, op.interior, strict=True
            ):
                position, needed = tap(index, ZERO, size, low=low, base_dilation=gap + 1)
                indices.append(position)
                conditions += needed
            return [
                Move(op.operand, indices, conditions),
                Move(op.padding_value, [], []),
            ]
        case stablehlo.ConcatenateOp():
            moves, start = [], 0
            for operand in op.inputs:
                size = shape_of(operand)[op.dim]
                indices = list(at)
                indices[op.dim] = at[op.dim] - start
                moves.append(Move(operand, indices, list(within(indices[op.dim], size))))
                start += size
            # The last input is what remains.
            moves[-1] = Move(moves[-1].source, moves[-1].indices, [])
            return [move for move in moves if 0 not in shape_of(move.source)] or moves
    return None


def counted(value: SSAValue, at: Indices) -> Index | None:
    """The position that the element of a tensor of integers is equal to, where it is counted or
    constant; None where it is not, or depends on memory."""
    while isinstance(op := value.owner, Operation):
        if element_type_of(value) not in (i32, i64):
            return None
        if isinstance(op, stablehlo.IotaOp):
            return at[op.dim]
        if isinstance(op, stablehlo.ConstantOp):
            array = op.array()
            one = array.flat[0] if array.size and (array == array.flat[0]).all() else None
            return None if one is None or abs(int(one)) >= 1 << 31 else constant(int(one))
        if isinstance(op, stablehlo.ConvertOp):
            value = op.operand
            continue
        moves = movement(op, at) or []
        possible = [m for m in moves if not any(c.negative() for c in m.conditions)]
        if not possible or not all(holds(c, ()) for c in possible[0].conditions):
            return None
        value, at = possible[0].source, possible[0].indices
    return None


def tap(
    out: Index,
    k: Index,
    size: int,
    *,
    stride: int = 1,
    low: int = 0,
    base_dilation: int = 1,
    window_dilation: int = 1,
) -> tuple[Index, list[Condition]]:
    """The input position that window position `k` of output `out` reads along one dimension, and
    the conditions for it to be neither in the padding nor in a dilation hole."""
    if not size:
        return ZERO, [NEVER]
    position = out * stride + k * window_dilation - low
    conditions = [Condition(position), Condition(constant((size - 1) * base_dilation) - position)]
    if base_dilation > 1:
        conditions.append(Condition(position % base_dilation, equal=True))
    return position // base_dilation, conditions


class Reduction:
    """Axes of a reduction for the result element `at`, and what it reads at positions on them."""

    def __init__(self, op: Operation, at: Indices) -> None:
        self.op = op
        self.at = list(at)

    @property
    def axes(self) -> list[Axis]:
        """The sequential loops, outermost first."""
        raise NotImplementedError

    def reads(self, positions: Indices) -> list[Read]:
        """The operand elements that are combined at `positions` on the axes."""
        raise NotImplementedError

    @property
    def start(self) -> Read | None:
        """The operand element that a contraction starts from; None if that is zero."""
        if isinstance(self.op, stablehlo.DotFromOp | stablehlo.ConvolutionFromOp):
            return self.op.init, self.at
        return None


class _Reduce(Reduction):
    op: stablehlo.ReduceOp | stablehlo.FoldOp

    @property
    def _inputs(self) -> Sequence[SSAValue]:
        return self.op.inputs if isinstance(self.op, stablehlo.FoldOp) else [self.op.operand]

    @property
    def axes(self) -> list[Axis]:
        shape = shape_of(self._inputs[0])
        return [Axis((self.op, dim), shape[dim], "r") for dim in sorted(self.op.dims)]

    def reads(self, positions: Indices) -> list[Read]:
        kept, folded = iter(self.at), iter(positions)
        rank = len(shape_of(self._inputs[0]))
        at = [next(folded if d in self.op.dims else kept) for d in range(rank)]
        return [(operand, at) for operand in self._inputs]


class _Dot(Reduction):
    op: stablehlo.DotBase

    @property
    def axes(self) -> list[Axis]:
        shape = shape_of(self.op.lhs)
        return [Axis((self.op, dim), shape[dim], "r") for dim in self.op.lhs_contract]

    def reads(self, positions: Indices) -> list[Read]:
        op = self.op
        batch = self.at[: len(op.lhs_batch)]
        free = iter(self.at[len(op.lhs_batch) :])
        reads: list[Read] = []
        for operand, batch_dims, contract in (
            (op.lhs, op.lhs_batch, op.lhs_contract),
            (op.rhs, op.rhs_batch, op.rhs_contract),
        ):
            known = dict(zip(batch_dims, batch, strict=True))
            known |= dict(zip(contract, positions, strict=True))
            rank = len(shape_of(operand))
            reads.append((operand, [known[d] if d in known else next(free) for d in range(rank)]))
        return reads


class _Convolution(Reduction):
    op: stablehlo.ConvolutionBase

    def _tap(self, i: int, k: Index) -> tuple[Index, list[Condition]]:
        op, dims = self.op, self.op.dims
        return tap(
            self.at[dims.output_spatial[i]],
            k,
            shape_of(op.lhs)[dims.input_spatial[i]],
            stride=op.strides[i],
            low=op.padding[i][0],
            base_dilation=op.lhs_dilation[i],
            window_dilation=op.rhs_dilation[i],
        )

    @property
    def axes(self) -> list[Axis]:
        dims, kernel = self.op.dims, shape_of(self.op.rhs)
        names = ("kh", "kw") if len(dims.kernel_spatial) == 2 else ("k",) * len(dims.kernel_spatial)

        def guard(i: int) -> Callable[[Index], list[Condition]]:
            return lambda k: self._tap(i, k)[1]

        spatial = [
            Axis((self.op, i), kernel[dim], names[i], guard(i))
            for i, dim in enumerate(dims.kernel_spatial)
        ]
        return [*spatial, Axis((self.op, "c"), kernel[dims.kernel_input_feature], "c")]

    def reads(self, positions: Indices) -> list[Read]:
        op, dims = self.op, self.op.dims
        *taps, channel = positions
        image, kernel = shape_of(op.lhs), shape_of(op.rhs)
        feature = self.at[dims.output_feature]
        features = kernel[dims.kernel_output_feature]
        lhs = [ZERO] * len(image)
        rhs = [ZERO] * len(kernel)
        lhs[dims.input_batch] = self.at[dims.output_batch]
        lhs[dims.input_feature] = channel
        if op.feature_groups > 1:
            group = feature // (features // op.feature_groups)
            lhs[dims.input_feature] += group * kernel[dims.kernel_input_feature]
        if op.batch_groups > 1:
            group = feature // (features // op.batch_groups)
            lhs[dims.input_batch] += group * (image[dims.input_batch] // op.batch_groups)
        rhs[dims.kernel_input_feature] = channel
        rhs[dims.kernel_output_feature] = feature
        for i, k in enumerate(taps):
            lhs[dims.input_spatial[i]] = self._tap(i, k)[0]
            dim = dims.kernel_spatial[i]
            rhs[dim] = constant(kernel[dim] - 1) - k if op.reversal[i] else k
        return [(op.lhs, lhs), (op.rhs, rhs)]


class _ReduceWindow(Reduction):
    op: stablehlo.ReduceWindowOp

    def _tap(self, i: int, k: Index) -> tuple[Index, list[Condition]]:
        op = self.op
        return tap(
            self.at[i],
            k,
            shape_of(op.operand)[i],
            stride=op.strides[i],
            low=op.padding[i][0],
            base_dilation=op.base_dilations[i],
            window_dilation=op.window_dilations[i],
        )

    @property
    def axes(self) -> list[Axis]:
        def guard(i: int) -> Callable[[Index], list[Condition]]:
            return lambda k: self._tap(i, k)[1]

        return [Axis((self.op, i), n, "w", guard(i)) for i, n in enumerate(self.op.window)]

    def reads(self, positions: Indices) -> list[Read]:
        return [(self.op.operand, [self._tap(i, k)[0] for i, k in enumerate(positions)])]


class SelectAndScatter(Reduction):
    """The axes run over the windows that contain the element, in row-major order of the source.

    Along one dimension, element i is in window s when `0 <= i + low - s*stride < window`: at most
    `ceil(window / stride)` windows, ending with `(i + low) floordiv stride`.
    """

    op: stablehlo.SelectAndScatterOp

    def source_index(self, i: int, t: Index) -> Index:
        """The window that candidate `t` along dimension `i` stands for."""
        op = self.op
        candidates = -(-op.window[i] // op.strides[i])
        last = (self.at[i] + op.padding[i][0]) // op.strides[i]
        return last + t - (candidates - 1)

    def offset(self, i: int, source: Index) -> Index:
        """Where the element lies in window `source` along dimension `i`."""
        return self.at[i] + self.op.padding[i][0] - source * self.op.strides[i]

    @property
    def axes(self) -> list[Axis]:
        op = self.op
        sizes = shape_of(op.source)

        def guard(i: int) -> Callable[[Index], list[Condition]]:
            def conditions(t: Index) -> list[Condition]:
                source = self.source_index(i, t)
                inside = Condition(constant(op.window[i] - 1) - self.offset(i, source))
                return [*within(source, sizes[i]), inside]

            return conditions

        return [
            Axis((op, "source", i), -(-n // op.strides[i]), "s", guard(i))
            for i, n in enumerate(op.window)
        ]

    def reaches_padding(self) -> bool:
        """Whether some window has positions outside the operand."""
        op = self.op
        return any(
            low > 0 or (windows - 1) * stride - low + extent > size
            for windows, size, extent, stride, (low, _) in zip(
                shape_of(op.source),
                shape_of(op.operand),
                op.window,
                op.strides,
                op.padding,
                strict=True,
            )
        )

    def window_axes(self, source: Indices) -> list[Axis]:
        """The scan of the window `source`."""
        op = self.op

        def guard(i: int) -> Callable[[Index], list[Condition]]:
            return lambda w: self._tap(i, source, w)[1]

        return [Axis((op, "window", i), n, "w", guard(i)) for i, n in enumerate(op.window)]

    def _tap(self, i: int, source: Indices, w: Index) -> tuple[Index, list[Condition]]:
        op = self.op
        size = shape_of(op.operand)[i]
        return tap(source[i], w, size, stride=op.strides[i], low=op.padding[i][0])

    def window_read(self, source: Indices, window: Indices) -> Read:
        """The element at `window` in the window `source`."""
        return self.op.operand, [self._tap(i, source, w)[0] for i, w in enumerate(window)]

    def reads(self, positions: Indices) -> list[Read]:
        source = [self.source_index(i, t) for i, t in enumerate(positions)]
        # Any position of the window will do for seeing what the reduction depends on.
        return [(self.op.source, source), self.window_read(source, [ZERO] * len(source))]


class Scatter(Reduction):
    """The axes run over the scatter indices in row-major order, without those that a batching
    dimension ties to the element's own index."""

    op: stablehlo.ScatterOp

    def __init__(self, op: Operation, at: Indices) -> None:
        super().__init__(op, at)
        dnums = self.op.dnums
        rank = len(shape_of(self.op.updates))
        self.scatter_dims = [d for d in range(rank) if d not in dnums.update_window_dims]
        self.tied: dict[int, Index] = {}
        for operand_dim, indices_dim in zip(
            dnums.input_batching_dims, dnums.scatter_indices_batching_dims, strict=True
        ):
            self.tied[indices_dim - (indices_dim > dnums.index_vector_dim)] = self.at[operand_dim]

    @property
    def axes(self) -> list[Axis]:
        shape = shape_of(self.op.updates)
        return [
            Axis((self.op, i), shape[dim], "s")
            for i, dim in enumerate(self.scatter_dims)
            if i not in self.tied
        ]

    def scatter_index(self, positions: Indices) -> list[Index]:
        """Position in the space of scatter indices."""
        free = iter(positions)
        return [
            self.tied[i] if i in self.tied else next(free) for i in range(len(self.scatter_dims))
        ]

    def start_read(self, scatter: Indices, component: int) -> Read:
        """The component of the start index vector for `scatter`."""
        return self.op.indices, index_vector(
            scatter, component, self.op.dnums.index_vector_dim, len(shape_of(self.op.indices))
        )

    def window_dims(self) -> dict[int, int]:
        """Operand dimension to the update dimension that runs along it."""
        dnums = self.op.dnums
        removed = {*dnums.inserted_window_dims, *dnums.input_batching_dims}
        kept = [d for d in range(len(self.at)) if d not in removed]
        return dict(zip(kept, dnums.update_window_dims, strict=True))

    def update_index(self, scatter: Indices, window: dict[int, Index]) -> list[Index]:
        """Index into the updates; `window` maps update window dimensions to positions."""
        result = [ZERO] * len(shape_of(self.op.updates))
        for dim, index in zip(self.scatter_dims, scatter, strict=True):
            result[dim] = index
        for dim, index in window.items():
            result[dim] = index
        return result

    def reads(self, positions: Indices) -> list[Read]:
        scatter = self.scatter_index(positions)
        window = {update: self.at[dim] for dim, update in self.window_dims().items()}
        count = len(self.op.dnums.scatter_dims_to_operand_dims)
        return [
            (self.op.operand, self.at),
            (self.op.updates, self.update_index(scatter, window)),
            *(self.start_read(scatter, component) for component in range(count)),
        ]


def reduction(op: Operation, at: Indices) -> Reduction:
    """The description of reduction `op` for its result element `at`."""
    match op:
        case stablehlo.ReduceOp() | stablehlo.FoldOp():
            return _Reduce(op, at)
        case stablehlo.DotBase():
            return _Dot(op, at)
        case stablehlo.ConvolutionBase():
            return _Convolution(op, at)
        case stablehlo.ReduceWindowOp():
            return _ReduceWindow(op, at)
        case stablehlo.SelectAndScatterOp():
            return SelectAndScatter(op, at)
    assert isinstance(op, stablehlo.ScatterOp)
    return Scatter(op, at)


def index_vector(batch: Indices, component: int, vector_dim: int, rank: int) -> list[Index]:
    """Index of a component of the start index vector of gather or scatter."""
    result = list(batch)
    if vector_dim < rank:
        result.insert(vector_dim, constant(component))
    return result


class Gather:
    """How the element `at` of a gather is found."""

    def __init__(self, op: stablehlo.GatherOp, at: Indices) -> None:
        self.op = op
        dnums = op.dnums
        self.batch = [i for d, i in enumerate(at) if d not in dnums.offset_dims]
        removed = {*dnums.collapsed_slice_dims, *dnums.operand_batching_dims}
        rank = len(shape_of(op.operand))
        kept = [d for d in range(rank) if d not in removed]
        self.base = [ZERO] * rank
        for dim, offset in zip(kept, dnums.offset_dims, strict=True):
            self.base[dim] = at[offset]
        for dim, indices_dim in zip(
            dnums.operand_batching_dims, dnums.start_indices_batching_dims, strict=True
        ):
            self.base[dim] = self.batch[indices_dim - (indices_dim > dnums.index_vector_dim)]

    def starts(self) -> list[tuple[int, int, Read]]:
        """(operand dimension, largest start, where the start is read), if there is a choice."""
        op, dnums = self.op, self.op.dnums
        shape, rank = shape_of(op.operand), len(shape_of(op.indices))
        result = []
        for component, dim in enumerate(dnums.start_index_map):
            limit = shape[dim] - op.slice_sizes[dim]
            if limit > 0:
                read = index_vector(self.batch, component, dnums.index_vector_dim, rank)
                result.append((dim, limit, (op.indices, read)))
        return result


def elements(value: SSAValue) -> int:
    """Number of elements of a tensor."""
    return prod(shape_of(value))


def is_costly(value: SSAValue) -> bool:
    """Whether an element costs more than a load: it is not just moved, constant or counted."""
    op = value.owner
    while isinstance(op, Operation):
        if isinstance(op, stablehlo.ConstantOp | stablehlo.IotaOp | stablehlo.PositionOp):
            return False
        if not isinstance(op, stablehlo.MovementOp) or isinstance(
            op, stablehlo.PadOp | stablehlo.ConcatenateOp
        ):
            return True
        op = op.operands[0].owner
    return not isinstance(op, Block)
