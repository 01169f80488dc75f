"""The graph, its end, and where its values are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    StringAttr,
    SymbolNameConstraint,
    TensorType,
)
from xdsl.dialects.utils import parse_func_op_like, print_func_op_like
from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator, ReturnLike, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from poetc.ir.poet.attributes import (
    BANKED,
    IO_PLACES,
    NO_OFFSET,
    ROLES,
    STORED,
    InGraph,
    PageType,
    content,
    int_or_none,
    type_list,
    verify_offset,
    verify_static_tensor,
)
from poetc.ir.poet.compute import ComputeOp, RunOp
from poetc.ir.poet.stream import StreamOp
from poetc.ir.poet.transfers import AnyPageIn, AnyPageOut, FreeOp, transfer_of

_RESERVED = ("sym_name", "function_type", "arg_attrs", "res_attrs")


@irdl_op_definition
class GraphOp(IRDLOperation):
    """One training step: arguments in, results out, operations in execution order.

    Attributes of argument i (`arg_attrs`):
    `poet.role`: `"input"` (given for each step, the default), `"param"` (kept between steps), or
    `"frozen"` (never written, and read where it is);
    `poet.stored`: it is on auxiliary storage, wherever others are; `poet.banked`: in two banks;
    `poet.updates`: index of the result that is the new value of a parameter;
    `poet.name`: the name in the source, for reports;
    `poet.offset`: place in the arena, or in auxiliary storage for an argument of page type.

    An argument of page type is a parameter that is on auxiliary storage between steps. The result
    that updates it is a page, too: `new_page`.

    With the attribute `io = "caller"`, inputs and results are in buffers of the caller, which take
    no RAM here: they are not in the arena, never freed, paged or taken over in place.

    Discardable attributes that passes leave on the graph: `ram` (budget), `arena_bytes`,
    `storage_bytes`, `schedule` (dictionary of what the scheduler proved), and where parameters are
    on storage `bank_bytes` (from the place of an old value to that of the new one) and
    `storage_unit` (bytes that a write which is cut off may spoil together). `cache_line_bytes` is
    there for devices whose transfers do not go through a data cache with such lines. Between
    poet-schedule and poet-plan-memory, `planned` has the offset of each buffer in the arena.
    `block_bytes` are those of the blocks of pages, where kernels run in tiles.
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
        """One of `ROLES`."""
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

    def arg_name(self, index: int) -> str:
        """The name of argument `index` in the source, or `arg<index>`."""
        attr = self.arg_attr(index, "poet.name")
        hint = self.arguments[index].name_hint
        return attr.data if isinstance(attr, StringAttr) else hint or f"arg{index}"

    def result_name(self, index: int) -> str:
        """The name of result `index` in the source, or `out<index>`."""
        attr = None if self.res_attrs is None else self.res_attrs.data[index].data.get("poet.name")
        return attr.data if isinstance(attr, StringAttr) else f"out{index}"

    @property
    def is_scheduled(self) -> bool:
        """Whether live ranges are explicit: every value ends where the graph says."""
        return "schedule" in self.attributes or any(
            isinstance(op, FreeOp | AnyPageIn | AnyPageOut | StreamOp) for op in self.block.ops
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
    def block_bytes(self) -> int | None:
        return self._int_attribute("block_bytes")

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
        """The place of inputs and results: the `"arena"`, or buffers of the `"caller"`."""
        io = self.attributes.get("io")
        return io.data if isinstance(io, StringAttr) else "arena"

    def caller_values(self) -> frozenset[SSAValue]:
        """The values in buffers of the caller: frozen arguments, and with io=caller inputs, and
        results but for new parameters."""
        frozen = frozenset(a for a in self.arguments if self.is_frozen(a.index))
        if self.io != "caller":
            return frozen
        inputs = {a for a in self.arguments if self.role(a.index) == "input"}
        return frozen.union(inputs, _outputs(self).values())

    def is_frozen(self, index: int) -> bool:
        """Whether argument `index` is never written, and read where it is."""
        return self.role(index) == "frozen"

    def unwritten_output(self) -> int | None:
        """A result that should be in a buffer of the caller, but that no compute makes."""
        unwritten = (k for k, v in _outputs(self).items() if not isinstance(v.owner, RunOp))
        return next(unwritten, None) if self.io == "caller" else None

    def is_stored(self, index: int) -> bool:
        """Whether argument `index` is on auxiliary storage between steps."""
        return isinstance(self.arguments[index].type, PageType)

    def new_page(self, index: int) -> SSAValue | None:
        """The page that is written as the new value of argument `index`: None for an argument that
        is not on storage, or returned as it came."""
        result = self.updates(index)
        if result is None or not self.is_stored(index):
            return None
        page = self.return_op.arguments[result]
        made = isinstance(transfer_of(page), AnyPageOut) or isinstance(page.owner, StreamOp)
        return page if made else None

    def verify_(self) -> None:
        where = f"poet.graph @{self.sym_name.data}"
        inputs, outputs = self.function_type.inputs.data, self.function_type.outputs.data
        if self.block.arg_types != inputs:
            raise VerifyException(f"{where}: block arguments must have the types of its inputs")
        for kind, types in (("argument", inputs), ("result", outputs)):
            for i, type in enumerate(types):
                if not isinstance(type, PageType):
                    verify_static_tensor(type, f"{where}: {kind} {i}")
        for op in self.block.ops:
            if not op.has_trait(InGraph, value_if_unregistered=False):
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
        _verify_arguments(self, where)
        io = self.attributes.get("io")
        if io is not None and (not isinstance(io, StringAttr) or io.data not in IO_PLACES):
            raise VerifyException(f'{where}: io must be "arena" or "caller", got {io}')

    def arg_shape(self, index: int) -> tuple[int, ...]:
        """The shape of argument `index`, also of one that is on storage."""
        type_ = content(self.function_type.inputs.data[index])
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


def runs_of(graph: GraphOp) -> tuple[RunOp, ...]:
    """The computes of a graph, and the kernels that run in tiles, in execution order."""
    return tuple(op for op in graph.block.ops if isinstance(op, RunOp))


def _outputs(graph: GraphOp) -> dict[int, SSAValue]:
    """The results that are no new values of arguments."""
    updated = {graph.updates(i) for i in range(len(graph.arguments))}
    return {k: v for k, v in enumerate(graph.return_op.arguments) if k not in updated}


def is_banked(graph: GraphOp, index: int) -> bool:
    """Whether the page of argument `index` is updated, here or by another graph."""
    return graph.new_page(index) is not None or graph.arg_attr(index, BANKED) is not None


def stays_on_storage(graph: GraphOp, index: int) -> bool:
    """Whether argument `index` is to be on storage between steps, wherever parameters are."""
    return graph.arg_attr(index, STORED) is not None


def _verify_arguments(graph: GraphOp, where: str) -> None:
    inputs, outputs = graph.function_type.inputs.data, graph.function_type.outputs.data
    updated: dict[int, int] = {}
    for i, input in enumerate(inputs):
        argument = f"{where}: argument {i}"
        role = graph.arg_attr(i, "poet.role")
        if role is not None and (not isinstance(role, StringAttr) or role.data not in ROLES):
            known = ", ".join(f'"{name}"' for name in ROLES)
            raise VerifyException(f"{argument}: role must be one of {known}, got {role}")
        for name in ("poet.updates", "poet.offset"):
            attr = graph.arg_attr(i, name)
            if attr is not None and not isinstance(attr, IntegerAttr):
                raise VerifyException(f"{argument}: {name} must be an integer, got {attr}")
        verify_offset(graph.offset(i), f"{argument}: offset")
        if graph.is_frozen(i) and isinstance(input, PageType):
            raise VerifyException(f"{argument}: what is frozen is no page")
        if stays_on_storage(graph, i) and graph.role(i) != "param":
            raise VerifyException(f"{argument}: only a parameter has {STORED}")
        if graph.arg_attr(i, BANKED) is not None and not isinstance(input, PageType):
            raise VerifyException(f"{argument}: only a page has {BANKED}")
        result = graph.updates(i)
        if result is None:
            continue
        if graph.role(i) == "input":
            raise VerifyException(f"{argument}: an input has no poet.updates")
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
        if graph.is_frozen(i) and result not in _places(graph.return_op, graph.arguments[i]):
            raise VerifyException(f"{argument} is frozen, but result {result} is another value")
        updated[result] = i


def _places(returns: ReturnOp, value: SSAValue) -> list[int]:
    """The results that are `value`."""
    return [k for k, returned in enumerate(returns.arguments) if returned is value]


def _dictionaries(
    attrs: Iterable[dict[str, Attribute] | DictionaryAttr] | None,
) -> ArrayAttr[DictionaryAttr] | None:
    """One dictionary per argument; None when all are empty, as nothing is printed then."""
    if attrs is None:
        return None
    array = [a if isinstance(a, DictionaryAttr) else DictionaryAttr(a) for a in attrs]
    return ArrayAttr(array) if any(a.data for a in array) else None


@irdl_op_definition
class ReturnOp(IRDLOperation):
    """Ends a graph and names its results."""

    name = "poet.return"

    arguments = var_operand_def(AnyAttr())

    traits = traits_def(InGraph(), IsTerminator(), ReturnLike())

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
                f"poet.return of ({type_list(self.operand_types)}) "
                f"in a graph with results ({type_list(expected)})"
            )


def offset_of(value: SSAValue) -> int | None:
    """The offset of a value of a graph in bytes: in the arena, or in storage for a page. None as
    long as memory is not planned, and for buffers of the caller.

    None as long as memory is not planned, and for buffers of the caller.
    """
    if isinstance(value, BlockArgument):
        graph = value.block.parent_op()
        return graph.offset(value.index) if isinstance(graph, GraphOp) else None
    match value.owner:
        case RunOp() as compute if isinstance(value, OpResult):
            offsets = compute.result_offsets
            offset = NO_OFFSET if offsets is None else offsets[value.index]
            return None if offset == NO_OFFSET else offset
        case _:
            transfer = transfer_of(value)
            return None if transfer is None else int_or_none(transfer.offset)
