"""Programs that run plans: the table of a model, and its kernels, as C.

In place of a schedule, `model.c` has a table for `runtime/poetc_plan.c`: for each kernel a function
that calls it on tensors, wherever they are, and for each operation its kernel and its tensors. The
schedule that the program was made with is in it as a plan, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.buffers import workspace_buffers
from poetc.backends.c.layout import MAX_BYTES, TensorPlace
from poetc.backends.c.printer import Signature
from poetc.backends.c.program import Kernel, Program
from poetc.backends.c.text import c_comment, c_identifier, defines, local_table, unique, wrapped
from poetc.backends.plan.codec import encode
from poetc.backends.plan.lower import plan_of
from poetc.backends.plan.table import (
    WORD_BYTES,
    Numbered,
    refuse_arguments,
    table_of,
    tensor_count,
)
from poetc.budget import Budget
from poetc.errors import InputError
from poetc.ir.poet import GraphOp
from poetc.kernels.analysis import buffers
from poetc.schedule.arena.pack import round_up

_PLAN_BYTES = 16
"""Of `poetc_plan_state`."""

_SECTOR_BYTES = 4096
"""Flash for a plan that is sent to the device; more for a model whose own plan is that long."""


def _places(tensors: int) -> int:
    # Even, so that nothing is added for alignment where pointers have 8 bytes.
    return round_up(tensors, 2)


@dataclass(frozen=True)
class PlanExecutor:
    """Makes programs that run plans.

    `ram_bytes` is all of the RAM: what is left of it beside stack and static data is arena, so that
    there is room for other plans. None: an arena for the schedule at hand. With `storage` plans may
    move any tensor to storage.
    """

    ram_bytes: int | None = None
    storage: bool = True

    def state_bytes(self, graph: GraphOp) -> int:
        """The plan that runs, and the place of each tensor."""
        refuse_arguments(graph)
        return _PLAN_BYTES + 4 * _places(tensor_count(graph))

    def program(self, module: ModuleOp, graph: GraphOp, name: str, budget: Budget) -> PlanProgram:
        return PlanProgram(self, module, graph, name, budget)


class PlanProgram(Program):
    """The text of one model that takes its schedule as data."""

    headers = ("poetc_plan.h",)
    fixed_places = False

    def __init__(
        self,
        executor: PlanExecutor,
        module: ModuleOp,
        graph: GraphOp,
        name: str,
        budget: Budget,
    ) -> None:
        super().__init__(module, graph, name, budget)
        if graph.cache_line_bytes is not None:
            # A device that is sent a plan does not check that buffers keep to the lines.
            raise InputError(
                "plans know nothing of cache lines: for a device with cache_line_bytes, use "
                "--executor=code"
            )
        table = self.numbered.table
        self.plan = encode(plan_of(self.numbered, graph), table)
        self.plan_sector_bytes = round_up(2 * len(self.plan), _SECTOR_BYTES)
        if executor.ram_bytes is not None:
            spare = (executor.ram_bytes - budget.beside_bytes) // WORD_BYTES * WORD_BYTES
            self.arena_bytes = max(self.arena_bytes, min(spare, MAX_BYTES // 4 * 4))
        self.arena_bytes = max(self.arena_bytes, WORD_BYTES)
        if executor.storage:
            self.storage_bytes = min(
                max(self.storage_bytes, table.storage_bound_bytes), MAX_BYTES // 4 * 4
            )
        self.ram_bytes = budget.used_bytes(self.arena_bytes)

    @cached_property
    def numbered(self) -> Numbered:
        return table_of(self.graph)

    def _kernels(self) -> list[Kernel]:
        """Those of the table. In some plan a result may be in place of each operand that allows it:
        so these pointers are not `restrict`."""
        kernels: list[Kernel] = []
        taken: set[str] = set()
        for number, kernel in enumerate(self.numbered.table.kernels):
            identifier = unique(f"{self.name}_kernel_{c_identifier(kernel.name)}", taken)
            shared = {o for _, o in kernel.pairs} | {kernel.operands + r for r, _ in kernel.pairs}
            computes = [
                compute
                for compute, operation in self.numbered.operations.items()
                if self.numbered.table.operations[operation].kernel == number
            ]
            signature = Signature(identifier, False, frozenset(shared))
            kernels.append(Kernel(kernel.function, computes, signature))
        return kernels

    def more_functions(self) -> str:
        n, macro = self.name, self.macro
        load = (
            f"Checks a plan, made by poetc --emit=plan, and makes it the one that {n}_step runs: "
            "the bytes, which stay where they are, in flash or in RAM. Then arguments are to be "
            "written, parameters included: they are elsewhere. A plan that is refused changes "
            f"nothing. Before the first is loaded, {n}_plan runs, the schedule that the program "
            f"was made with. Plans name what they are for: {macro}_PLAN_TABLE."
        )
        identity = f"0x{self.numbered.table.identity:08x}u"
        sizes = defines(
            [(f"{macro}_PLAN_TABLE", identity), (f"{macro}_PLAN_BYTES", len(self.plan))]
        )
        return (
            f"\n{c_comment(load)}\n"
            f"poetc_status {n}_load_plan(const uint8_t *plan, uint32_t bytes);\n\n"
            f"{sizes}extern const uint8_t {n}_plan[{macro}_PLAN_BYTES];\n"
        )

    def memory(self) -> str:
        return f"""\
{self.arena()}
/* The plan that runs, and where it has each tensor. */
static struct {{
    poetc_plan_state plan;
    uint32_t place[{_places(len(self.numbered.table.tensor_bytes))}];
}} state;

static void *at(uint32_t place)
{{
    return &arena.bytes[place & POETC_PLACE];
}}

static void *operand(const poetc_operation *operation, uint32_t i)
{{
    return at(state.place[operation->operand[i]]);
}}

static void *made(const poetc_operation *operation, uint32_t i)
{{
    return at(state.place[operation->result + i]);
}}
"""

    def functions(self) -> list[str]:
        n, macro = self.name, self.macro
        return [
            *self._adapters(),
            *self._tables(),
            f"const uint8_t {n}_plan[{macro}_PLAN_BYTES] = {{",
            *_block([f"0x{byte:02x}" for byte in self.plan]),
            "};",
            "",
            "static const poetc_model *ready(void)",
            "{",
            "    if (state.plan.plan.bytes == NULL) {",
            f"        (void)poetc_plan_load(&model, {n}_plan, {macro}_PLAN_BYTES);",
            "    }",
            "    return &model;",
            "}",
            "",
            f"poetc_status {n}_load_plan(const uint8_t *plan, uint32_t bytes)",
            "{",
            "    return poetc_plan_load(&model, plan, bytes);",
            "}",
            "",
            *self.prototype(""),
            "{",
            *self.check(),
            "    return poetc_plan_step(ready(), store);",
            "}",
            "",
        ]

    def lookup(self, kind: str, places: Sequence[TensorPlace]) -> list[str]:
        """By the number of the tensor in the graph, where parameters may be in shards."""
        graph = self.graph
        arguments = range(len(graph.arguments))
        numbers = [i for i in arguments if graph.is_first(i)]
        if kind == "result":
            updated = {k: i for i in arguments if (k := graph.updates(i)) is not None}
            results = range(len(self.numbered.table.results))
            numbers = [k for k in results if k not in updated or graph.is_first(updated[k])]
        assert len(numbers) == len(places)
        return [
            *local_table("uint16_t", "number", [str(number) for number in numbers]),
            f"    return poetc_plan_{kind}(ready(), number[i]);",
        ]

    def _adapters(self) -> list[str]:
        """For each kernel, a function that finds its buffers."""
        lines: list[str] = []
        for kernel, entry in zip(self.kernels, self.numbered.table.kernels, strict=True):
            places = [f"operand(operation, {i})" for i in range(entry.operands)]
            places += [f"made(operation, {i})" for i in range(entry.results)]
            types = [buffer.type for buffer in buffers(entry.function, "workspace")]
            workspace = workspace_buffers(types, 0)
            places += [f"at(workspace + {buffer.offset})" for buffer in workspace]
            lines += [
                f"static void run_{kernel.signature.name}"
                "(const poetc_operation *operation, uint32_t workspace)",
                "{",
                *([] if workspace else ["    (void)workspace;"]),
                *([] if entry.operands + entry.results else ["    (void)operation;"]),
                *wrapped(f"    {kernel.signature.name}(", places, ");"),
                "}",
                "",
            ]
        return lines

    def _tables(self) -> list[str]:
        table = self.numbered.table
        pairs = [position for kernel in table.kernels for pair in kernel.pairs for position in pair]
        operands = [tensor for op in table.operations for tensor in op.operands]
        lines = [
            "/* Positions of results and operands that may be one buffer. */",
            *_array("uint16_t", "pairs", map(str, pairs)),
            "static const poetc_kernel kernels[] = {",
        ]
        at = 0
        for kernel, entry in zip(self.kernels, table.kernels, strict=True):
            lines += [
                "    {",
                f"        .run = run_{kernel.signature.name},",
                f"        .workspace_bytes = {entry.workspace_bytes},",
                f"        .operands = {entry.operands},",
                f"        .results = {entry.results},",
                f"        .pairs = {len(entry.pairs)},",
                f"        .pair = &pairs[{at}],",
                "    },",
            ]
            at += 2 * len(entry.pairs)
        lines += [
            *([] if table.kernels else ["    {0},"]),
            "};",
            "",
            "/* Tensors: arguments first, then what operations make. */",
            *_array("uint16_t", "operands", map(str, operands)),
            "static const poetc_operation operations[] = {",
        ]
        at = 0
        for op in table.operations:
            lines.append(f"    {{&kernels[{op.kernel}], &operands[{at}], {op.results.start}}},")
            at += len(op.operands)
        lines += [
            *([] if table.operations else ["    {0},"]),
            "};",
            "",
            *_array("uint32_t", "tensor_bytes", map(str, table.tensor_bytes)),
            *_array("uint16_t", "results", map(str, table.results)),
            "static const poetc_argument arguments[] = {",
        ]
        for a in table.arguments:
            page = "POETC_IN_ARENA" if a.page_offset is None else f"{a.page_offset}"
            new = "POETC_NO_TENSOR" if a.new_value is None else f"{a.new_value}"
            lines.append(f"    {{{page}, {new}, {str(a.is_param).lower()}}},")
        lines += [*([] if table.arguments else ["    {0},"]), "};", ""]
        image = "NULL"
        if table.image is not None:
            image = "&image"
            lines += [
                "static const poetc_plan_image image = {",
                f"    .layout_id = {self.macro}_LAYOUT_ID,",
                f"    .unit_bytes = {self.macro}_STORAGE_UNIT,",
                f"    .bank_bytes = {self.macro}_BANK_BYTES,",
                f"    .pages_start = {table.pages_start},",
                "    .open = poetc_image_open,",
                "    .commit = poetc_image_commit,",
                "    .out_start = poetc_parameter_out_start,",
                "    .tagged_word = poetc_tag_word,",
                "    .tagged_all = poetc_tag_bytes,",
                "};",
                "",
            ]
        return [
            *lines,
            "static const poetc_model model = {",
            f"    .identity = 0x{table.identity:08x}u,",
            f"    .arena_bytes = {self.macro}_ARENA_BYTES,",
            f"    .storage_bytes = {self.macro}_STORAGE_BYTES,",
            f"    .arguments = {len(table.arguments)},",
            f"    .tensors = {len(table.tensor_bytes)},",
            f"    .operations = {len(table.operations)},",
            f"    .results = {len(table.results)},",
            "    .argument = arguments,",
            "    .bytes = tensor_bytes,",
            "    .operation = operations,",
            "    .result = results,",
            f"    .image = {image},",
            "    .arena = arena.bytes,",
            "    .state = &state.plan,",
            "    .place = state.place,",
            "};",
            "",
        ]


def _block(items: Sequence[str]) -> list[str]:
    return [f"    {', '.join(items[i : i + 14])}," for i in range(0, len(items), 14)]


def _array(type_: str, name: str, items: Iterable[str]) -> list[str]:
    return [f"static const {type_} {name}[] = {{", *_block(list(items) or ["0"]), "};", ""]
