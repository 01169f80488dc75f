"""`stablehlo-to-poet`: `func.func @main` on StableHLO becomes `poet.graph @main`.

Each operation becomes a compute of its own, except that constants are cloned into the computes that
use them. `poet-fuse` merges the computes into kernels afterwards.

What makes this more than a change of syntax is that a parameter and its new value share one buffer:
the compute that makes the new value has the old parameter as an operand and is in place on it.
Hence three rules, kept here once and for all:

1. The operation that defines the new value is itself in place only if it reads the parameter
   element by element. Otherwise it keeps its own result, and a compute labelled `update` copies
   that over the parameter (`poet-fuse` merges the two where that is legal).
2. Whatever reads the old parameter runs before its update, and is moved there if need be.
3. Where rules 1 and 2 contradict each other (`p, q = q - p, p - q`, or a swap), an update is done
   by copy after all, or reads a copy of what would be overwritten.

Besides, every result is a buffer of its own: an input returned as it is, or a value returned twice,
is copied. A parameter returned unchanged as its own new value needs no compute: it is frozen, which
means that it is never written, and read where it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import (
    IntegerAttr,
    ModuleOp,
    StringAttr,
    TensorType,
    UnitAttr,
    i64,
)
from xdsl.dialects.func import CallOp, FuncOp
from xdsl.dialects.func import ReturnOp as FuncReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from poetc.errors import InputError, collected
from poetc.ir.aliasing import aliasing_faults, updates_of
from poetc.ir.calls import public_functions
from poetc.ir.locations import source_location
from poetc.ir.poet import IO_PLACES, STORED, ComputeOp, GraphOp, ReturnOp, YieldOp
from poetc.ir.stablehlo import (
    ConstantOp,
    ElementwiseOp,
    Resume,
    StableHLO,
    is_expanded,
)
from poetc.ir.types import ELEMENT_TYPES, listed
from poetc.options import default
from poetc.passes.topological import ordered
from poetc.patterns import chosen

NAME = "poet.name"
"""Attribute of an argument or result: what it is called in the source."""

_STABLEHLO = frozenset({*StableHLO.operations, *Resume.operations})


FROZEN = "poet.frozen"
"""Unit attribute of an argument that no step changes, such as a weight that is not trained. With
`poet.stored` beside it, it is on auxiliary storage."""

FROZEN_ON_STORAGE = "storage"
"""Among the names of the option `frozen`: what is frozen is on auxiliary storage."""


@dataclass(frozen=True)
class StableHLOToPoetPass(ModulePass):
    """Turns the public function `main` into a graph with one compute per operation.

    `io`, "arena" or "caller", says where inputs and results are (default: in the arena). `frozen`
    says which arguments are read where they are: "auto", those that the step returns unchanged as
    their own new value, and those with the attribute `poet.frozen`; those of these names, patterns
    or numbers, separated by commas, too; with "storage" among them, all these are on auxiliary
    storage, and paged in where they are read; "off": none.
    """

    name = "stablehlo-to-poet"

    io: str | None = None
    frozen: str = default("frozen")

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.io not in (None, *IO_PLACES):
            raise InputError(f"io is {' or '.join(IO_PLACES)}, not {self.io}")
        main = _main(op)
        _check(main)
        frozen = frozen_arguments(main, self.frozen)
        graph = _Converter(main, frozen, frozen_on_storage(self.frozen)).convert()
        if self.io is not None:
            graph.attributes["io"] = StringAttr(self.io)
        Rewriter.insert_op(graph, InsertPoint.before(main))
        for function in [f for f in op.ops if isinstance(f, FuncOp)]:
            # A private function that is left has been inlined everywhere.
            Rewriter.erase_op(function)


def _main(module: ModuleOp) -> FuncOp:
    public = public_functions(module)
    if not public:
        raise InputError("no public function @main", source_location(module))
    if len(public) > 1:
        names = ", ".join(f"@{f.sym_name.data}" for f in public)
        raise InputError(
            f"a step alone is taken here, and there are {len(public)} public functions: {names}; "
            "poetc itself and poetc.compile take entry points beside the step",
            source_location(public[1]),
        )
    (main,) = public
    if main.sym_name.data != "main":
        raise InputError(
            f"no public function @main, only @{main.sym_name.data}", source_location(main)
        )
    if len(main.body.blocks) != 1:
        raise InputError("@main must have one block", source_location(main))
    return main


# Checks


def _check(main: FuncOp) -> None:
    """Raises an `InputError` that lists everything in `main` that cannot be converted."""
    found: list[tuple[Operation, str]] = [
        (main, f"argument {i}: {problem}")
        for i, type in enumerate(main.function_type.inputs)
        for problem in _type_problems(type)
    ]
    found += ((op, problem) for op in main.body.block.ops for problem in _op_problems(op))
    faults = [InputError(problem, source_location(op)) for op, problem in found]
    faults += aliasing_faults(main)
    if faults:
        # A fault that was inlined several times is there several times.
        raise collected(faults)


def _type_problems(type: Attribute) -> Iterator[str]:
    if not isinstance(type, TensorType):
        yield f"{type} is not a tensor of static shape"
        return
    if not type.has_static_shape():
        yield f"{type} has a dynamic shape"
    if type.element_type not in ELEMENT_TYPES:
        yield f"element type {type.element_type} is not supported ({listed('and')} are)"


def _op_problems(op: Operation) -> Iterator[str]:
    if isinstance(op, FuncReturnOp):
        return
    if isinstance(op, CallOp):
        yield f"call of @{op.callee.string_value()} is not inlined (stablehlo-simplify does it)"
    elif is_expanded(op):
        yield f"{op.name} is not expanded (stablehlo-simplify does it)"
    elif type(op) not in _STABLEHLO:
        yield f"{_name(op)} is not supported"
    else:
        # Several results or equal types make one problem.
        found = dict.fromkeys(p for result in op.results for p in _type_problems(result.type))
        yield from (f"{op.name}: {problem}" for problem in found)


def _name(op: Operation) -> str:
    """The name in the source, also of an operation that no dialect registers."""
    unregistered = op.attributes.get("op_name__")
    return unregistered.data if isinstance(unregistered, StringAttr) else op.name


# Conversion


@dataclass(eq=False)
class _Node:
    """One compute to be: an operation of `main`, or a copy (`source` is None)."""

    label: str
    position: float
    """Where it stood in `main`; the order is kept where nothing speaks against it."""
    inputs: list[SSAValue]
    """Values of `main`, constants apart, or results of copies."""
    outputs: tuple[SSAValue, ...]
    """Values of `main` that it defines; a copy defines a fresh value."""
    source: Operation | None = None
    origin: Operation | None = None
    """The operation whose location it gets."""
    yields: SSAValue | None = None
    """The value that a copy yields: one of the inputs or a constant."""
    inplace: int | None = None
    """The input whose buffer the result takes."""
    before: set[_Node] = field(default_factory=set)
    """Nodes that must run later though they use none of its results."""


class _Converter:
    """Builds the graph of one function."""

    def __init__(self, main: FuncOp, frozen: frozenset[int], on_storage: bool) -> None:
        self.main, self.frozen, self.on_storage = main, frozen, on_storage
        self.arguments = main.body.block.args
        self.updates = updates_of(main)
        self.nodes: list[_Node] = []
        self.definer: dict[SSAValue, _Node] = {}
        self.readers: dict[SSAValue, list[_Node]] = {}

    def convert(self) -> GraphOp:
        ops = list(self.main.body.block.ops)
        returned = list(ops[-1].operands)
        for position, op in enumerate(ops[:-1]):
            if not isinstance(op, ConstantOp):
                inputs = dict.fromkeys(v for v in op.operands if not _is_constant(v))
                self._add(_Node(_label(op), position, list(inputs), op.results, op, op))
        self.end = float(len(ops))
        results = self._results(returned)
        return self._build(self._order(), results)

    def _add(self, node: _Node) -> _Node:
        self.nodes.append(node)
        for value in node.outputs:
            self.definer[value] = node
        for value in node.inputs:
            self.readers.setdefault(value, []).append(node)
        return node

    def _add_copy(self, label: str, value: SSAValue, over: SSAValue | None = None) -> _Node:
        """A compute that yields `value` into a buffer of its own, or into that of `over`.

        It stands just after what defines the value; for arguments and constants at the end.
        """
        inputs = [] if over is None else [over]
        if not _is_constant(value):
            inputs.append(value)
        # The result has no value in `main`; an argument outside of any block stands for it.
        fresh = Block(arg_types=[value.type]).args[0]
        fresh.name_hint = value.name_hint
        definer = self.definer.get(value)
        position = self.end if definer is None else definer.position + 0.5
        origin = value.owner if isinstance(value.owner, Operation) else self.main
        inplace = None if over is None else 0
        return self._add(_Node(label, position, inputs, (fresh,), None, origin, value, inplace))

    # Results

    def _results(self, returned: Sequence[SSAValue]) -> list[SSAValue]:
        """The value that each result is, after the updates and copies it takes are added."""
        results = list(returned)
        outputs = sorted(set(range(len(returned))) - set(self.updates.values()))

        # Whatever reads an argument is added before the updates are put after all readers.
        moved: list[_Node] = []
        computed: list[tuple[BlockArgument, int]] = []
        for argument, result in self.updates.items():
            parameter, value = self.arguments[argument], returned[result]
            if value in self.definer:
                computed.append((parameter, result))
            elif value is not parameter:
                node = self._add_copy("update", value, over=parameter)
                moved.append(node)
                results[result] = node.outputs[0]
        for result in outputs:
            value = returned[result]
            if value not in self.definer:
                label = "constant" if _is_constant(value) else "copy"
                results[result] = self._add_copy(label, value).outputs[0]

        claimed: set[SSAValue] = set()
        for parameter, result in computed:
            value = returned[result]
            node = self.definer[value]
            if (
                value in claimed
                or not _reads_elementwise(node.source, parameter)
                or self._reaches(node, self._other_readers(parameter, node))
            ):
                node = self._add_copy("update", value, over=parameter)
                results[result] = node.outputs[0]
            else:
                claimed.add(value)
                node.inplace = node.inputs.index(parameter)
            self._run_after_readers(node, parameter)
        for node in moved:
            parameter = node.inputs[0]
            if self._reaches(node, self._other_readers(parameter, node)):
                self._read_copy(node)
            self._run_after_readers(node, parameter)

        for result in outputs:
            value = returned[result]
            if value in claimed:
                results[result] = self._add_copy("copy", value).outputs[0]
            elif value in self.definer:
                claimed.add(value)
        return results

    def _read_copy(self, update: _Node) -> None:
        """Makes an update by an argument read a copy of that argument, made beforehand."""
        argument = update.yields
        assert argument is not None
        copy = self._add_copy("copy", argument)
        update.inputs[1] = update.yields = copy.outputs[0]
        self.readers[argument].remove(update)
        self.readers[copy.outputs[0]] = [update]
        # The operation that overwrites the argument now waits for the copy instead of the update.
        copy.before, update.before = update.before, set()

    def _other_readers(self, value: SSAValue, node: _Node) -> set[_Node]:
        return {reader for reader in self.readers.get(value, ()) if reader is not node}

    def _run_after_readers(self, update: _Node, parameter: SSAValue) -> None:
        for reader in self._other_readers(parameter, update):
            reader.before.add(update)

    def _successors(self, node: _Node) -> Iterator[_Node]:
        yield from node.before
        for value in node.outputs:
            yield from self.readers.get(value, ())

    def _reaches(self, start: _Node, targets: set[_Node]) -> bool:
        """Whether any of `targets` must run after `start`."""
        seen: set[_Node] = set()
        stack = [start] if targets else []
        while stack:
            for node in self._successors(stack.pop()):
                if node in targets:
                    return True
                if node not in seen:
                    seen.add(node)
                    stack.append(node)
        return False

    def _order(self) -> list[_Node]:
        """All nodes, each after what it must follow, otherwise by position."""
        order = ordered(self.nodes, self._successors, lambda node: node.position)
        assert len(order) == len(self.nodes), "updates contradict each other"
        return order

    # The graph itself

    def _build(self, order: Iterable[_Node], results: Sequence[SSAValue]) -> GraphOp:
        names = result_names(self.main)
        graph = GraphOp(
            "main",
            self.main.function_type,
            arg_attrs=[
                self._argument_attributes(i, name)
                for i, name in enumerate(argument_names(self.main))
            ],
            res_attrs=[{} if name is None else {NAME: StringAttr(name)} for name in names],
        )
        graph.location = self.main.location
        values: dict[SSAValue, SSAValue] = {}
        for old, new in zip(self.arguments, graph.arguments, strict=True):
            new.name_hint, new.location = old.name_hint, old.location
            values[old] = new
        for node in order:
            compute = _compute(node, values)
            graph.block.add_op(compute)
            values.update(zip(node.outputs, compute.results, strict=True))
        end = ReturnOp(*(values[value] for value in results))
        last = self.main.body.block.last_op
        assert last is not None
        end.location = last.location
        graph.block.add_op(end)
        return graph

    def _argument_attributes(self, index: int, name: str | None) -> dict[str, Attribute]:
        attributes: dict[str, Attribute] = {"poet.role": StringAttr("input")}
        result = self.updates.get(index)
        if result is not None:
            attributes["poet.role"] = StringAttr("param")
            attributes["poet.updates"] = IntegerAttr(result, i64)
        given = self.main.arg_attrs.data[index].data if self.main.arg_attrs is not None else {}
        if STORED in given or (index in self.frozen and self.on_storage):
            attributes |= {"poet.role": StringAttr("param"), STORED: UnitAttr()}
        elif index in self.frozen:
            attributes["poet.role"] = StringAttr("frozen")
        if name is not None:
            attributes[NAME] = StringAttr(name)
        return attributes


def _compute(node: _Node, values: dict[SSAValue, SSAValue]) -> ComputeOp:
    compute = ComputeOp(
        node.label,
        [values[value] for value in node.inputs],
        [value.type for value in node.outputs],
        inplace=() if node.inplace is None else [(0, node.inplace)],
    )
    inner: dict[SSAValue, SSAValue] = dict(zip(node.inputs, compute.block.args, strict=True))

    def inside(value: SSAValue) -> SSAValue:
        if value not in inner:
            assert isinstance(value.owner, ConstantOp)
            constant = value.owner.clone()
            compute.block.add_op(constant)
            inner[value] = constant.results[0]
        return inner[value]

    if node.source is None:
        assert node.yields is not None
        yielded: Sequence[SSAValue] = [inside(node.yields)]
    else:
        for operand in node.source.operands:
            inside(operand)
        copy = node.source.clone(inner)
        compute.block.add_op(copy)
        yielded = copy.results
    compute.block.add_op(YieldOp(*yielded))
    if node.origin is not None:
        compute.location = node.origin.location
    for old, new in zip(node.outputs, compute.results, strict=True):
        new.name_hint = old.name_hint
    return compute


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, ConstantOp)


def _label(op: Operation) -> str:
    return op.name.split(".")[-1]


def _reads_elementwise(op: Operation | None, value: SSAValue) -> bool:
    """Whether each element of the result depends on that same element of `value` only.

    Nothing but direct operands of element-wise operations counts here; `poet-fuse` sees further.
    """
    elementwise = isinstance(op, ElementwiseOp)
    return elementwise and value in op.operands and op.result.type == value.type


def frozen_on_storage(asked: str) -> bool:
    """Whether the option asks for what is frozen to be on auxiliary storage."""
    return FROZEN_ON_STORAGE in asked.split(",")


def frozen_arguments(main: FuncOp, asked: str) -> frozenset[int]:
    """The arguments of a simplified step that are frozen; `asked` is the option of the pass.

    Raises InputError that lists the names in `asked` that no argument has, and those of arguments
    that the step changes.
    """
    if asked == "off":
        return frozenset()
    updates, last = updates_of(main), main.body.block.last_op
    assert last is not None
    unchanged = {i for i, k in updates.items() if last.operands[k] is main.body.block.args[i]}
    attributes = [each.data for each in main.arg_attrs or ()]
    marked = {i for i, given in enumerate(attributes) if FROZEN in given}
    wanted = {i: f"{FROZEN} of argument {i}" for i in sorted(marked)}
    names = [name or f"arg{i}" for i, name in enumerate(argument_names(main))]
    problems: list[str] = []
    for word in asked.split(","):
        if word in (default("frozen"), FROZEN_ON_STORAGE):
            continue
        number = re.fullmatch(r"(?:arg)?(\d{1,9})", word, re.ASCII)
        found = chosen(names, word) or ([int(number[1])] if number else [])
        if not found or found[0] >= len(names):
            problems.append(f"--frozen: no argument {word!r}; there are {', '.join(names)}")
        else:
            wanted |= dict.fromkeys(found, f"--frozen={word}")
    problems += [
        f"{what}: the step gives {names[i]} a new value"
        for i, what in wanted.items()
        if i in updates and i not in unchanged
    ]
    if problems:
        raise collected([InputError(problem, source_location(main)) for problem in problems])
    return frozenset(unchanged | wanted.keys())


def argument_names(main: FuncOp) -> list[str | None]:
    """The name of each argument where it has one: that in its attribute `poet.name`, which our
    frontends write, or the name of its new value. JAX by itself names results only."""
    names: list[str | None] = [None] * len(main.function_type.inputs)
    results = result_names(main)
    for i, result in updates_of(main).items():
        names[i] = results[result]
    for i, attributes in enumerate(main.arg_attrs or ()):
        given = attributes.data.get(NAME)
        if isinstance(given, StringAttr):
            names[i] = given.data
    return names


def result_names(main: FuncOp) -> list[str | None]:
    """The name of each result where JAX gives one: `result[1]['w']` is kept as `[1]['w']`."""
    names: list[str | None] = [None] * len(main.function_type.outputs)
    for i, attributes in enumerate(main.res_attrs or ()):
        info = attributes.data.get("jax.result_info")
        if isinstance(info, StringAttr):
            names[i] = re.sub(r"^result(?=\[|\.)", "", info.data) or None
    return names
