"""Reads and sums at computed positions."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar

from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, i1
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.irdl import (
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer

from poetc.ir import types
from poetc.ir.index import ZERO, Index, constant
from poetc.ir.stablehlo import semantics
from poetc.ir.stablehlo.base import (
    INTS,
    Along,
    Array,
    FloatFacts,
    Fuses,
    Head,
    PrettyOp,
    StablehloOp,
    Value,
    Walk,
    check,
    check_dims,
    check_elements,
    check_rank,
    check_type,
    element_type_of,
    i64s,
    ints,
    parse_operands,
    print_named_dims,
    resized,
    shape_of,
    tensor_type,
    with_shape,
)
from poetc.ir.stablehlo.bodies import body_key, check_body, run_body
from poetc.ir.stablehlo.control import ReturnOp
from poetc.ir.stablehlo.index_maps import Axis, Indices, Read, Reduction, ReductionOp
from poetc.ir.stablehlo.reduction import reducer_body, reducer_kind
from poetc.ir.stablehlo_attributes import (
    Dims,
    GatherDims,
    GatherDimsAttr,
    ScatterDims,
    ScatterDimsAttr,
    parse_dims,
)


def _without(dims: Iterator[int] | Sequence[int], removed: Sequence[int]) -> list[int]:
    return [d for d in dims if d not in removed]


def _batch_shape(indices: Value, index_vector_dim: int) -> list[int]:
    """Shape of the indices without the dimension that holds the index vectors."""
    return [n for d, n in enumerate(shape_of(indices)) if d != index_vector_dim]


def _gather_type(
    operand: Value, indices: Value, dnums: GatherDims, slice_sizes: Dims
) -> TensorType:
    batch = iter(_batch_shape(indices, dnums.index_vector_dim))
    dropped = dnums.collapsed_slice_dims + dnums.operand_batching_dims
    window = iter([n for d, n in enumerate(slice_sizes) if d not in dropped])
    rank = len(_batch_shape(indices, dnums.index_vector_dim)) + len(dnums.offset_dims)
    shape = [next(window if d in dnums.offset_dims else batch) for d in range(rank)]
    return with_shape(operand, shape)


def _check_indices(
    operand: SSAValue,
    indices: SSAValue,
    index_map: Dims,
    index_vector_dim: int,
    operand_batching: Dims,
    indices_batching: Dims,
) -> None:
    """The checks of the index tensor that gather and scatter share."""
    check_elements("indices", indices, types.with_arithmetic("signed", "unsigned"))
    shape, rank = shape_of(indices), len(shape_of(operand))
    check(
        0 <= index_vector_dim <= len(shape),
        f"index_vector_dim = {index_vector_dim} is outside {indices.type}",
    )
    length = 1 if index_vector_dim == len(shape) else shape[index_vector_dim]
    check(
        length == len(index_map),
        f"index vectors have {length} elements for {len(index_map)} operand dimensions",
    )
    check_dims("index map", index_map, rank)
    check_dims("operand batching dimensions", operand_batching, rank)
    check_dims("indices batching dimensions", indices_batching, len(shape))
    sizes = [shape_of(operand)[d] for d in operand_batching]
    check(
        index_vector_dim not in indices_batching and sizes == [shape[d] for d in indices_batching],
        "batching dimensions of operand and indices differ",
    )


@irdl_op_definition
class GatherOp(StablehloOp):
    """Slices of the operand at computed, clamped positions."""

    FUSES: ClassVar = Fuses.LOOKUP
    name = "stablehlo.gather"
    operand = operand_def(TensorType)
    indices = operand_def(TensorType)
    dimension_numbers = prop_def(GatherDimsAttr)
    slice_sizes_attr = prop_def(INTS, prop_name="slice_sizes")
    indices_are_sorted = opt_prop_def(BoolAttr)

    def __init__(
        self, operand: Value, indices: Value, dnums: GatherDims, slice_sizes: Sequence[int]
    ):
        self._init(
            [operand, indices],
            _gather_type(operand, indices, dnums, tuple(slice_sizes)),
            {
                "dimension_numbers": GatherDimsAttr(dnums),
                "slice_sizes": i64s(slice_sizes),
                "indices_are_sorted": IntegerAttr(0, i1),
            },
        )

    @property
    def dnums(self) -> GatherDims:
        """Dimension numbers."""
        return self.dimension_numbers.data

    @property
    def slice_sizes(self) -> Dims:
        """Size of the slices in each operand dimension."""
        return ints(self.slice_sizes_attr)

    def verify_op(self) -> None:
        dnums, shape = self.dnums, shape_of(self.operand)
        _check_indices(
            self.operand,
            self.indices,
            dnums.start_index_map,
            dnums.index_vector_dim,
            dnums.operand_batching_dims,
            dnums.start_indices_batching_dims,
        )
        dropped = dnums.collapsed_slice_dims + dnums.operand_batching_dims
        check_dims("collapsed and batching dimensions", dropped, len(shape))
        check_rank("slice_sizes", self.slice_sizes, len(shape))
        for d, size in enumerate(self.slice_sizes):
            limit = 1 if d in dropped else shape[d]
            check(0 <= size <= limit, f"slice size {size} of dimension {d} exceeds {limit}")
        batch = _batch_shape(self.indices, dnums.index_vector_dim)
        check_rank("offset_dims", dnums.offset_dims, len(shape) - len(dropped))
        check_dims("offset_dims", dnums.offset_dims, len(batch) + len(dnums.offset_dims))
        self._verify_result(_gather_type(self.operand, self.indices, dnums, self.slice_sizes))

    @property
    def offsets(self) -> dict[int, int]:
        """Result dimension to the operand dimension that it runs along, from a start on."""
        dnums = self.dnums
        dropped = dnums.collapsed_slice_dims + dnums.operand_batching_dims
        kept = _without(range(len(shape_of(self.operand))), dropped)
        return dict(zip(dnums.offset_dims, kept, strict=True))

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        return facts.never_negative_zero(self.operand)

    def along(self, dim: int) -> Walk | None:
        source = self.offsets.get(dim)
        if source is None:
            return None
        whole = self.slice_sizes[source] == shape_of(self.operand)[source]
        return (Along(source), None) if whole else None

    def _piece_properties(self, dim: int, start: int, size: int) -> dict[str, Attribute]:
        return {"slice_sizes": resized(self.slice_sizes, self.offsets[dim], size)}

    def evaluate(self, *operands: Array) -> Array:
        x, indices = operands
        return semantics.gather(x, indices, self.dnums, self.slice_sizes)


def _index_vector(batch: Indices, component: int, vector_dim: int, rank: int) -> list[Index]:
    """Index of a component of the start index vector of gather or scatter."""
    result = list(batch)
    if vector_dim < rank:
        result.insert(vector_dim, constant(component))
    return result


class Gather:
    """How the element `at` of a gather is found."""

    def __init__(self, op: GatherOp, at: Indices) -> None:
        self.op = op
        dnums = op.dnums
        self.batch = [i for d, i in enumerate(at) if d not in dnums.offset_dims]
        self.base = [ZERO] * len(shape_of(op.operand))
        for offset, dim in op.offsets.items():
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
                read = _index_vector(self.batch, component, dnums.index_vector_dim, rank)
                result.append((dim, limit, (op.indices, read)))
        return result


def _replacing_body(element_type: Attribute) -> Region:
    """Body that returns its second argument, the update."""
    scalar = TensorType(element_type, ())
    block = Block(arg_types=(scalar, scalar))
    block.add_op(ReturnOp(block.args[1]))
    return Region(block)


def _is_replacing(body: Region) -> bool:
    if len(body.blocks) != 1 or len(body.block.args) != 2:
        return False
    end = body.block.last_op
    return isinstance(end, ReturnOp) and tuple(end.operands) == (body.block.args[1],)


@irdl_op_definition
class ScatterOp(ReductionOp):
    """The operand, with windows of updates put in at computed positions, one after the other, as
    the body says. A window that is not wholly inside is left out."""

    FUSES: ClassVar = Fuses.ANCHOR
    name = "stablehlo.scatter"
    operand = operand_def(TensorType)
    indices = operand_def(TensorType)
    updates = operand_def(TensorType)
    scatter_dimension_numbers = prop_def(ScatterDimsAttr)
    indices_are_sorted = opt_prop_def(BoolAttr)
    unique_indices = opt_prop_def(BoolAttr)
    body = region_def()

    def __init__(
        self, operand: Value, indices: Value, updates: Value, dnums: ScatterDims, kind: str = "add"
    ):
        self._init(
            [operand, indices, updates],
            tensor_type(operand),
            {
                "scatter_dimension_numbers": ScatterDimsAttr(dnums),
                "indices_are_sorted": IntegerAttr(0, i1),
                "unique_indices": IntegerAttr(0, i1),
            },
            [
                _replacing_body(element_type_of(operand))
                if kind == "replace"
                else reducer_body(kind, element_type_of(operand))
            ],
        )

    @property
    def dnums(self) -> ScatterDims:
        """Dimension numbers."""
        return self.scatter_dimension_numbers.data

    @property
    def kind(self) -> str | None:
        """How operand and update are combined: a key of `REDUCERS`, or "replace"; None for other
        arithmetic."""
        return "replace" if _is_replacing(self.body) else reducer_kind(self.body)

    @property
    def window_dims(self) -> dict[int, int]:
        """Operand dimension to the update dimension that runs along it."""
        dnums = self.dnums
        removed = dnums.inserted_window_dims + dnums.input_batching_dims
        kept = _without(range(len(shape_of(self.operand))), removed)
        return dict(zip(kept, dnums.update_window_dims, strict=True))

    def verify_op(self) -> None:
        dnums, shape = self.dnums, shape_of(self.operand)
        _check_indices(
            self.operand,
            self.indices,
            dnums.scatter_dims_to_operand_dims,
            dnums.index_vector_dim,
            dnums.input_batching_dims,
            dnums.scatter_indices_batching_dims,
        )
        scalar = with_shape(self.operand, ())
        check_body(self.body, (scalar, scalar), (scalar,))
        dropped = dnums.inserted_window_dims + dnums.input_batching_dims
        check_dims("inserted and batching dimensions", dropped, len(shape))
        updates = shape_of(self.updates)
        window_dims = dnums.update_window_dims
        check_type("updates", self.updates.type, with_shape(self.operand, updates))
        check_dims("update_window_dims", window_dims, len(updates))
        check_rank("update_window_dims", window_dims, len(shape) - len(dropped))
        batch = [updates[d] for d in _without(range(len(updates)), window_dims)]
        expected = _batch_shape(self.indices, dnums.index_vector_dim)
        check(
            batch == expected,
            f"updates {self.updates.type} do not fit indices {self.indices.type}",
        )
        for d, w in zip(_without(range(len(shape)), dropped), window_dims, strict=True):
            check(
                updates[w] <= shape[d],
                f"update window of {updates[w]} exceeds operand dimension {d} of size {shape[d]}",
            )
        self._verify_result(tensor_type(self.operand))

    def reduction(self, at: Indices) -> Scatter:
        return Scatter(self, at)

    def lacks_negative_zero(self, facts: FloatFacts) -> bool:
        never = facts.never_negative_zero
        of_both = self.kind in ("replace", "maximum", "minimum") and never(self.updates)
        return never(self.operand) and (self.kind == "add" or of_both)

    def reads_each(self, index: int) -> float:
        return math.inf if index else 1.0

    def along(self, dim: int) -> Walk | None:
        shape, windows = shape_of(self.operand), self.window_dims
        if dim not in windows or dim in self.dnums.scatter_dims_to_operand_dims:
            return None
        update = windows[dim]
        if shape_of(self.updates)[update] != shape[dim]:
            return None
        return Along(dim), None, Along(update)

    def bodies_key(self) -> Hashable:
        return body_key(self.body.block)

    def evaluate(self, *operands: Array) -> Array:
        x, indices, updates = operands
        kind = self.kind

        def combine(old: Array, update: Array) -> Array:
            return run_body(self.body.block, [old, update])[0]

        how = kind if kind in ("add", "replace") and x.dtype.kind != "b" else combine
        return semantics.scatter(x, indices, updates, self.dnums, how)


class Scatter(Reduction):
    """The axes run over the scatter indices in row-major order, without those that a batching
    dimension ties to the element's own index."""

    op: ScatterOp

    def __init__(self, op: ScatterOp, at: Indices) -> None:
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
        return self.op.indices, _index_vector(
            scatter, component, self.op.dnums.index_vector_dim, len(shape_of(self.op.indices))
        )

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
        window = {update: self.at[dim] for dim, update in self.op.window_dims.items()}
        count = len(self.op.dnums.scatter_dims_to_operand_dims)
        return [
            (self.op.operand, self.at),
            (self.op.updates, self.update_index(scatter, window)),
            *(self.start_read(scatter, component) for component in range(count)),
        ]


def _parse_operands_until(parser: Parser, keyword: str | None) -> list[UnresolvedOperand]:
    """Parse operands, at least one, to the last, or to the comma before a keyword."""
    operands = parse_operands(parser, 1)
    while parser.parse_optional_punctuation(",") is not None:
        if keyword is not None and parser.parse_optional_keyword(keyword) is not None:
            return operands
        operands += parse_operands(parser, 1)
    if keyword is not None:
        parser.raise_error(f"expected ', {keyword}'")
    return operands


class _DynamicWindowOp(PrettyOp):
    """A window of an operand at scalar starts, one for each dimension, which are moved so that the
    window lies inside."""

    operand = operand_def(TensorType)
    start_indices = var_operand_def(TensorType)

    @property
    def sizes(self) -> Dims:
        """Size of the window in each dimension."""
        raise NotImplementedError

    @property
    def limits(self) -> Dims:
        """The largest start in each dimension."""
        pairs = zip(shape_of(self.operand), self.sizes, strict=True)
        return tuple(n - size for n, size in pairs)

    def _window(self, starts: Sequence[Array]) -> tuple[slice, ...]:
        clamped = [
            min(max(int(start), 0), limit) for start, limit in zip(starts, self.limits, strict=True)
        ]
        return tuple(slice(s, s + n) for s, n in zip(clamped, self.sizes, strict=True))

    def _check_window(self) -> None:
        shape = shape_of(self.operand)
        check_rank("sizes of the window", self.sizes, len(shape))
        check_rank("start indices", self.start_indices, len(shape))
        for d, start in enumerate(self.start_indices):
            check_elements(f"start {d}", start, types.with_arithmetic("signed", "unsigned"))
            check_type(f"start {d}", start.type, with_shape(start, ()))
        for d, (size, limit) in enumerate(zip(self.sizes, shape, strict=True)):
            check(0 <= size <= limit, f"window size {size} of dimension {d} exceeds {limit}")


@irdl_op_definition
class DynamicSliceOp(_DynamicWindowOp):
    """A window of the operand at computed, clamped starts."""

    name = "stablehlo.dynamic_slice"
    slice_sizes = prop_def(INTS)

    def __init__(self, operand: Value, starts: Sequence[Value], sizes: Sequence[int]):
        self._init([operand, starts], with_shape(operand, sizes), {"slice_sizes": i64s(sizes)})

    @property
    def sizes(self) -> Dims:
        return ints(self.slice_sizes)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        operands = _parse_operands_until(parser, "sizes")
        parser.parse_punctuation("=")
        return operands, {"slice_sizes": i64s(parse_dims(parser))}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)
        print_named_dims(printer, "sizes", self.sizes)

    def verify_op(self) -> None:
        self._check_window()
        self._verify_result(with_shape(self.operand, self.sizes))

    def evaluate(self, *operands: Array) -> Array:
        x, *starts = operands
        return x[self._window(starts)]


@irdl_op_definition
class DynamicUpdateSliceOp(_DynamicWindowOp):
    """The operand with a window at computed, clamped starts replaced."""

    name = "stablehlo.dynamic_update_slice"
    operand = operand_def(TensorType)
    update = operand_def(TensorType)
    start_indices = var_operand_def(TensorType)

    def __init__(self, operand: Value, update: Value, starts: Sequence[Value]):
        self._init([operand, update, starts], tensor_type(operand))

    @property
    def sizes(self) -> Dims:
        return shape_of(self.update)

    @classmethod
    def parse_head(cls, parser: Parser) -> Head:
        return _parse_operands_until(parser, None), {}

    def print_head(self, printer: Printer) -> None:
        self._print_operands(printer)

    def verify_op(self) -> None:
        check_type("update", self.update.type, with_shape(self.operand, self.sizes))
        self._check_window()
        self._verify_result(tensor_type(self.operand))

    def evaluate(self, *operands: Array) -> Array:
        x, update, *starts = operands
        result = x.copy()
        result[self._window(starts)] = update
        return result
