"""A Relax function as a poet.graph: one compute for each call of a PrimFunc.

The graph is to be scheduled, not to be compiled: the body of a compute is a call of a function that
is declared beside the graph, under the name that it has in the Relax module, and tensors are flat.
Inputs and results are in buffers of the caller. What only changes shapes or packs tuples is no
compute; what no result depends on is left out.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tvm import ir, relax, tirx
from xdsl.dialects.builtin import (
    ArrayAttr,
    BFloat16Type,
    DenseArrayBase,
    Float16Type,
    Float32Type,
    Float64Type,
    IntegerType,
    ModuleOp,
    StringAttr,
    TensorType,
    i64,
)
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from poetc.costmodel.cost import roofline_cost
from poetc.costmodel.device import Device
from poetc.errors import InputError
from poetc.ir.poet import ComputeOp, CostAttr, GraphOp, ReturnOp, YieldOp
from poetc.planning.inplace import MAY_SHARE
from poetc.tvm.kernels import Buffer, Kernel, Unsupported, kernel_of

_FLOATS = {
    "float16": Float16Type(),
    "bfloat16": BFloat16Type(),
    "float32": Float32Type(),
    "float64": Float64Type(),
}


@dataclass(frozen=True)
class Tensor:
    """A tensor of the Relax function: a value of the graph, in a shape. `expr` is where it comes
    from if no call computes it: an argument, a part of one, or a constant."""

    value: SSAValue
    shape: tuple[int, ...]
    dtype: str
    expr: relax.Expr | None = None


Value = Tensor | tuple["Value", ...]
"""The value of a variable of the Relax function; tuples are taken apart."""


@dataclass(frozen=True)
class Imported:
    """The graph of a function, and what it takes to make a function of it again.

    `sources` are the tensors of the graph's arguments, `results` what the function returns, and
    `kernels` those that computes call, by name.
    """

    name: str
    module: ModuleOp
    graph: GraphOp
    sources: tuple[Tensor, ...]
    results: Value
    kernels: dict[str, Kernel]

    @property
    def result_bytes(self) -> int:
        """Bytes of the tensors that the function makes for its caller."""
        returned = self.graph.return_op.arguments
        return sum(flat_bytes(value) for value in returned)

    @property
    def argument_bytes(self) -> int:
        """Bytes of the tensors that the caller passes, as far as they are used; with constants."""
        return sum(flat_bytes(argument) for argument in self.graph.arguments)

    @property
    def pool_bytes(self) -> int:
        """Scratch memory that kernels take from TVM's pool, which keeps it from call to call."""
        return max((kernel.pool_bytes for kernel in self.kernels.values()), default=0)


def flat_bytes(value: SSAValue) -> int:
    """Bytes of a flat tensor."""
    type_ = value.type
    assert isinstance(type_, TensorType)
    (elements,) = type_.get_shape()
    return elements * -(-type_.element_type.bitwidth // 8)


def kernel_name(compute: ComputeOp) -> str:
    """The PrimFunc that a compute calls."""
    call = compute.block.first_op
    assert isinstance(call, CallOp)
    return call.callee.string_value()


def import_function(module: ir.IRModule, name: str, device: Device) -> Imported:
    """The graph of a legalized function of a module, with costs for a device.

    Raises InputError that lists everything that cannot be scheduled, by operator, variable and
    place in the source where that is known.
    """
    return _Importer(module, name, device).run()


class _ConsequenceError(Exception):
    """Something depends on what cannot be scheduled, which is noted already."""


class _Importer:
    """State while one function is read."""

    def __init__(self, module: ir.IRModule, name: str, device: Device) -> None:
        self.module, self.name, self.device = module, name, device
        self.function = module[name]
        self.block = Block()
        self.values: dict[relax.Var, Value] = {}
        self.sources: list[Tensor] = []
        self.declared: dict[str, FuncOp] = {}
        self.kernels: dict[str, Kernel] = {}
        self.problems: dict[str, None] = {}

    def run(self) -> Imported:
        for parameter in self.function.params:
            self.bind(parameter, parameter, lambda p=parameter: self.source(p, p.ty))
        body = self.function.body
        blocks = body.blocks if isinstance(body, relax.SeqExpr) else []
        for block in blocks:
            for binding in block.bindings:
                self.bind(binding.var, binding.value, lambda b=binding: self.binding(b))
        returned = body.body if isinstance(body, relax.SeqExpr) else body
        result = self.attempt("result", returned, lambda: self.value(returned))
        if self.problems:
            listed = "".join(f"\n  {problem}" for problem in self.problems)
            raise InputError(f"Relax function @{self.name} cannot be scheduled:{listed}")
        assert result is not None
        return self.finish(result)

    def bind(self, variable: relax.Var, expr: relax.Expr, make: Callable[[], Value]) -> None:
        value = self.attempt(str(variable.name), expr, make)
        if value is not None:
            self.values[variable] = value

    def attempt(self, where: str, expr: relax.Expr, make: Callable[[], Value]) -> Value | None:
        """The value that `make` gives for an expression; None for an unsupported one, which is
        noted."""
        try:
            return make()
        except _ConsequenceError:
            return None
        except Unsupported as error:
            self.problems[f"{_describe(expr)} ({where}{_place(expr)}): {error}"] = None
            return None

    # Arguments, constants

    def source(self, expr: relax.Expr, type_: ir.Type) -> Value:
        """An argument or constant; the parts of a tuple are arguments of the graph each."""
        if isinstance(type_, relax.TupleType):
            fields = enumerate(type_.fields)
            return tuple(self.source(relax.TupleGetItem(expr, i), t) for i, t in fields)
        shape, dtype = _tensor_type(type_)
        value = self.block.insert_arg(_flat_type(shape, dtype), len(self.block.args))
        tensor = Tensor(value, shape, dtype, expr)
        self.sources.append(tensor)
        return tensor

    # Bindings

    def binding(self, binding: relax.Binding) -> Value:
        if not isinstance(binding, relax.VarBinding):
            raise Unsupported("shapes that are checked at run time are not known before")
        return self.value(binding.value, binding.var)

    def value(self, expr: relax.Expr, variable: relax.Var | None = None) -> Value:
        match expr:
            case relax.Var():
                if expr not in self.values:
                    raise _ConsequenceError
                return self.values[expr]
            case relax.Tuple():
                return tuple(self.value(field) for field in expr.fields)
            case relax.TupleGetItem():
                whole = self.value(expr.tuple_value)
                assert isinstance(whole, tuple)
                return whole[expr.index]
            case ir.Constant():
                return self.source(expr, expr.ty)
            case ir.Call():
                return self.call(expr, variable)
        raise Unsupported("only calls, tensors, constants and tuples can be scheduled")

    def call(self, call: ir.Call, variable: relax.Var | None) -> Value:
        if isinstance(call.op, relax.ExternFunc):
            raise Unsupported(_UNKNOWN)
        if not isinstance(call.op, ir.Op):
            if isinstance(call.op, ir.GlobalVar) and isinstance(
                self.module[call.op], tirx.PrimFunc
            ):
                raise Unsupported(_LOWERED)
            raise Unsupported(
                "a function that is called cannot be scheduled within another; inline it "
                "(relax.transform.InlinePrivateFunctions)"
            )
        if call.op.name != "relax.call_tir":
            raise Unsupported(_why_not(call.op))
        if len(call.args) > 2:
            raise Unsupported("shapes that are arguments are not known before the step runs")
        callee, operands = call.args[0], self.value(call.args[1])
        assert isinstance(operands, tuple)
        if not all(isinstance(operand, Tensor) for operand in operands):
            raise Unsupported("arguments of a PrimFunc must be tensors")
        out_types = call.ty_args[0]
        many = isinstance(out_types, relax.TupleType)
        outputs = [_tensor_type(t) for t in (out_types.fields if many else [out_types])]
        name, function = str(callee.name_hint), self.module[callee]
        if len(operands) == 1 and _is_reshape(function, operands, outputs):
            return Tensor(operands[0].value, *outputs[0], expr=operands[0].expr)
        kernel = self.kernel(name, function, len(operands))
        made = self.compute(name, kernel, operands, variable)
        tensors = tuple(Tensor(v, *o) for v, o in zip(made, outputs, strict=True))
        return tensors if many else tensors[0]

    def kernel(self, name: str, function: tirx.PrimFunc, operands: int) -> Kernel:
        if name not in self.kernels:
            self.kernels[name] = kernel_of(function, operands)
        return self.kernels[name]

    def compute(
        self, name: str, kernel: Kernel, operands: Sequence[Tensor], variable: relax.Var | None
    ) -> Sequence[SSAValue]:
        values = [operand.value for operand in operands]
        types = [_flat_type(b.shape, b.dtype) for b in kernel.results]
        if name not in self.declared:
            inputs = [_flat_type(b.shape, b.dtype) for b in kernel.operands]
            self.declared[name] = FuncOp.external(name, inputs, types)
        label = name if variable is None else str(variable.name)
        compute = ComputeOp(label, values, types, cost=self.cost(kernel))
        call = CallOp(name, compute.block.args, types)
        compute.block.add_ops([call, YieldOp(*call.results)])
        pairs = [DenseArrayBase.from_list(i64, pair) for pair in _own(kernel.may_share, values)]
        if pairs:
            compute.attributes[MAY_SHARE] = ArrayAttr(pairs)
        for result in compute.results:
            result.name_hint = label
        self.block.add_op(compute)
        return compute.results

    def cost(self, kernel: Kernel) -> CostAttr:
        # Operations, and each byte once: what the roofline asks for.
        load = sum(buffer.bytes for buffer in (*kernel.operands, *kernel.scratch))
        store = sum(buffer.bytes for buffer in (*kernel.results, *kernel.scratch))
        cost = roofline_cost(kernel.flops, load + store, self.device)
        return CostAttr(cost.energy_nj, cost.time_ns, kernel.scratch_bytes, kernel.flops)

    # The graph

    def finish(self, result: Value) -> Imported:
        returned = list(
            dict.fromkeys(t.value for t in tensors(result) if isinstance(t.value.owner, ComputeOp))
        )
        self.block.add_op(ReturnOp(*returned))
        self.drop_unused()
        arguments = [argument.type for argument in self.block.args]
        graph = GraphOp(
            self.name,
            (arguments, [value.type for value in returned]),
            Region(self.block),
            arg_attrs=[{"poet.name": StringAttr(_source_name(t.expr))} for t in self.sources],
            attributes={"io": StringAttr("caller"), "device": StringAttr(self.device.name)},
        )
        used = {kernel_name(compute) for compute in graph.computes}
        functions = [f for name, f in self.declared.items() if name in used]
        module = ModuleOp([*functions, graph])
        module.verify()
        kernels = {name: kernel for name, kernel in self.kernels.items() if name in used}
        return Imported(self.name, module, graph, tuple(self.sources), result, kernels)

    def drop_unused(self) -> None:
        for op in reversed(list(self.block.ops)):
            if isinstance(op, ComputeOp) and not any(result.uses for result in op.results):
                op.detach()
                op.erase()
        kept = []
        for tensor in self.sources:
            if tensor.value.uses:
                kept.append(tensor)
            else:
                self.block.erase_arg(tensor.value)
        self.sources = kept


def tensors(value: Value) -> Iterator[Tensor]:
    """All tensors of a value, in order."""
    if isinstance(value, Tensor):
        yield value
        return
    for field in value:
        yield from tensors(field)


def _source_name(expr: relax.Expr | None) -> str:
    match expr:
        case relax.TupleGetItem():
            return f"{_source_name(expr.tuple_value)}[{expr.index}]"
        case relax.Var():
            return str(expr.name)
    return "constant"


def _own(
    pairs: Sequence[tuple[int, int]], operands: Sequence[SSAValue]
) -> Iterator[tuple[int, int]]:
    """Pairs whose result may lie over every operand that is the same tensor; the first of them."""
    allowed = set(pairs)
    for result, operand in pairs:
        same = [i for i, other in enumerate(operands) if other is operands[operand]]
        if same[0] == operand and all((result, i) in allowed for i in same):
            yield result, operand


def _is_reshape(
    function: tirx.PrimFunc,
    operands: Sequence[Tensor],
    outputs: Sequence[tuple[tuple[int, ...], str]],
) -> bool:
    if len(outputs) != 1 or outputs[0][1] != operands[0].dtype:
        return False
    new, old = Buffer(*outputs[0]), Buffer(operands[0].shape, operands[0].dtype)
    return new.elements == old.elements and bool(relax.analysis.has_reshape_pattern(function))


def _tensor_type(type_: ir.Type) -> tuple[tuple[int, ...], str]:
    """Shape and element type of a tensor type; raises Unsupported for any other type."""
    if not isinstance(type_, relax.TensorType):
        raise Unsupported(f"{_short(type_)} is no tensor")
    shape = type_.shape
    if not isinstance(shape, relax.ShapeExpr) or not all(
        isinstance(extent, tirx.IntImm) for extent in shape.values
    ):
        raise Unsupported(f"its shape is not static: {_short(type_)}")
    if type_.dtype is None:
        raise Unsupported("its element type is not known")
    extents = tuple(int(extent) for extent in shape.values)
    if 0 in extents:
        raise Unsupported("it has no elements")
    _element_type(str(type_.dtype))
    return extents, str(type_.dtype)


def _flat_type(shape: Sequence[int], dtype: str) -> TensorType:
    return TensorType(_element_type(dtype), [Buffer(tuple(shape), dtype).elements])


def _element_type(dtype: str) -> Attribute:
    if dtype in _FLOATS:
        return _FLOATS[dtype]
    if dtype == "bool":
        return IntegerType(1)
    digits = dtype.removeprefix("u").removeprefix("int")
    if digits.isdigit() and int(digits) % 8 == 0:
        return IntegerType(int(digits))
    raise Unsupported(f"tensors of {dtype} are not supported")


_UNKNOWN = "it calls a function whose effects and memory are unknown"
_LOWERED = "memory is allocated already; schedule before that"


def _why_not(op: ir.Op) -> str:
    known = {
        "relax.call_dps_packed": "the memory that a packed function takes is unknown",
        "relax.call_tir_inplace": "it writes its arguments, which may be needed again",
    }
    if op.name in known:
        return known[op.name]
    if op.name.startswith(("relax.builtin.", "relax.memory.", "relax.vm.")):
        return _LOWERED
    if op.name.startswith(("relax.call_", "relax.invoke_")):
        return _UNKNOWN
    purity = op.get_attr("FPurity")
    if purity is not None and not bool(purity):
        return "it has effects"
    return "TVM has no PrimFunc for it (LegalizeOps)"


def _describe(expr: relax.Expr) -> str:
    if isinstance(expr, ir.Call):
        if isinstance(expr.op, ir.Op):
            called = expr.op.name
            if called == "relax.call_tir":
                called = f"{called} of {expr.args[0].name_hint}"
            return called
        names = (getattr(expr.op, name, None) for name in ("name_hint", "global_symbol", "name"))
        return f"call of {next((name for name in names if name), 'a function')}"
    return type(expr).__name__


def _place(expr: relax.Expr) -> str:
    """Where in the source an expression is, if that is known."""
    span = getattr(expr, "span", None)
    if span is None or not getattr(span, "line", 0):
        return ""
    return f", {span.source_name.name}:{span.line}:{span.column}"


def _short(type_: ir.Type) -> str:
    return str(type_).replace("\n", " ")
