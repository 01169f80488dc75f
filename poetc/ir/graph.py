"""The graph view: a poet.graph as a scheduling problem, and a schedule as a poet.graph.

`view_unscheduled` numbers the tensors and kernels of a graph that has no operations that page and
free yet; `write_schedule` rewrites that graph to what a list of steps says; `view_scheduled` reads
the steps of a scheduled graph back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType
from xdsl.ir import Attribute, BlockArgument, OpResult, SSAValue
from xdsl.ir import Operation as IROperation
from xdsl.rewriter import Rewriter

from poetc.errors import InputError
from poetc.ir.buffers import element_bytes
from poetc.ir.poet import (
    ComputeOp,
    CostAttr,
    FreeOp,
    GraphOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    PageType,
    ReturnOp,
    RunOp,
    StreamOp,
    WaitOp,
    content,
    stays_on_storage,
    tensor_type,
)
from poetc.schedule.arena.pack import round_up
from poetc.schedule.model.problem import (
    Compute,
    Free,
    Operation,
    PageIn,
    PageOut,
    Place,
    Problem,
    ProblemError,
    Step,
    Tensor,
    Variant,
)

ALIGN_BYTES = 4
"""Every buffer in the arena begins at a multiple of this and is padded to one."""

RAM_SCOPES = ("all", "activations")
"""The scope of the budget: everything, or all but parameters and their gradients (as the paper)."""


@dataclass(frozen=True)
class Transfer:
    """The cost of moving one tensor between RAM and storage."""

    time_ns: int
    energy_nj: int


@dataclass(frozen=True)
class Storage:
    """The auxiliary storage of a device, as far as a schedule depends on it.

    `pagein` and `pageout` give the cost of moving that many bytes. With `dma`, transfers overlap
    computing. `capacity_bytes` None means that it never runs out. What is paged in takes whole
    lines of `line_bytes`: transfers do not go through the cache that has them.
    """

    pagein: Callable[[int], Transfer]
    pageout: Callable[[int], Transfer]
    dma: bool = False
    capacity_bytes: int | None = None
    line_bytes: int = 1


FREE_STORAGE = Storage(lambda _: Transfer(0, 0), lambda _: Transfer(0, 0))
"""A storage whose transfers cost nothing, for questions that do not depend on their cost."""

MayShare = Callable[[ComputeOp], Iterable[tuple[int, int]]]
"""Gives the pairs (result, operand) of a compute whose result may lie over the operand."""


MakeStream = Callable[[int, int, Sequence[SSAValue]], StreamOp]
"""Makes the stream that runs a variant of an operation on operands, some of which are pages."""

Settle = Callable[[Sequence[Step]], "tuple[GraphView, GraphView] | None"]
"""Finds out what the variants cost that steps run: the view with that, in which the steps mean the
same, and one with the variants that are worth it now. None where it was known."""


@dataclass(frozen=True)
class GraphView:
    """A problem and what its indices mean in `graph`.

    `values[v]` is the SSA value of tensor v, `computes[k]` the op of operation k. `steps` are those
    of a scheduled graph, step s being op `ops[s]`; both are empty for an unscheduled one. A
    transfer is the step at which it starts; waits are no steps. `make_stream`, `settle` and
    `any_tiles` are there if operations of an unscheduled graph have variants, which cost no less
    than the problem says, and just that once they are settled; some were `left_out` if there was no
    time to look for them. Of a scheduled one, a stream is an
    operation with one variant. What is impossible in `any_tiles`, where each operation has one
    variant that needs no more RAM or time than it does in any tiles, is so in all tiles, not just
    in the variants of `problem`.
    """

    graph: GraphOp
    problem: Problem
    values: tuple[SSAValue, ...]
    computes: tuple[RunOp, ...]
    steps: tuple[Step, ...] = ()
    ops: tuple[IROperation, ...] = ()
    make_stream: MakeStream | None = None
    settle: Settle | None = None
    any_tiles: Problem | None = None
    left_out: bool = False


def graphs(module: ModuleOp) -> tuple[GraphOp, ...]:
    """The graphs directly in `module`, in order."""
    return tuple(op for op in module.ops if isinstance(op, GraphOp))


def widest_element_bytes(op: IROperation) -> int:
    """Bytes of the largest element of any tensor that `op`, or an operation in it, makes or takes:
    what buffers of these tensors are aligned to, if it is more than `ALIGN_BYTES`."""
    widest = 1
    for inner in op.walk():
        for value in (*inner.operands, *inner.results):
            type = content(value.type)
            if isinstance(type, TensorType):
                widest = max(widest, element_bytes(type.element_type))
    return widest


def tensor_bytes(type: Attribute) -> int:
    """Bytes of a tensor of static shape, without padding."""
    assert isinstance(type, TensorType)
    count = 1
    for extent in type.get_shape():
        count *= extent
    return count * element_bytes(type.element_type)


def view_unscheduled(
    graph: GraphOp,
    *,
    storage: Storage | None = None,
    ram_bytes: int | None = None,
    deadline_ns: int | None = None,
    idle_power_nw: int = 0,
    align: int = ALIGN_BYTES,
    ram_scope: str = "all",
    store_params: bool = False,
    may_share: MayShare | None = None,
) -> GraphView:
    """The scheduling problem of a graph without operations that page and free.

    Arguments are in RAM at the start; results, parameters and new values of parameters are there at
    the end. What is in buffers of the caller takes no bytes. With `store_params`, parameters and
    their new values are on `storage` instead. Kernels without a cost count as free. `may_share`
    gives in-place pairs that a compute allows beside those that it has. Raises InputError for a
    graph that is scheduled already, in which a parameter is read after its update, or whose
    parameters cannot be on storage.
    """
    if graph.is_scheduled:
        raise InputError(f"graph @{graph.sym_name.data} is scheduled already")
    stored = store_params or any(stays_on_storage(graph, i) for i in range(len(graph.arguments)))
    if stored and storage is None:
        raise InputError("parameters on storage need a device with storage")
    if stored and ram_scope != "all":
        raise InputError(f"ram-scope={ram_scope} goes with parameters in RAM only")
    numbering = _Numbering(
        graph, storage, align, ram_scope, store_params=store_params, may_share=may_share
    )
    return numbering.view(ram_bytes, deadline_ns, idle_power_nw)


def view_scheduled(
    graph: GraphOp,
    *,
    storage: Storage | None = None,
    idle_power_nw: int = 0,
    align: int = ALIGN_BYTES,
    ram_scope: str = "all",
) -> GraphView:
    """The steps of a scheduled graph, and the problem that they solve.

    Without `storage`, transfers cost nothing; everything may be paged, as the graph does it.
    Arguments of page type are on storage at the start, results of page type at the end. Each
    poet.compute is an operation of its own, also when it repeats another; a tensor that is paged in
    is the tensor that was paged out. Limits are absent from the problem.
    """
    storage = storage or FREE_STORAGE
    numbering = _Numbering(graph, storage, align, ram_scope, page_params=True)
    view = numbering.view(None, None, idle_power_nw)
    return replace(view, steps=tuple(numbering.steps), ops=tuple(numbering.ops))


class _Numbering:
    """Assigns tensor and operation indices in program order."""

    def __init__(
        self,
        graph: GraphOp,
        storage: Storage | None,
        align: int,
        ram_scope: str,
        *,
        page_params: bool = False,
        store_params: bool = False,
        may_share: MayShare | None = None,
    ) -> None:
        if ram_scope not in RAM_SCOPES:
            raise InputError(f"ram-scope is {' or '.join(RAM_SCOPES)}, not {ram_scope}")
        self.graph, self.storage, self.align = graph, storage, align
        self.page_params, self.may_share = page_params, may_share
        self.stored = {
            i
            for i in range(len(graph.arguments))
            if graph.is_stored(i)
            or stays_on_storage(graph, i)
            or (store_params and graph.role(i) == "param")
        }
        self.index: dict[SSAValue, int] = {}  # also of pages: the tensor they hold
        self.values: list[SSAValue] = []
        self.computes: list[RunOp] = []
        self.steps: list[Step] = []
        self.ops: list[IROperation] = []
        self.caller_values = graph.caller_values()
        self._number()
        self.callers = {self.index[value] for value in self.caller_values}
        self.replaces = self._replaced()
        self.line_bytes = max(
            graph.cache_line_bytes or 1, self.storage.line_bytes if self.storage else 1
        )
        self.free_of_charge = self._outside_scope() if ram_scope == "activations" else set()

    def _number(self) -> None:
        for value in self.graph.arguments:
            if self.graph.is_stored(value.index) and self.graph.role(value.index) != "param":
                raise InputError(
                    f"graph @{self.graph.sym_name.data}: argument "
                    f"{self.graph.arg_name(value.index)} is a page but no parameter"
                )
            self._add(value)
        for op in self.graph.block.ops:
            match op:
                case RunOp():
                    for result in op.results:
                        self._add(result)
                    pairs = self._pairs(op, op.inplace_pairs)
                    variant = 0 if isinstance(op, StreamOp) else None
                    self._step(op, Compute(len(self.computes), pairs, variant))
                    self.computes.append(op)
                case PageOutOp() | PageOutStartOp():
                    self.index[op.page] = self.index[op.tensor]
                    self._step(op, PageOut(self.index[op.tensor]))
                case PageInOp() | PageInStartOp():
                    self.index[op.tensor] = self.index[op.page]
                    self._step(op, PageIn(self.index[op.page]))
                case FreeOp():
                    self._step(op, Free(self.index[op.tensor]))
                case _:
                    assert isinstance(op, WaitOp | ReturnOp)

    def _add(self, value: SSAValue) -> None:
        self.index[value] = len(self.values)
        self.values.append(value)

    def _step(self, op: IROperation, step: Step) -> None:
        self.ops.append(op)
        self.steps.append(step)

    def _pairs(self, op: RunOp, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """(result, operand) positions of `op` as tensors, each pair once."""
        values = ((op.results[result], op.operands[operand]) for result, operand in pairs)
        own = (pair for pair in values if self.caller_values.isdisjoint(pair))
        return tuple(dict.fromkeys((self.index[new], self.index[old]) for new, old in own))

    def _replaced(self) -> dict[int, int]:
        """Tensor that is the new value of a parameter -> tensor of the old value."""
        graph, results = self.graph, self.graph.return_op.arguments
        replaces: dict[int, int] = {}
        for i in range(len(graph.arguments)):
            at = graph.updates(i)
            if at is None or (new := self.index[results[at]]) == i:
                continue
            owner = self.values[new].owner
            # A streamed parameter goes to the other bank.
            streamed = isinstance(owner, StreamOp) and isinstance(self.values[new].type, PageType)
            if not streamed and (
                not isinstance(owner, RunOp)
                or (new, i) not in self._pairs(owner, owner.inplace_pairs)
            ):
                raise InputError(
                    f"graph @{graph.sym_name.data}: result {at}, the new value of parameter "
                    f"{graph.arg_name(i)}, is not computed in its place"
                )
            replaces[new] = i
        return replaces

    def _ends(self) -> dict[int, Place]:
        """Where each tensor must be at the end that must be anywhere.

        The result that updates a parameter on storage is there. A parameter that the step leaves as
        it is stays where it is; a page stays also beside a copy in RAM.
        """
        graph = self.graph
        kept = set(range(len(graph.arguments))) - set(self.replaces.values())
        ends = {
            i: Place.STORAGE if i in self.stored else Place.RAM
            for i in kept
            if graph.role(i) == "param"
        }
        updated = {k: i for i in range(len(graph.arguments)) if (k := graph.updates(i)) is not None}
        # Buffers of the caller stay as they are for the whole step.
        ends |= dict.fromkeys(self.callers, Place.RAM)
        if (unwritten := graph.unwritten_output()) is not None:
            raise InputError(
                f"graph @{graph.sym_name.data}: result {unwritten} is an argument as it came; no "
                "kernel would write it into the buffer of the caller: use io=arena"
            )
        in_ram: dict[int, int] = {}
        for k, value in enumerate(graph.return_op.arguments):
            v = self.index[value]
            if updated.get(k) in self.stored:
                ends[v] = Place.STORAGE
            elif isinstance(value.type, PageType):
                raise InputError(
                    f"graph @{graph.sym_name.data}: result {k} is a page but no parameter's new "
                    "value"
                )
            else:
                in_ram[v] = k
        for v, k in in_ram.items():
            if ends.get(v) is Place.STORAGE and v not in self.stored:
                argument = graph.arg_name(self.replaces[v])
                raise InputError(
                    f"graph @{graph.sym_name.data}: result {k} is the new value of parameter "
                    f"{argument}, returned again as an output; that needs it in RAM: use params=ram"
                )
            ends[v] = Place.RAM
        return ends

    def _outside_scope(self) -> set[int]:
        """Parameters, their new values, and gradients: what only updates of parameters read."""
        graph = self.graph
        params = {i for i in range(len(graph.arguments)) if graph.role(i) == "param"}
        outside = params | set(self.replaces)
        updates: dict[IROperation, set[Attribute]] = {}
        for new in self.replaces:
            owner = self.values[new].owner
            assert isinstance(owner, RunOp)
            updates.setdefault(owner, set()).add(self.values[new].type)
        for v, value in enumerate(self.values):
            readers = [u.operation for u in value.uses if isinstance(u.operation, ComputeOp)]
            only_updates = all(value.type in updates.get(reader, ()) for reader in readers)
            if isinstance(value, OpResult) and readers and only_updates:
                outside.add(v)
        return outside

    def _on_lines(self, tensors: Sequence[Tensor], operations: Sequence[Operation]) -> set[int]:
        """The tensors that are alone on the lines of the cache that they touch: those that are
        paged in, or may be, and those in whose buffers they may be made."""
        if self.graph.is_scheduled:
            found = {step.tensor for step in self.steps if isinstance(step, PageIn)}
        else:
            found = {v for v, tensor in enumerate(tensors) if tensor.pageable}
        before = -1
        while len(found) > before:
            before = len(found)
            # A parameter and its new value are one buffer.
            found |= {new for new, old in self.replaces.items() if old in found}
            for operation in reversed(operations):
                found |= {old for new, old in operation.inplace if new in found}
        return found

    def _tensor(self, v: int, end: Place | None) -> Tensor:
        value = self.values[v]
        is_argument = isinstance(value, BlockArgument)
        is_param = is_argument and self.graph.role(v) == "param"
        stored = v in self.stored
        type_ = tensor_type(value)
        not_counted = v in self.free_of_charge or v in self.callers
        own_align = max(self.align, element_bytes(type_.element_type))
        bytes = 0 if not_counted else round_up(tensor_bytes(type_), own_align)
        pageable = self.storage is not None and bytes > 0
        if stored or self.replaces.get(v) in self.stored:
            pageable = True
        elif is_param or v in self.replaces:
            pageable = pageable and self.page_params
        start = (Place.STORAGE if stored else Place.RAM) if is_argument else None
        none = Transfer(0, 0)
        read = self.storage.pagein(bytes) if self.storage and pageable else none
        write = self.storage.pageout(bytes) if self.storage and pageable else none
        return Tensor(
            name=self._name(v),
            bytes=bytes,
            start=start,
            end=end,
            pageable=pageable,
            pagein_time_ns=read.time_ns,
            pagein_energy_nj=read.energy_nj,
            pageout_time_ns=write.time_ns,
            pageout_energy_nj=write.energy_nj,
            replaces=self.replaces.get(v),
            align=own_align if own_align > self.align else 1,
        )

    def _name(self, v: int) -> str:
        value = self.values[v]
        if isinstance(value, BlockArgument):
            return self.graph.arg_name(v)
        owner = value.owner
        assert isinstance(owner, RunOp) and isinstance(value, OpResult)
        many = len(owner.results) > 1
        return owner.label.data + (f".{value.index}" if many else "")

    def _operation(self, op: RunOp) -> Operation:
        cost = op.cost or CostAttr(0)
        widest = widest_element_bytes(op)
        pairs = list(op.inplace_pairs)
        variants: tuple[Variant, ...] = ()
        if isinstance(op, ComputeOp):
            pairs += self.may_share(op) if self.may_share else ()
        else:
            variants = (self._variant(op, cost),)
        inplace = self._pairs(op, pairs)
        made = (self.index[v] for v in op.results)
        updates = ((v, self.replaces[v]) for v in made if v in self.replaces)
        return Operation(
            name=op.label.data,
            inputs=tuple(dict.fromkeys(self.index[v] for v in op.operands)),
            outputs=tuple(self.index[v] for v in op.results),
            time_ns=cost.time_ns,
            energy_nj=cost.energy_nj,
            workspace_bytes=round_up(cost.workspace, max(self.align, widest)),
            workspace_align=widest if widest > self.align else 1,
            # An update overwrites what it reads, so it can run only once. What is in a buffer of
            # the caller is written once.
            repeatable=not any(
                self.index[v] in self.replaces or self.index[v] in self.callers for v in op.results
            ),
            inplace=tuple(dict.fromkeys((*inplace, *updates))),
            variants=variants,
        )

    def _variant(self, op: RunOp, cost: CostAttr) -> Variant:
        """A stream as a variant."""
        values = (*op.operands, *op.results)
        return Variant(
            streamed=frozenset(self.index[v] for v in values if isinstance(v.type, PageType)),
            workspace_bytes=round_up(cost.workspace, max(self.align, widest_element_bytes(op))),
            time_ns=cost.time_ns,
            bus_ns=cost.slices_ns,
            energy_nj=cost.energy_nj,
        )

    def view(self, ram_bytes: int | None, deadline_ns: int | None, idle_power_nw: int) -> GraphView:
        graph, storage = self.graph, self.storage
        ends = self._ends()
        operations = tuple(map(self._operation, self.computes))
        tensors = [self._tensor(v, ends.get(v)) for v in range(len(self.values))]
        if self.line_bytes > self.align:
            for v in self._on_lines(tensors, operations):
                bytes = tensors[v].bytes
                tensors[v] = replace(
                    tensors[v],
                    bytes=round_up(bytes, self.line_bytes),
                    align=self.line_bytes,
                    payload_bytes=bytes,
                )
        try:
            problem = Problem(
                operations=operations,
                tensors=tuple(tensors),
                ram_bytes=ram_bytes,
                deadline_ns=deadline_ns,
                storage_bytes=storage.capacity_bytes if storage else None,
                dma=storage is not None and storage.dma,
                idle_power_nw=idle_power_nw,
            )
        except ProblemError as error:
            raise InputError(f"graph @{graph.sym_name.data}: {error}") from error
        return GraphView(graph, problem, tuple(self.values), tuple(self.computes))


def write_schedule(view: GraphView, steps: Sequence[Step]) -> None:
    """Rewrites the unscheduled graph of `view` so that it does `steps`, in their order.

    A kernel that runs again is a copy with the same label. In-place pairs are those of the steps.
    Parameters that start on storage become arguments of page type, and results that update them
    pages. Variants are made by the view's `make_stream`.
    """
    graph = view.graph
    index = {value: v for v, value in enumerate(view.values)}
    operands = {k: [index[v] for v in op.operands] for k, op in enumerate(view.computes)}
    returned = [index[v] for v in graph.return_op.arguments]
    stay: dict[int, SSAValue] = {}  # tensor -> its value in RAM
    page: dict[int, SSAValue] = {}
    on_storage: set[int] = set()  # results
    for i, argument in enumerate(graph.arguments):
        if view.problem.tensors[i].start is not Place.STORAGE:
            stay[i] = argument
            continue
        assert isinstance(argument.type, TensorType)
        page[i] = Rewriter.replace_value_with_new_type(argument, PageType(argument.type))
        if (result := graph.updates(i)) is not None:
            on_storage.add(result)
    new: list[IROperation] = []
    ran: set[int] = set()
    for step in steps:
        match step:
            case Compute(k, pairs, variant):
                compute, operation = view.computes[k], view.problem.operations[k]
                streamed = operation.way(variant).streamed
                values = [page[v] if v in streamed else stay[v] for v in operands[k]]
                if variant is not None:
                    assert view.make_stream is not None
                    op = view.make_stream(k, variant, values)
                else:
                    op = compute if k not in ran else compute.clone()
                    op.operands = values
                    ran.add(k)
                outputs = operation.outputs
                op.inplace_pairs = [
                    (outputs.index(output), operands[k].index(operand)) for output, operand in pairs
                ]
                for v, result, original in zip(outputs, op.results, compute.results, strict=True):
                    result.name_hint = original.name_hint
                    (page if v in streamed else stay)[v] = result
            case PageOut(v):
                op = PageOutOp(stay[v])
                op.page.name_hint = _hint(stay[v], "_page")
                page[v] = op.page
            case PageIn(v):
                op = PageInOp(page[v])
                op.tensor.name_hint = view.values[v].name_hint
                stay[v] = op.tensor
            case Free(v):
                op = FreeOp(stay[v])
        new.append(op)
    results = [page[v] if k in on_storage else stay[v] for k, v in enumerate(returned)]
    new.append(ReturnOp(*results))
    reorder_block(graph, new)
    graph.function_type = FunctionType.from_lists(
        [argument.type for argument in graph.arguments], [value.type for value in results]
    )


def reorder_block(graph: GraphOp, ops: Sequence[IROperation]) -> None:
    """Makes `ops` the operations of the graph; those that are not among them are erased."""
    block = graph.block
    kept = set(ops)
    dropped = [op for op in block.ops if op not in kept]
    for op in list(block.ops):
        op.detach()
    for op in dropped:
        op.drop_all_references()
        op.erase(safe_erase=False)
    block.add_ops(ops)


def _hint(value: SSAValue, suffix: str) -> str | None:
    return f"{value.name_hint}{suffix}" if value.name_hint else None
