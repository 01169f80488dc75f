"""The xDSL target `plan`: `xdsl-opt -t plan` prints plans, `poetc --emit=plan` writes one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from poetc.backends.plan.codec import decode
from poetc.backends.plan.lower import plan_bytes
from poetc.backends.plan.plan import PageIn, PageOut, Plan, Run, Step, page_tensor
from poetc.backends.plan.table import Table, table_of
from poetc.ir.graph import graphs


def listing(data: bytes, table: Table) -> Iterator[str]:
    """The content of a plan, line by line. Tensors are numbered as in the table: arguments first.

    Raises PlanError for a plan that may not run.
    """
    plan = decode(data, table)
    yield (
        f"plan for {plan.identity:08x}: {len(data)} bytes, arena {plan.arena_bytes}, "
        f"storage {plan.storage_bytes}, {len(plan.steps)} steps"
    )
    places = iter(plan.arguments)
    for tensor, argument in enumerate(table.arguments):
        if argument.page_offset is None:
            yield f"argument t{tensor} at {next(places)}"
        else:
            yield f"argument t{tensor} on storage at {argument.page_offset}"
    for page in plan.pages:
        yield f"page of t{page.tensor} at {page.place}"
    for step in plan.steps:
        yield _line(step, plan, table)


def _line(step: Step, plan: Plan, table: Table) -> str:
    match step:
        case Run(number, places, workspace):
            operation = table.operations[number]
            kernel, at = table.kernels[operation.kernel], iter(places)
            tensors = [
                f"page of t{tensor}" if n in kernel.streamed else f"t{tensor}"
                for n, tensor in enumerate((*operation.operands, *operation.results))
            ]
            results = ", ".join(
                tensor if n in kernel.streamed else f"{tensor} at {next(at)}"
                for n, tensor in enumerate(tensors)
                if n >= kernel.operands
            )
            operands = ", ".join(tensors[: kernel.operands])
            space = "" if workspace is None else f", workspace at {workspace}"
            return f"{number}: {results} = {kernel.name}({operands}){space}"
        case PageIn(page, place):
            return f"page in t{page_tensor(page, plan, table)} at {place}"
        case PageOut(page):
            return f"page out t{page_tensor(page, plan, table)}"
        case _:
            return "wait"


@dataclass(frozen=True)
class PlanTarget(Target):
    """Prints the plans of the graphs of a module, which have a memory plan."""

    name = "plan"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        for graph in graphs(module):
            for line in listing(plan_bytes(graph), table_of(graph).table):
                output.write(f"{line}\n")
