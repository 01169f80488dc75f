"""The poet dialect: a training step as a list of kernels with explicit residence in RAM.

`poet.graph` holds one block of operations in execution order. A `poet.compute` is one kernel; an
SSA value of tensor type is one stay of a tensor in RAM, from the operation that defines it to the
`poet.free`, in-place reuse or `poet.return` that ends it. A value of `!poet.page` type is a copy on
auxiliary storage, written by `poet.pageout` and read back by `poet.pagein`. Both may be split into
a start and a `poet.wait`, between which other operations run; a value of `!poet.transfer` type is
such a transfer under way.

All sizes and offsets are in bytes, times in nanoseconds, energies in nanojoules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import ascii_lowercase
from typing import NamedTuple

from xdsl.dialects.builtin import (
    I64,
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    SymbolRefAttr,
    TensorType,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.dialects.utils import parse_func_op_like, print_func_op_like
from xdsl.ir import (
    Attribute,
    Block,
    BlockArgument,
    Data,
    Dialect,
    Operation,
    OpResult,
    ParametrizedAttribute,
    Region,
    SSAValue,
    TypeAttribute,
)
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    ParsePropInAttrDict,
    irdl_attr_definition,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import (
    EffectInstance,
    HasParent,
    IsolatedFromAbove,
    IsTerminator,
    MemoryEffect,
    MemoryEffectKind,
    MemoryFreeEffect,
    ReturnLike,
    SymbolOpInterface,
    SymbolTable,
    SymbolUserOpInterface,
)
from xdsl.utils.exceptions import VerifyException

IO_PLACES = ("arena", "caller")
"""Where inputs and results of a graph may be."""

NO_OFFSET = -1
"""Stands among the offsets of results for one that is in a buffer of the caller."""

ROLES = ("input", "param")
"""What a graph argument may be: given anew for each step, or kept from step to step."""

PART = "poet.part"
"""Attribute of an argument that is a part of a parameter: see `Part`."""


class Part(NamedTuple):
    """Which part of a parameter an argument is: a slice along `axis` from `start` on. The first
    part has the number of the parameter, which is `argument` of all of them."""

    argument: int
    axis: int
    start: int

    @property
    def attribute(self) -> DenseArrayBase[I64]:
        return DenseArrayBase.from_list(i64, self)


def _verify_static_tensor(type: Attribute, what: str) -> None:
    if not isinstance(type, TensorType) or not type.has_static_shape():
        raise VerifyException(f"{what} must be a tensor of static shape, got {type}")


def _i64(value: int | None) -> IntegerAttr[I64] | None:
    return None if value is None else IntegerAttr(value, i64)


def _int(attr: IntegerAttr | None) -> int | None:
    return None if attr is None else attr.value.data


def _verify_offset(value: int | None, what: str) -> None:
    if value is not None and value < 0:
        raise VerifyException(f"{what} must not be negative, got {value}")


# Types and attributes


@irdl_attr_definition
class PageType(ParametrizedAttribute, TypeAttribute):
    """The copy of a tensor on auxiliary storage: `!poet.page<tensor<4xf32>>`."""

    name = "poet.page"

    tensor: TensorType

    def verify(self) -> None:
        _verify_static_tensor(self.tensor, "the content of a page")


@irdl_attr_definition
class TransferType(ParametrizedAttribute, TypeAttribute):
    """A page or tensor that is still being transferred: `!poet.transfer<!poet.page<...>>` to
    storage, `!poet.transfer<tensor<...>>` from there."""

    name = "poet.transfer"

    content: PageType | TensorType

    def verify(self) -> None:
        if isinstance(self.content, TensorType):
            _verify_static_tensor(self.content, "what is transferred")


class Cost(NamedTuple):
    """The fields of a `CostAttr`, in the order they are printed."""

    energy_nj: int
    time_ns: int
    workspace: int
    flops: int


@irdl_attr_definition
class CostAttr(Data[Cost]):
    """What one run of a kernel costs.

    `energy_nj` and `time_ns` are those of one run, `workspace` is scratch RAM in bytes beside the
    operands and results, `flops` counts floating-point operations. All are plain integers.
    """

    name = "poet.cost"

    def __init__(
        self, energy_nj: int | Cost, time_ns: int = 0, workspace: int = 0, flops: int = 0
    ) -> None:
        # The parser constructs an attribute from its data, here a whole `Cost`.
        is_whole = isinstance(energy_nj, Cost)
        super().__init__(energy_nj if is_whole else Cost(energy_nj, time_ns, workspace, flops))

    @property
    def energy_nj(self) -> int:
        return self.data.energy_nj

    @property
    def time_ns(self) -> int:
        return self.data.time_ns

    @property
    def workspace(self) -> int:
        """Scratch RAM in bytes."""
        return self.data.workspace

    @property
    def flops(self) -> int:
        return self.data.flops

    def verify(self) -> None:
        for field, value in self.data._asdict().items():
            _verify_offset(value, f"{field} of a cost")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Cost:
        values: list[int] = []
        with parser.in_angle_brackets():
            for i, field in enumerate(Cost._fields):
                if i:
                    parser.parse_punctuation(",")
                parser.parse_keyword(field)
                parser.parse_punctuation("=")
                values.append(parser.parse_integer(allow_boolean=False))
        return Cost(*values)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            fields = self.data._asdict().items()
            printer.print_list(fields, lambda f: printer.print_string(f"{f[0]} = {f[1]}"))


# Traits


class AllocatesResults(MemoryEffect):
    """Each result is a new stay in RAM or a new page.

    Two equal operations must therefore not be merged: the second may be a recomputation on purpose.
    One whose results nobody uses, not even to free them, may be removed.
    """

    @classmethod
    def get_effects(cls, op: Operation) -> set[EffectInstance]:
        return {EffectInstance(MemoryEffectKind.ALLOC, result) for result in op.results}


class KernelSymbolUse(SymbolUserOpInterface):
    """The `kernel` of a compute is a function beside the graph that takes its buffers."""

    def verify(self, op: Operation) -> None:
        assert isinstance(op, ComputeOp)
        if op.kernel is None or _symbol_table(op) is None:
            return
        kernel = SymbolTable.lookup_symbol(op, op.kernel)
        if not isinstance(kernel, FuncOp):
            raise VerifyException(
                f'poet.compute "{op.label.data}": no function {op.kernel} in the module'
            )
        buffers = len(op.operands) + len(op.results)
        if len(kernel.function_type.inputs) < buffers:
            raise VerifyException(
                f'poet.compute "{op.label.data}": kernel {op.kernel} takes '
                f"{len(kernel.function_type.inputs)} buffers, {buffers} needed"
            )


def _symbol_table(op: Operation) -> Operation | None:
    parent = op.parent_op()
    while parent is not None and not parent.has_trait(SymbolTable):
        parent = parent.parent_op()
    return parent


# Operations


_RESERVED = ("sym_name", "function_type", "arg_attrs", "res_attrs")


@irdl_op_definition
class GraphOp(IRDLOperation):
    """One training step: arguments in, results out, operations in execution order.

    Attributes of argument i (`arg_attrs`):
    `poet.role`: `"input"` (given for each step, the default) or `"param"` (kept between steps);
    `poet.updates`: index of the result that is the new value of a parameter;
    `poet.name`: the name in the source, for reports;
    `poet.part`: which slice of a parameter it is, if it is not all of it (`Part`);
    `poet.offset`: place in the arena, or in auxiliary storage for an argument of page type.

    An argument of page type is a parameter that is on auxiliary storage between steps. The result
    that updates it is a page, too: `new_page`.

    With the attribute `io = "caller"`, inputs and results are in buffers of the caller, which take
    no RAM here: they are not in the arena, never freed, paged or taken over in place.

    Discardable attributes that passes leave on the graph: `ram` (budget), `arena_bytes`,
    `storage_bytes`, `schedule` (dictionary of what the scheduler proved), and where parameters are
    on storage `bank_bytes` (from the place of an old value to that of the new one) and
    `storage_unit` (bytes that a write which is cut off may spoil together). `cache_line_bytes` is
    there for devices whose transfers do not go through a data cache with such lines.
    """

    name = "poet.graph"

    sym_name = prop_def(SymbolNameConstraint())
    function_type = prop_def(FunctionType)
    arg_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    res_attrs = opt_prop_def(ArrayAttr[DictionaryAttr])
    body = region_def("single_block")

    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(
        self,
        name: str,
        function_type: FunctionType | tuple[Sequence[Attribute], Sequence[Attribute]],
        body: Region | None = None,
        *,
        arg_attrs: Iterable[dict[str, Attribute] | DictionaryAttr] | None = None,
        res_attrs: Iterable[dict[str, Attribute] | DictionaryAttr] | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        """Without a body, the graph gets an empty block with one argument per input."""
        if isinstance(function_type, tuple):
            function_type = FunctionType.from_lists(*function_type)
        super().__init__(
            properties={
                "sym_name": StringAttr(name),
                "function_type": function_type,
                "arg_attrs": _dictionaries(arg_attrs),
                "res_attrs": _dictionaries(res_attrs),
            },
            attributes=attributes or {},
            regions=[body or Region(Block(arg_types=function_type.inputs))],
        )

    @property
    def block(self) -> Block:
        """The one block of the body."""
        return self.body.block

    @property
    def arguments(self) -> tuple[BlockArgument, ...]:
        return self.body.block.args

    @property
    def return_op(self) -> ReturnOp:
        op = self.body.block.last_op
        assert isinstance(op, ReturnOp)
        return op

    @property
    def computes(self) -> tuple[ComputeOp, ...]:
        """The computes in execution order."""
        return tuple(op for op in self.block.ops if isinstance(op, ComputeOp))

    def arg_attr(self, index: int, name: str) -> Attribute | None:
        """Attribute `name` of argument `index`."""
        return None if self.arg_attrs is None else self.arg_attrs.data[index].data.get(name)

    def set_arg_attr(self, index: int, name: str, value: Attribute | None) -> None:
        """Sets attribute `name` of argument `index`, or removes it if `value` is None."""
        self.set_arg_attrs(name, {index: value})

    def set_arg_attrs(self, name: str, values: Mapping[int, Attribute | None]) -> None:
        """Sets attribute `name` of each argument in `values`, or removes it where that is None."""
        attrs = (
            [dict(a.data) for a in self.arg_attrs]
            if self.arg_attrs is not None
            else [{} for _ in self.arguments]
        )
        for index, value in values.items():
            attrs[index].pop(name, None)
            if value is not None:
                attrs[index][name] = value
        self.arg_attrs = _dictionaries(attrs)

    def role(self, index: int) -> str:
        """`"input"` or `"param"`."""
        role = self.arg_attr(index, "poet.role")
        return role.data if isinstance(role, StringAttr) else "input"

    def updates(self, index: int) -> int | None:
        """The result that is the new value of argument `index`, if it is an updated parameter."""
        attr = self.arg_attr(index, "poet.updates")
        return attr.value.data if isinstance(attr, IntegerAttr) else None

    def offset(self, index: int) -> int | None:
        """The place of argument `index` in the arena (or in storage, for a page) in bytes."""
        attr = self.arg_attr(index, "poet.offset")
        return attr.value.data if isinstance(attr, IntegerAttr) else None

    def part(self, index: int) -> Part | None:
        """Which part of a parameter argument `index` is, None if it is a whole one."""
        attr = self.arg_attr(index, PART)
        return Part(*attr.get_values()) if isinstance(attr, DenseArrayBase) else None

    @property
    def has_parts(self) -> bool:
        """Whether a parameter is in parts, which are on storage then."""
        return any(self.part(i) is not None for i in range(len(self.arguments)))

    def is_first(self, index: int) -> bool:
        """Whether argument `index` is a whole one, or the first part of one."""
        part = self.part(index)
        return part is None or part.argument == index

    def parts(self, index: int) -> tuple[int, ...]:
        """The arguments that parameter `index` is split into, in order; `index` if it is whole."""
        if self.part(index) is None:
            return (index,)
        parts = ((i, self.part(i)) for i in range(len(self.arguments)))
        return tuple(i for i, part in parts if part is not None and part.argument == index)

    def arg_name(self, index: int) -> str:
        """The name of argument `index` in the source, or `arg<index>`; of a part, as a slice."""
        part = self.part(index)
        if part is None:
            return self.param_name(index)
        range_ = f"{part.start}:{part.start + self._shape(index)[part.axis]}"
        return f"{self.param_name(part.argument)}[{':, ' * part.axis}{range_}]"

    def param_name(self, index: int) -> str:
        """The name of argument `index`, also where it is the first part of a parameter."""
        attr = self.arg_attr(index, "poet.name")
        hint = self.arguments[index].name_hint
        return attr.data if isinstance(attr, StringAttr) else hint or f"arg{index}"

    def result_name(self, index: int) -> str:
        """The name of result `index` in the source, or `out<index>`."""
        attr = None if self.res_attrs is None else self.res_attrs.data[index].data.get("poet.name")
        return attr.data if isinstance(attr, StringAttr) else f"out{index}"

    @property
    def is_scheduled(self) -> bool:
        """Whether residence in RAM is explicit: every value ends where the graph says."""
        return "schedule" in self.attributes or any(
            isinstance(op, FreeOp | AnyPageIn | AnyPageOut) for op in self.block.ops
        )

    def _int_attribute(self, name: str) -> int | None:
        attr = self.attributes.get(name)
        return attr.value.data if isinstance(attr, IntegerAttr) else None

    @property
    def ram(self) -> int | None:
        """The RAM budget in bytes."""
        return self._int_attribute("ram")

    @property
    def arena_bytes(self) -> int | None:
        return self._int_attribute("arena_bytes")

    @property
    def storage_bytes(self) -> int | None:
        return self._int_attribute("storage_bytes")

    @property
    def bank_bytes(self) -> int | None:
        """Distance in storage between the two places of each updated parameter."""
        return self._int_attribute("bank_bytes")

    @property
    def storage_unit(self) -> int | None:
        """Bytes of storage that a write which is cut off may spoil together."""
        return self._int_attribute("storage_unit")

    @property
    def cache_line_bytes(self) -> int | None:
        """The line of the data cache that transfers do not go through, None without one."""
        return self._int_attribute("cache_line_bytes")

    @property
    def io(self) -> str:
        """Where inputs and results are: in the `"arena"`, or in buffers of the `"caller"`."""
        io = self.attributes.get("io")
        return io.data if isinstance(io, StringAttr) else "arena"

    def caller_values(self) -> frozenset[SSAValue]:
        """The values in buffers of the caller: inputs, and results but for new parameters."""
        if self.io != "caller":
            return frozenset()
        inputs = {a for a in self.arguments if self.role(a.index) != "param"}
        return frozenset(inputs | set(self._outputs().values()))

    def unwritten_output(self) -> int | None:
        """A result that should be in a buffer of the caller, but that no compute makes."""
        unwritten = (k for k, v in self._outputs().items() if not isinstance(v.owner, ComputeOp))
        return next(unwritten, None) if self.io == "caller" else None

    def _outputs(self) -> dict[int, SSAValue]:
        updated = {self.updates(i) for i in range(len(self.arguments))}
        returned = enumerate(self.return_op.arguments)
        return {k: value for k, value in returned if k not in updated}

    def is_stored(self, index: int) -> bool:
        """Whether argument `index` is on auxiliary storage between steps."""
        return isinstance(self.arguments[index].type, PageType)

    def new_page(self, index: int) -> AnyPageOut | None:
        """The page-out of the new value of argument `index`, if that is on storage and updated.

        None also for one that is returned as it came.
        """
        result = self.updates(index)
        if result is None or not self.is_stored(index):
            return None
        maker = transfer_of(self.return_op.arguments[result])
        return maker if isinstance(maker, AnyPageOut) else None

    def verify_(self) -> None:
        where = f"poet.graph @{self.sym_name.data}"
        inputs, outputs = self.function_type.inputs.data, self.function_type.outputs.data
        if self.block.arg_types != inputs:
            raise VerifyException(f"{where}: block arguments must have the types of its inputs")
        for kind, types in (("argument", inputs), ("result", outputs)):
            for i, type in enumerate(types):
                if not isinstance(type, PageType):
                    _verify_static_tensor(type, f"{where}: {kind} {i}")
        for op in self.block.ops:
            if not isinstance(op, GRAPH_OPS):
                raise VerifyException(f"{where}: {op.name} is not allowed directly in a graph")
        if not isinstance(self.block.last_op, ReturnOp):
            raise VerifyException(f"{where} must end with poet.return")
        for kind, attrs, types in (
            ("arg_attrs", self.arg_attrs, inputs),
            ("res_attrs", self.res_attrs, outputs),
        ):
            if attrs is not None and len(attrs) != len(types):
                raise VerifyException(
                    f"{where}: {kind} has {len(attrs)} entries, expected {len(types)}"
                )
        self._verify_arguments(where)
        io = self.attributes.get("io")
        if io is not None and (not isinstance(io, StringAttr) or io.data not in IO_PLACES):
            raise VerifyException(f'{where}: io must be "arena" or "caller", got {io}')

    def _verify_arguments(self, where: str) -> None:
        inputs, outputs = self.function_type.inputs.data, self.function_type.outputs.data
        updated: dict[int, int] = {}
        for i, input in enumerate(inputs):
            argument = f"{where}: argument {i}"
            role = self.arg_attr(i, "poet.role")
            if role is not None and (not isinstance(role, StringAttr) or role.data not in ROLES):
                raise VerifyException(f'{argument}: role must be "input" or "param", got {role}')
            for name in ("poet.updates", "poet.offset"):
                attr = self.arg_attr(i, name)
                if attr is not None and not isinstance(attr, IntegerAttr):
                    raise VerifyException(f"{argument}: {name} must be an integer, got {attr}")
            _verify_offset(self.offset(i), f"{argument}: offset")
            self._verify_part(i, argument)
            result = self.updates(i)
            if result is None:
                continue
            if self.role(i) != "param":
                raise VerifyException(f"{argument}: only a param may have poet.updates")
            if not 0 <= result < len(outputs):
                raise VerifyException(
                    f"{argument} updates result {result}, the graph has {len(outputs)}"
                )
            if result in updated:
                raise VerifyException(
                    f"{argument} updates result {result}, which argument {updated[result]} updates"
                )
            if outputs[result] != input:
                raise VerifyException(
                    f"{argument} of type {input} updates result {result} of type {outputs[result]}"
                )
            updated[result] = i

    def _verify_part(self, index: int, where: str) -> None:
        """A part begins where the one before it ends."""
        attr = self.arg_attr(index, PART)
        if attr is None:
            return
        if not isinstance(attr, DenseArrayBase) or len(attr.get_values()) != len(Part._fields):
            raise VerifyException(f"{where}: {PART} must be array<i64: argument, axis, start>")
        part = Part(*attr.get_values())
        what = f"{where} is part of argument {part.argument}"
        if not 0 <= part.argument <= index or self.role(index) != "param":
            raise VerifyException(f"{what}, which is no param before it")
        if self.part(part.argument) != (part.argument, part.axis, 0):
            raise VerifyException(f"{what}, whose own part is {self.part(part.argument)}")
        whole, shape = list(self._shape(part.argument)), list(self._shape(index))
        if not 0 <= part.axis < len(whole):
            raise VerifyException(f"{what}, which has no axis {part.axis}")
        whole[part.axis] = shape[part.axis] if part.axis < len(shape) else 0
        if shape != whole:
            raise VerifyException(f"{what}, but does not fit it along axis {part.axis}")
        before = [i for i in self.parts(part.argument) if i < index]
        end = sum(self._shape(i)[part.axis] for i in before)
        if part.start != end:
            raise VerifyException(f"{what} and starts at {part.start}, where {end} comes next")
        # Whole arguments keep the numbers that they have without parts.
        if self.is_first(index) and not all(self.is_first(i) for i in range(index)):
            raise VerifyException(f"{where} comes after parts of other arguments")

    def _shape(self, index: int) -> tuple[int, ...]:
        type_ = self.function_type.inputs.data[index]
        type_ = type_.tensor if isinstance(type_, PageType) else type_
        assert isinstance(type_, TensorType)
        return type_.get_shape()

    @classmethod
    def parse(cls, parser: Parser) -> GraphOp:
        name, inputs, outputs, body, attributes, arg_attrs, res_attrs = parse_func_op_like(
            parser, reserved_attr_names=_RESERVED
        )
        if not body.blocks:
            body.add_block(Block(arg_types=inputs))
        return cls(
            name,
            (inputs, outputs),
            body,
            arg_attrs=arg_attrs,
            res_attrs=res_attrs,
            attributes=dict(attributes.data) if attributes else None,
        )

    def print(self, printer: Printer) -> None:
        print_func_op_like(
            printer,
            self.sym_name,
            self.function_type,
            self.body,
            self.attributes,
            arg_attrs=self.arg_attrs,
            res_attrs=self.res_attrs,
            reserved_attr_names=_RESERVED,
        )


def _dictionaries(
    attrs: Iterable[dict[str, Attribute] | DictionaryAttr] | None,
) -> ArrayAttr[DictionaryAttr] | None:
    """One dictionary per argument; None when all are empty, as nothing is printed then."""
    if attrs is None:
        return None
    array = [a if isinstance(a, DictionaryAttr) else DictionaryAttr(a) for a in attrs]
    return ArrayAttr(array) if any(a.data for a in array) else None


@irdl_op_definition
class ComputeOp(IRDLOperation):
    """One kernel: what is scheduled, costed and generated as a unit.

    The body says what it computes, on tensors; its block arguments are the operands. It has no side
    effects and depends on nothing else, so that running it again gives the same bits.

    `inplace` lists pairs [result, operand]: the result takes over the operand's buffer, and the
    operand's stay in RAM ends here. `offsets` has the arena offset of each result, and
    `workspace_offset` that of the scratch memory, in bytes.
    """

    name = "poet.compute"

    inputs = var_operand_def(TensorType)
    outputs = var_result_def(TensorType)
    body = region_def("single_block")

    label = prop_def(StringAttr)
    kernel = opt_prop_def(SymbolRefAttr)
    inplace = opt_prop_def(ArrayAttr[DenseArrayBase[I64]])
    cost = opt_prop_def(CostAttr)
    offsets = opt_prop_def(DenseArrayBase[I64])
    workspace_offset = opt_prop_def(IntegerAttr[I64])

    traits = traits_def(
        HasParent(GraphOp), IsolatedFromAbove(), AllocatesResults(), KernelSymbolUse()
    )

    def __init__(
        self,
        label: str,
        operands: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        body: Region | None = None,
        *,
        kernel: str | SymbolRefAttr | None = None,
        inplace: Iterable[tuple[int, int]] = (),
        cost: CostAttr | None = None,
        offsets: Sequence[int] | None = None,
        workspace_offset: int | None = None,
        attributes: dict[str, Attribute] | None = None,
    ) -> None:
        """Without a body, the caller fills `block`, whose arguments are the operands."""
        if body is None:
            body = Region(Block(arg_types=[operand.type for operand in operands]))
            for argument, letter in zip(body.block.args, ascii_lowercase, strict=False):
                argument.name_hint = letter
        super().__init__(
            operands=[operands],
            result_types=[result_types],
            regions=[body],
            properties={
                "label": StringAttr(label),
                "kernel": SymbolRefAttr(kernel) if isinstance(kernel, str) else kernel,
                "inplace": _pairs(inplace),
                "cost": cost,
                "offsets": None if offsets is None else DenseArrayBase.from_list(i64, offsets),
                "workspace_offset": _i64(workspace_offset),
            },
            attributes=attributes or {},
        )

    @property
    def block(self) -> Block:
        """The one block of the body."""
        return self.body.block

    @property
    def yield_op(self) -> YieldOp:
        op = self.body.block.last_op
        assert isinstance(op, YieldOp)
        return op

    @property
    def inplace_pairs(self) -> tuple[tuple[int, int], ...]:
        """(result, operand) pairs: the result takes over the buffer of the operand."""
        if self.inplace is None:
            return ()
        pairs = (pair.get_values() for pair in self.inplace)
        return tuple((result, operand) for result, operand in pairs)

    @inplace_pairs.setter
    def inplace_pairs(self, pairs: Iterable[tuple[int, int]]) -> None:
        self.inplace = _pairs(pairs)

    @property
    def result_offsets(self) -> tuple[int, ...] | None:
        """Arena offset of each result in bytes, once memory is planned.

        NO_OFFSET for one in a buffer of the caller.
        """
        return None if self.offsets is None else tuple(self.offsets.get_values())

    @result_offsets.setter
    def result_offsets(self, offsets: Sequence[int] | None) -> None:
        self.offsets = None if offsets is None else DenseArrayBase.from_list(i64, offsets)

    def verify_(self) -> None:
        where = f'poet.compute "{self.label.data}"'
        for kind, types in (("operand", self.operand_types), ("result", self.result_types)):
            for i, type in enumerate(types):
                _verify_static_tensor(type, f"{where}: {kind} {i}")
        if self.block.arg_types != tuple(self.operand_types):
            raise VerifyException(
                f"{where}: block arguments ({_types(self.block.arg_types)}) "
                f"must have the types of the operands ({_types(self.operand_types)})"
            )
        if not isinstance(self.block.last_op, YieldOp):
            raise VerifyException(f"{where} must end with poet.yield")
        if tuple(self.yield_op.operand_types) != tuple(self.result_types):
            raise VerifyException(
                f"{where} yields ({_types(self.yield_op.operand_types)}) "
                f"but has results ({_types(self.result_types)})"
            )
        self._verify_inplace(where)
        _verify_offset(_int(self.workspace_offset), f"{where}: workspace offset")
        if self.result_offsets is not None:
            if len(self.result_offsets) != len(self.results):
                raise VerifyException(
                    f"{where} has {len(self.results)} results "
                    f"but {len(self.result_offsets)} offsets"
                )
            for offset in self.result_offsets:
                if offset != NO_OFFSET:
                    _verify_offset(offset, f"{where}: offset")

    def _verify_inplace(self, where: str) -> None:
        for pair in self.inplace or ():
            if len(pair) != 2:
                raise VerifyException(f"{where}: inplace takes pairs [result, operand]")
        pairs = self.inplace_pairs
        for result, operand in pairs:
            if not (0 <= result < len(self.results) and 0 <= operand < len(self.operands)):
                raise VerifyException(
                    f"{where}: inplace [{result}, {operand}] out of range, there are "
                    f"{len(self.results)} results and {len(self.operands)} operands"
                )
            if self.results[result].type != self.operands[operand].type:
                raise VerifyException(
                    f"{where}: inplace [{result}, {operand}] joins types "
                    f"{self.results[result].type} and {self.operands[operand].type}"
                )
        if len({result for result, _ in pairs}) != len(pairs):
            raise VerifyException(f"{where}: a result is in place of two operands")
        if len({self.operands[operand] for _, operand in pairs}) != len(pairs):
            raise VerifyException(f"{where}: two results are in place of one operand")

    @classmethod
    def parse(cls, parser: Parser) -> ComputeOp:
        label = parser.parse_str_literal()

        def parse_binding() -> tuple[Parser.Argument, SSAValue]:
            argument = parser.parse_argument(expect_type=False)
            parser.parse_punctuation("=")
            operand = parser.parse_unresolved_operand()
            parser.parse_punctuation(":")
            type = parser.parse_type()
            return argument.resolve(type), parser.resolve_operand(operand, type)

        bindings = parser.parse_comma_separated_list(Parser.Delimiter.PAREN, parse_binding)
        parser.parse_punctuation("->")
        result_types = parser.parse_optional_comma_separated_list(
            Parser.Delimiter.PAREN, parser.parse_type
        )
        if result_types is None:
            result_types = [parser.parse_type()]

        def parse_integers() -> list[int]:
            return parser.parse_comma_separated_list(
                Parser.Delimiter.SQUARE, lambda: parser.parse_integer(allow_boolean=False)
            )

        def parse_pair() -> tuple[int, int]:
            position = parser.pos
            pair = parse_integers()
            if len(pair) != 2:
                parser.raise_error("expected a pair [result, operand]", position, parser.pos)
            return pair[0], pair[1]

        kernel = None
        if parser.parse_optional_keyword("kernel"):
            kernel = SymbolRefAttr(parser.parse_symbol_name())
        inplace: Sequence[tuple[int, int]] = ()
        if parser.parse_optional_keyword("inplace"):
            inplace = parser.parse_comma_separated_list(Parser.Delimiter.SQUARE, parse_pair)
        cost = None
        if parser.parse_optional_keyword("cost"):
            position = parser.pos
            cost = parser.parse_attribute()
            if not isinstance(cost, CostAttr):
                parser.raise_error("expected #poet.cost<...>", position, parser.pos)
        offsets = parse_integers() if parser.parse_optional_keyword("offsets") else None
        workspace_offset = None
        if parser.parse_optional_keyword("workspace_offset"):
            workspace_offset = parser.parse_integer(allow_boolean=False)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        arguments, operands = zip(*bindings, strict=True) if bindings else ((), ())
        body = parser.parse_region(arguments)
        return cls(
            label,
            operands,
            result_types,
            body,
            kernel=kernel,
            inplace=inplace,
            cost=cost,
            offsets=offsets,
            workspace_offset=workspace_offset,
            attributes=dict(attributes.data) if attributes else None,
        )

    def print(self, printer: Printer) -> None:
        def print_binding(binding: tuple[BlockArgument, SSAValue]) -> None:
            argument, operand = binding
            printer.print_ssa_value(argument)
            printer.print_string(" = ")
            printer.print_ssa_value(operand)
            printer.print_string(" : ")
            printer.print_attribute(operand.type)

        printer.print_string(" ")
        printer.print_string_literal(self.label.data)
        printer.print_string(" ")
        with printer.in_parens():
            printer.print_list(zip(self.block.args, self.operands, strict=True), print_binding)
        printer.print_string(" -> ")
        if len(self.results) == 1:
            printer.print_attribute(self.results[0].type)
        else:
            with printer.in_parens():
                printer.print_list(self.result_types, printer.print_attribute)
        if self.kernel is not None:
            printer.print_string(" kernel ")
            printer.print_attribute(self.kernel)
        if self.inplace_pairs:
            printer.print_string(f" inplace {[list(pair) for pair in self.inplace_pairs]}")
        if self.cost is not None:
            printer.print_string(" cost ")
            printer.print_attribute(self.cost)
        if self.result_offsets is not None:
            printer.print_string(f" offsets {list(self.result_offsets)}")
        if self.workspace_offset is not None:
            printer.print_string(f" workspace_offset {_int(self.workspace_offset)}")
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)


def _pairs(pairs: Iterable[tuple[int, int]]) -> ArrayAttr[DenseArrayBase[I64]] | None:
    array = [DenseArrayBase.from_list(i64, pair) for pair in pairs]
    return ArrayAttr(array) if array else None


def _types(types: Iterable[Attribute]) -> str:
    return ", ".join(str(type) for type in types)


@irdl_op_definition
class PageOutOp(IRDLOperation):
    """Copies a tensor from RAM to auxiliary storage; its stay in RAM goes on.

    `offset` is the place of the page in auxiliary storage in bytes.
    """

    name = "poet.pageout"

    tensor = operand_def(TensorType)
    page = result_def(PageType)
    offset = opt_prop_def(IntegerAttr[I64])

    traits = traits_def(HasParent(GraphOp), AllocatesResults())

    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$tensor (`offset` $offset^)? attr-dict `:` type($tensor) `->` type($page)"

    def __init__(self, tensor: SSAValue, offset: int | None = None) -> None:
        assert isinstance(tensor.type, TensorType)
        super().__init__(
            operands=[tensor],
            result_types=[PageType(tensor.type)],
            properties={"offset": _i64(offset)},
        )

    def verify_(self) -> None:
        _verify_transfer(self, self.page.type, self.tensor.type, self.offset)


@irdl_op_definition
class PageInOp(IRDLOperation):
    """Copies a page from auxiliary storage into RAM; the page stays as it is.

    `offset` is the place of the tensor in the arena in bytes.
    """

    name = "poet.pagein"

    page = operand_def(PageType)
    tensor = result_def(TensorType)
    offset = opt_prop_def(IntegerAttr[I64])

    traits = traits_def(HasParent(GraphOp), AllocatesResults())

    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$page (`offset` $offset^)? attr-dict `:` type($page) `->` type($tensor)"

    def __init__(self, page: SSAValue, offset: int | None = None) -> None:
        assert isinstance(page.type, PageType)
        super().__init__(
            operands=[page],
            result_types=[page.type.tensor],
            properties={"offset": _i64(offset)},
        )

    def verify_(self) -> None:
        _verify_transfer(self, self.page.type, self.tensor.type, self.offset)


@irdl_op_definition
class PageOutStartOp(IRDLOperation):
    """Begins to copy a tensor from RAM to auxiliary storage.

    Until the transfer has been waited for, the tensor may be read but its stay in RAM may not end.
    `offset` is the place of the page in auxiliary storage in bytes.
    """

    name = "poet.pageout_start"

    tensor = operand_def(TensorType)
    transfer = result_def(TransferType)
    offset = opt_prop_def(IntegerAttr[I64])

    traits = traits_def(HasParent(GraphOp), AllocatesResults())

    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = (
        "$tensor (`offset` $offset^)? attr-dict `:` type($tensor) `->` type($transfer)"
    )

    def __init__(self, tensor: SSAValue, offset: int | None = None) -> None:
        assert isinstance(tensor.type, TensorType)
        super().__init__(
            operands=[tensor],
            result_types=[TransferType(PageType(tensor.type))],
            properties={"offset": _i64(offset)},
        )

    @property
    def wait(self) -> WaitOp:
        """The operation that waits for this one."""
        return _wait_of(self)

    @property
    def page(self) -> SSAValue:
        """The page that is written: it is there from the wait on."""
        return self.wait.result

    def verify_(self) -> None:
        _verify_wait(self)
        _verify_transfer(self, self.page.type, self.tensor.type, self.offset)


@irdl_op_definition
class PageInStartOp(IRDLOperation):
    """Begins to copy a page from auxiliary storage into RAM; the page stays as it is.

    The tensor takes its place in RAM at once, but has its content from the wait on. `offset` is
    that place in the arena in bytes.
    """

    name = "poet.pagein_start"

    page = operand_def(PageType)
    transfer = result_def(TransferType)
    offset = opt_prop_def(IntegerAttr[I64])

    traits = traits_def(HasParent(GraphOp), AllocatesResults())

    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$page (`offset` $offset^)? attr-dict `:` type($page) `->` type($transfer)"

    def __init__(self, page: SSAValue, offset: int | None = None) -> None:
        assert isinstance(page.type, PageType)
        super().__init__(
            operands=[page],
            result_types=[TransferType(page.type.tensor)],
            properties={"offset": _i64(offset)},
        )

    @property
    def wait(self) -> WaitOp:
        """The operation that waits for this one."""
        return _wait_of(self)

    @property
    def tensor(self) -> SSAValue:
        """The tensor that is read: it may be used from the wait on."""
        return self.wait.result

    def verify_(self) -> None:
        _verify_wait(self)
        _verify_transfer(self, self.page.type, self.tensor.type, self.offset)


@irdl_op_definition
class WaitOp(IRDLOperation):
    """Returns when a transfer that was started is over; its result is what was transferred.

    There is one bus: transfers run in the order of their starts, and are waited for in that order.
    """

    name = "poet.wait"

    transfer = operand_def(TransferType)
    result = result_def(AnyAttr())

    traits = traits_def(HasParent(GraphOp))

    assembly_format = "$transfer attr-dict `:` type($transfer) `->` type($result)"

    def __init__(self, transfer: SSAValue) -> None:
        assert isinstance(transfer.type, TransferType)
        super().__init__(operands=[transfer], result_types=[transfer.type.content])

    @property
    def start(self) -> PageOutStartOp | PageInStartOp:
        """The operation that started the transfer."""
        owner = self.transfer.owner
        assert isinstance(owner, PageOutStartOp | PageInStartOp)
        return owner

    def verify_(self) -> None:
        if not isinstance(self.transfer.owner, PageOutStartOp | PageInStartOp):
            raise VerifyException("poet.wait for something that is no transfer of this graph")
        assert isinstance(self.transfer.type, TransferType)
        if self.transfer.type.content != self.result.type:
            raise VerifyException(
                f"poet.wait for a transfer of {self.transfer.type.content} "
                f"has a result of type {self.result.type}"
            )


AnyPageOut = PageOutOp | PageOutStartOp
"""What writes `.tensor` to storage as `.page`."""

AnyPageIn = PageInOp | PageInStartOp
"""What reads `.page` back as `.tensor`."""


def transfer_of(value: SSAValue) -> AnyPageOut | AnyPageIn | None:
    """The transfer that makes `value`, a page or a tensor paged in; None for any other value."""
    match value.owner:
        case PageOutOp() | PageInOp() as transfer:
            return transfer
        case WaitOp() as wait:
            return wait.start
        case _:
            return None


def _wait_of(op: PageOutStartOp | PageInStartOp) -> WaitOp:
    (use,) = op.transfer.uses
    assert isinstance(use.operation, WaitOp)
    return use.operation


def _verify_wait(op: PageOutStartOp | PageInStartOp) -> None:
    """A transfer that is never waited for, or twice, has no end."""
    waits = [use.operation for use in op.transfer.uses]
    if len(waits) != 1 or not isinstance(waits[0], WaitOp):
        raise VerifyException(f"{op.name} must be waited for once, by a poet.wait")


def _verify_transfer(
    op: Operation, page: Attribute, tensor: Attribute, offset: IntegerAttr | None
) -> None:
    if not isinstance(page, PageType) or page.tensor != tensor:
        raise VerifyException(f"{op.name} between a tensor of type {tensor} and a page {page}")
    _verify_offset(_int(offset), f"{op.name}: offset")


@irdl_op_definition
class FreeOp(IRDLOperation):
    """Ends the stay of a tensor in RAM."""

    name = "poet.free"

    tensor = operand_def(TensorType)

    traits = traits_def(HasParent(GraphOp), MemoryFreeEffect())

    assembly_format = "$tensor attr-dict `:` type($tensor)"

    def __init__(self, tensor: SSAValue) -> None:
        super().__init__(operands=[tensor])


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends the body of a compute and names its results."""

    name = "poet.yield"

    arguments = var_operand_def(TensorType)

    traits = traits_def(HasParent(ComputeOp), IsTerminator(), ReturnLike())

    assembly_format = "attr-dict ($arguments^ `:` type($arguments))?"

    def __init__(self, *arguments: SSAValue) -> None:
        super().__init__(operands=[arguments])


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a graph and names its results."""

    name = "poet.return"

    arguments = var_operand_def(AnyAttr())

    traits = traits_def(HasParent(GraphOp), IsTerminator(), ReturnLike())

    assembly_format = "attr-dict ($arguments^ `:` type($arguments))?"

    def __init__(self, *arguments: SSAValue) -> None:
        super().__init__(operands=[arguments])

    def verify_(self) -> None:
        graph = self.parent_op()
        if not isinstance(graph, GraphOp):
            return
        expected = graph.function_type.outputs.data
        if tuple(self.operand_types) != expected:
            raise VerifyException(
                f"poet.return of ({_types(self.operand_types)}) "
                f"in a graph with results ({_types(expected)})"
            )


def offset_of(value: SSAValue) -> int | None:
    """Where a value of a graph is, in bytes: in the arena, or in storage for a page.

    None as long as memory is not planned, and for buffers of the caller.
    """
    if isinstance(value, BlockArgument):
        graph = value.block.parent_op()
        return graph.offset(value.index) if isinstance(graph, GraphOp) else None
    match value.owner:
        case ComputeOp() as compute if isinstance(value, OpResult):
            offsets = compute.result_offsets
            offset = NO_OFFSET if offsets is None else offsets[value.index]
            return None if offset == NO_OFFSET else offset
        case _:
            transfer = transfer_of(value)
            return None if transfer is None else _int(transfer.offset)


GRAPH_OPS = (
    ComputeOp,
    PageOutOp,
    PageInOp,
    PageOutStartOp,
    PageInStartOp,
    WaitOp,
    FreeOp,
    ReturnOp,
)
"""The operations that may stand directly in a graph."""

Poet = Dialect(
    "poet",
    [GraphOp, *GRAPH_OPS, YieldOp],
    [PageType, TransferType, CostAttr],
)
