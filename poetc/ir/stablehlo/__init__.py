"""The StableHLO subset that training steps use, as an xDSL dialect (`stablehlo`) with verifiers.

Ops have the names, properties and assembly of StableHLO 1.x, in the pretty form that JAX prints and
in generic form. Constructors take plain Python values and infer result types; lower-case accessors
return plain ints, tuples and strings. All ops are pure and, but for those with regions that
`stablehlo-simplify` expands, have one result. Shapes are static; the types of elements are those in
`poetc/ir/types.py`.
Reductions over one operand have one of `REDUCERS` as their body; all others become folds.

The dialect `resume` has what StableHLO lacks: folds, and loops
whose steps are counted.
"""

from xdsl.dialects.builtin import TensorType, f32, i1, i32
from xdsl.ir import Dialect, Operation

from poetc.ir.stablehlo import (
    bits,
    chlo,
    comparison,
    constants,
    control,
    conversion,
    convolution,
    dot,
    elementwise,
    folds,
    functions,
    indexing,
    movement,
    random,
    reduction,
    repeat,
    windows,
)
from poetc.ir.stablehlo.base import (
    ELEMENT_TYPES,
    Padding,
    PrettyOp,
    StablehloOp,
    Value,
    dilated,
    element_count,
    element_type_of,
    is_float,
    padding_attr,
    shape_of,
    tensor_type,
)
from poetc.ir.stablehlo.bits import AndOp, NotOp, OrOp, ShiftRightLogicalOp, XorOp
from poetc.ir.stablehlo.chlo import (
    ChloUnaryOp,
    ErfcOp,
    ErfOp,
    SquareOp,
)
from poetc.ir.stablehlo.comparison import CompareOp, SelectOp, compared
from poetc.ir.stablehlo.composite import CompositeOp
from poetc.ir.stablehlo.constants import (
    ConstantOp,
    IotaOp,
)
from poetc.ir.stablehlo.contraction import ContractionOp
from poetc.ir.stablehlo.control import (
    BranchOp,
    CaseOp,
    ControlOp,
    IfOp,
    MapOp,
    OptimizationBarrierOp,
    ReturnOp,
    WhileOp,
)
from poetc.ir.stablehlo.conversion import BitcastConvertOp, ConvertOp, ReducePrecisionOp
from poetc.ir.stablehlo.convolution import ConvolutionOp
from poetc.ir.stablehlo.dot import DotGeneralOp
from poetc.ir.stablehlo.elementwise import (
    AbsOp,
    AddOp,
    BinaryElementwiseOp,
    ClampOp,
    DivideOp,
    ElementwiseOp,
    IsFiniteOp,
    MaximumOp,
    MinimumOp,
    MultiplyOp,
    NegateOp,
    SignOp,
    SubtractOp,
    UnaryElementwiseOp,
)
from poetc.ir.stablehlo.folds import FoldOp, SortOp, TopKOp, check_pure_body
from poetc.ir.stablehlo.functions import (
    ExponentialOp,
    LogOp,
    PowerOp,
    RsqrtOp,
    SqrtOp,
    TanhOp,
)
from poetc.ir.stablehlo.index_maps import ReductionOp
from poetc.ir.stablehlo.indexing import (
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    GatherOp,
    ScatterOp,
)
from poetc.ir.stablehlo.movement import (
    BroadcastInDimOp,
    ConcatenateOp,
    MovementOp,
    PadOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)
from poetc.ir.stablehlo.random import RngBitGeneratorOp
from poetc.ir.stablehlo.reduce_together import ReduceTogetherOp
from poetc.ir.stablehlo.reduction import (
    REDUCERS,
    ReduceOp,
    identity,
    reducer_kind,
)
from poetc.ir.stablehlo.repeat import PositionOp, RepeatOp, Stack
from poetc.ir.stablehlo.windows import ReduceWindowOp, SelectAndScatterOp
from poetc.ir.stablehlo_attributes import ATTRIBUTES, ConvDims

_FAMILIES = (
    elementwise,
    comparison,
    bits,
    conversion,
    functions,
    constants,
    movement,
    dot,
    convolution,
    reduction,
    windows,
    indexing,
    control,
    folds,
    random,
    repeat,
    chlo,
)


def _defined(dialect: str) -> list[type[Operation]]:
    """The operations of a dialect, all that the modules of this package define."""
    return [
        op
        for family in _FAMILIES
        for op in vars(family).values()
        if isinstance(op, type)
        and issubclass(op, Operation)
        and op.__module__ == family.__name__
        and getattr(op, "name", "").startswith(f"{dialect}.")
    ]


OPERATIONS = _defined("stablehlo")


StableHLO = Dialect("stablehlo", [*OPERATIONS, CompositeOp], list(ATTRIBUTES))


CHLO = Dialect("chlo", _defined("chlo"), [])


_EXPANDED: tuple[type[Operation], ...] = (
    *CHLO.operations,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    WhileOp,
    IfOp,
    CaseOp,
    MapOp,
    OptimizationBarrierOp,
    SortOp,
    RngBitGeneratorOp,
)


def is_expanded(op: Operation) -> bool:
    """Whether `stablehlo-simplify` puts others in place of the operation: nothing after it knows
    it."""
    return isinstance(op, _EXPANDED) or (isinstance(op, BitcastConvertOp) and not op.is_in_place)


Resume = Dialect("resume", _defined("resume"), [])
