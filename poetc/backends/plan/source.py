"""Programs that run plans: the table of a model, and its kernels, as C.

In place of a schedule, `model.c` has a table for `runtime/poetc_plan.c`: for each kernel a function
that calls it on tensors, wherever they are, or runs it in tiles, and for each operation its kernel
and its tensors. The
schedule that the program was made with is in it as a plan, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from poetc.backends.c.buffers import overlapping_arguments, tile_buffers, workspace_buffers
from poetc.backends.c.layout import MAX_BYTES, TensorPlace
from poetc.backends.c.printer import Signature
from poetc.backends.c.program import Kernel, Program
from poetc.backends.c.streams import (
    RETURN,
    Shapes,
    StreamPrinter,
    most_ahead,
    shapes_lines,
    slots_begin,
    slots_end,
)
from poetc.backends.c.text import c_comment, c_identifier, defines, unique, wrapped
from poetc.backends.plan.codec import encode
from poetc.backends.plan.lower import plan_of
from poetc.backends.plan.table import (
    WORD_BYTES,
    Numbered,
    refuse_arguments,
    table_of,
    tensor_count,
)
from poetc.backends.plan.table import Kernel as Entry
from poetc.budget import Budget
from poetc.errors import InputError
from poetc.ir.poet import GraphOp, RunOp, StreamOp, TileOp
from poetc.kernels.analysis import buffers
from poetc.schedule.arena.pack import round_up

_PLAN_BYTES = 16
"""The size of `poetc_plan_state`."""

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
        # Behind what plans have of the arena.
        self.block_room_bytes = round_up(graph.block_bytes or 0, self.alignment)
        if executor.storage:
            self.storage_bytes = min(
                max(self.storage_bytes, table.storage_bound_bytes), MAX_BYTES // 4 * 4
            )
        self.ram_bytes = budget.used_bytes(self.arena_bytes)

    @cached_property
    def numbered(self) -> Numbered:
        return table_of(self.graph)

    def _kernels(self) -> list[Kernel]:
        """The kernels of the table, functions of tiles included. Their pointers are not `restrict`:
        in some plan a result may be in place of any operand that allows it."""
        functions: dict[FuncOp, tuple[list[RunOp], set[int]]] = {}
        for number, kernel in enumerate(self.numbered.table.kernels):
            runs = [
                run
                for run, operation in self.numbered.operations.items()
                if self.numbered.table.operations[operation].kernel == number
            ]
            for function in kernel.functions:
                callers, shared = functions.setdefault(function, ([], set()))
                callers += runs
                shared.update(_shared(kernel, function))
        kernels: list[Kernel] = []
        taken: set[str] = set()
        for function, (runs, shared) in functions.items():
            symbol = function.sym_name.data
            identifier = unique(f"{self.name}_kernel_{c_identifier(symbol)}", taken)
            kernels.append(Kernel(function, runs, Signature(identifier, False, frozenset(shared))))
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
        places = {"operand": "operation->operand[i]", "made": "operation->result + i"}
        adapters = "\n".join(self._adapters)
        finders = "".join(
            f"""
static void *{name}(const poetc_operation *operation, uint32_t i)
{{
    return at(state.place[{place}] & POETC_PLACE);
}}
"""
            for name, place in places.items()
            if f"{name}(operation" in adapters
        )
        return f"""\
{self.arena()}
/* The plan that runs, and where it has each tensor. */
static struct {{
    poetc_plan_state plan;
    uint32_t place[{_places(len(self.numbered.table.tensor_bytes))}];
}} state;

static void *at(uint32_t offset)
{{
    return &arena.bytes[offset];
}}
{finders}"""

    def functions(self) -> list[str]:
        n, macro = self.name, self.macro
        return [
            *self._adapters,
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
        """By the number of the tensor in the graph."""
        return [f"    return poetc_plan_{kind}(ready(), i);"]

    @cached_property
    def _adapters(self) -> list[str]:
        """For each kernel, a function that finds its buffers."""
        names = {k.function.sym_name.data: k.signature.name for k in self.kernels}
        lines: list[str] = []
        shapes: Shapes = {}
        for entry, adapter in zip(self.numbered.table.kernels, self.adapters, strict=True):
            if isinstance(entry.run, StreamOp):
                lines += _in_tiles(entry.run, adapter, names, shapes, self.name)
                continue
            (function,) = entry.functions
            places = [f"operand(operation, {i})" for i in range(entry.operands)]
            places += [f"made(operation, {i})" for i in range(entry.results)]
            types = [buffer.type for buffer in buffers(function, "workspace")]
            workspace = workspace_buffers(types, 0)
            places += [f"at(workspace + {buffer.offset})" for buffer in workspace]
            call = wrapped(f"    {names[function.sym_name.data]}(", places, ");")
            head = "(const poetc_operation *operation, uint32_t workspace)"
            lines += [f"static void {adapter}{head}", "{", *_unused(call), *call, "}", ""]
        return [*shapes_lines(shapes), *lines]

    @cached_property
    def adapters(self) -> list[str]:
        """Names of the functions that run the kernels of the table."""
        taken: set[str] = set()
        return [
            unique(f"run_{self.name}_kernel_{c_identifier(kernel.name)}", taken)
            for kernel in self.numbered.table.kernels
        ]

    def _tables(self) -> list[str]:
        table = self.numbered.table
        pairs = [position for kernel in table.kernels for pair in kernel.pairs for position in pair]
        streamed = [n for kernel in table.kernels for n in sorted(kernel.streamed)]
        operands = [tensor for op in table.operations for tensor in op.operands]
        lines = [
            "/* Positions of results and operands that may be one buffer. */",
            *_array("uint16_t", "pairs", map(str, pairs)),
            "/* Positions of operands and results that are on storage while a kernel runs. */",
            *_array("uint16_t", "streamed", map(str, streamed)),
            "static const poetc_kernel kernels[] = {",
        ]
        at = stream = 0
        for adapter, entry in zip(self.adapters, table.kernels, strict=True):
            lines += [
                "    {",
                f"        .{'tiles' if entry.streamed else 'run'} = {adapter},",
                f"        .workspace_bytes = {entry.workspace_bytes},",
                f"        .operands = {entry.operands},",
                f"        .results = {entry.results},",
                f"        .pairs = {len(entry.pairs)},",
                f"        .streamed = {len(entry.streamed)},",
                f"        .pair = &pairs[{at}],",
                f"        .stream = &streamed[{stream}],",
                "    },",
            ]
            at += 2 * len(entry.pairs)
            stream += len(entry.streamed)
        lines += [
            *([] if table.kernels else ["    {0},"]),
            "};",
            "",
            "/* Tensors: arguments first, then what operations make. */",
            *_array("uint16_t", "operands", map(str, operands)),
            "static const poetc_operation operations[] = {",
        ]
        at = 0
        for number, op in enumerate(table.operations):
            identity = f"0x{table.identities[number]:08x}u" if table.identities else "0"
            fields = f"&kernels[{op.kernel}], &operands[{at}], {identity}, {op.results.start}"
            lines.append(f"    {{{fields}}},")
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
        blocks, arena_bytes = "NULL", f"{self.macro}_ARENA_BYTES"
        if table.block_bytes is not None:
            blocks = "&blocks"
            arena_bytes += f" - {self.block_room_bytes}u"
            lines += [
                "static const poetc_plan_blocks blocks = {",
                f"    .bytes = {table.block_bytes},",
                f"    .block = &arena.bytes[{arena_bytes}],",
                "    .page_in = poetc_blocks_in,",
                "    .page_out = poetc_blocks_out,",
                "};",
                "",
            ]
        return [
            *lines,
            "static const poetc_model model = {",
            f"    .identity = 0x{table.identity:08x}u,",
            f"    .arena_bytes = {arena_bytes},",
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
            f"    .blocks = {blocks},",
            "    .arena = arena.bytes,",
            "    .state = &state.plan,",
            "    .place = state.place,",
            "};",
            "",
        ]


def _shared(kernel: Entry, function: FuncOp) -> frozenset[int]:
    """The arguments of a function of a kernel that may be one buffer with others that it writes."""
    if not isinstance(kernel.run, StreamOp):
        results = (kernel.operands + r for r, _ in kernel.pairs)
        return frozenset({o for _, o in kernel.pairs} | {*results})
    values = (*kernel.run.operands, *kernel.run.results)
    names = {value: f"value{n}" for n, value in enumerate(values)}
    for r, o in kernel.pairs:
        names[kernel.run.results[r]] = names[kernel.run.operands[o]]
    calls = [
        tile_buffers(kernel.run, tile, names)
        for tile in kernel.run.tiles.walk()
        if isinstance(tile, TileOp) and tile.function.root_reference.data == function.sym_name.data
    ]
    return overlapping_arguments(function, calls)


def _in_tiles(
    stream: StreamOp, name: str, functions: Mapping[str, str], shapes: Shapes, prefix: str
) -> list[str]:
    """The function that runs a kernel in tiles, wherever its tensors are."""
    callers: dict[SSAValue, str] = {}
    tensors: dict[SSAValue, str] = {}
    for i, value in enumerate(stream.operands):
        callers[value], tensors[value] = f"operand(operation, {i})", f"operation->operand[{i}]"
    for i, value in enumerate(stream.results):
        callers[value] = f"made(operation, {i})"
        tensors[value] = f"(uint32_t)operation->result + {i}u"
    transfers = most_ahead(stream)
    begins = stream.workspace_offset.value.data if stream.workspace_offset is not None else 0

    def page(value: SSAValue, start: str) -> list[str]:
        return wrapped(f"{start}poetc_plan_page(", ["walk", tensors[value]], ");")

    def at(offset: int) -> str:
        return f"at(workspace + {offset - begins})"

    failed = "goto failed;" if transfers else RETURN
    body = StreamPrinter(stream, functions, page, callers, at, failed, shapes, prefix).lines()
    return [
        *wrapped(
            f"static poetc_status {name}(",
            ["const poetc_operation *operation", "uint32_t workspace", _WALK],
            ")",
        ),
        "{",
        *_unused(body),
        "    poetc_store *const store = poetc_plan_store(walk);",
        "    poetc_status status = POETC_OK;",
        *slots_begin(transfers),
        *body,
        "    return status;",
        *slots_end(transfers),
        "}",
        "",
    ]


_WALK = "const poetc_plan_walk *walk"


def _unused(body: Sequence[str]) -> list[str]:
    """The lines that use arguments which the body of a kernel does not, as compilers warn of
    these."""
    text = "\n".join(body)
    return [f"    (void){name};" for name in ("operation", "workspace") if name not in text]


def _block(items: Sequence[str]) -> list[str]:
    return [f"    {', '.join(items[i : i + 14])}," for i in range(0, len(items), 14)]


def _array(type_: str, name: str, items: Iterable[str]) -> list[str]:
    return [f"static const {type_} {name}[] = {{", *_block(list(items) or ["0"]), "};", ""]
