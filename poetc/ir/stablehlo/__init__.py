"""The StableHLO subset that training steps use, as an xDSL dialect (`stablehlo`) with verifiers.

Ops have the names, properties and assembly of StableHLO 1.x, in the pretty form that JAX prints and
in generic form. Constructors take plain Python values and infer result types; lower-case accessors
return plain ints, tuples and strings. All ops are pure and, but for loops and branches, have one
result. Shapes are static; elements are f32, i32 or i1. Reductions run over one operand with one of
`REDUCERS` as their body.

The dialect `resume` has what StableHLO lacks: contractions that go on with sums.
"""

from xdsl.dialects.builtin import TensorType, f32, i1, i32
from xdsl.ir import Dialect, Operation

from poetc.ir.stablehlo.base import (
    ELEMENT_TYPES,
    Padding,
    PrettyOp,
    StablehloOp,
    Value,
    dilated,
    element_count,
    element_type_of,
    padding_attr,
    shape_of,
    tensor_type,
)
from poetc.ir.stablehlo.chlo import (
    ChloUnaryOp,
    ErfcOp,
    ErfOp,
    SquareOp,
)
from poetc.ir.stablehlo.constants import (
    ConstantOp,
    IotaOp,
)
from poetc.ir.stablehlo.contraction import (
    ConvolutionBase,
    ConvolutionFromOp,
    ConvolutionOp,
    DotBase,
    DotFromOp,
    DotGeneralOp,
)
from poetc.ir.stablehlo.control import (
    BranchOp,
    CaseOp,
    ControlOp,
    IfOp,
    MapOp,
    ReturnOp,
    WhileOp,
)
from poetc.ir.stablehlo.elementwise import (
    AbsOp,
    AddOp,
    AndOp,
    BinaryElementwiseOp,
    CompareOp,
    ConvertOp,
    DivideOp,
    ExponentialOp,
    IsFiniteOp,
    LogOp,
    MaximumOp,
    MinimumOp,
    MultiplyOp,
    NegateOp,
    NotOp,
    OrOp,
    PowerOp,
    RsqrtOp,
    SelectOp,
    SignOp,
    SqrtOp,
    SubtractOp,
    TanhOp,
    UnaryElementwiseOp,
    XorOp,
)
from poetc.ir.stablehlo.indexing import (
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    GatherOp,
    ScatterOp,
)
from poetc.ir.stablehlo.movement import (
    BroadcastInDimOp,
    ConcatenateOp,
    PadOp,
    ReshapeOp,
    ReverseOp,
    SliceOp,
    TransposeOp,
)
from poetc.ir.stablehlo.reduction import (
    REDUCERS,
    ReduceOp,
    ReduceWindowOp,
    SelectAndScatterOp,
    identity,
    reducer_kind,
)
from poetc.ir.stablehlo_attributes import ATTRIBUTES, ConvDims

OPERATIONS: list[type[Operation]] = [
    AddOp,
    SubtractOp,
    MultiplyOp,
    DivideOp,
    MaximumOp,
    MinimumOp,
    PowerOp,
    AndOp,
    OrOp,
    XorOp,
    NegateOp,
    AbsOp,
    ExponentialOp,
    LogOp,
    RsqrtOp,
    SqrtOp,
    TanhOp,
    SignOp,
    NotOp,
    IsFiniteOp,
    ConvertOp,
    CompareOp,
    SelectOp,
    ConstantOp,
    IotaOp,
    BroadcastInDimOp,
    ReshapeOp,
    TransposeOp,
    ReverseOp,
    SliceOp,
    PadOp,
    ConcatenateOp,
    DotGeneralOp,
    ConvolutionOp,
    ReduceOp,
    ReduceWindowOp,
    SelectAndScatterOp,
    GatherOp,
    ScatterOp,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    WhileOp,
    IfOp,
    CaseOp,
    MapOp,
    ReturnOp,
]


StableHLO = Dialect("stablehlo", OPERATIONS, list(ATTRIBUTES))


CHLO = Dialect("chlo", [SquareOp, ErfOp, ErfcOp], [])


EXPANDED: tuple[type[Operation], ...] = (
    *CHLO.operations,
    DynamicSliceOp,
    DynamicUpdateSliceOp,
    WhileOp,
    IfOp,
    CaseOp,
    MapOp,
)
"""Operations that `stablehlo-simplify` puts others in place of: nothing after it knows them."""

Resume = Dialect("resume", [DotFromOp, ConvolutionFromOp], [])

__all__ = [
    "CHLO",
    "ELEMENT_TYPES",
    "EXPANDED",
    "OPERATIONS",
    "REDUCERS",
    "AbsOp",
    "AddOp",
    "AndOp",
    "BinaryElementwiseOp",
    "BranchOp",
    "BroadcastInDimOp",
    "CaseOp",
    "ChloUnaryOp",
    "CompareOp",
    "ConcatenateOp",
    "ConstantOp",
    "ControlOp",
    "ConvDims",
    "ConvertOp",
    "ConvolutionBase",
    "ConvolutionFromOp",
    "ConvolutionOp",
    "DivideOp",
    "DotBase",
    "DotFromOp",
    "DotGeneralOp",
    "DynamicSliceOp",
    "DynamicUpdateSliceOp",
    "ErfOp",
    "ErfcOp",
    "ExponentialOp",
    "GatherOp",
    "IfOp",
    "IotaOp",
    "IsFiniteOp",
    "LogOp",
    "MapOp",
    "MaximumOp",
    "MinimumOp",
    "MultiplyOp",
    "NegateOp",
    "NotOp",
    "OrOp",
    "PadOp",
    "Padding",
    "PowerOp",
    "PrettyOp",
    "ReduceOp",
    "ReduceWindowOp",
    "ReshapeOp",
    "Resume",
    "ReturnOp",
    "ReverseOp",
    "RsqrtOp",
    "ScatterOp",
    "SelectAndScatterOp",
    "SelectOp",
    "SignOp",
    "SliceOp",
    "SqrtOp",
    "SquareOp",
    "StableHLO",
    "StablehloOp",
    "SubtractOp",
    "TanhOp",
    "TensorType",
    "TransposeOp",
    "UnaryElementwiseOp",
    "Value",
    "WhileOp",
    "XorOp",
    "dilated",
    "element_count",
    "element_type_of",
    "f32",
    "i1",
    "i32",
    "identity",
    "padding_attr",
    "reducer_kind",
    "shape_of",
    "tensor_type",
]
