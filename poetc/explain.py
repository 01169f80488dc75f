"""Why a step misses its budget, and which single change of what is asked for would help most.

Every change is tried: the step is scheduled with it, so that what is said of it is known.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from poetc.compilation import compile_step
from poetc.costmodel.device import NO_STORAGE
from poetc.diagnosis import Diagnosis, Reason
from poetc.driver import front_passes_of
from poetc.entries import separate
from poetc.errors import InputError, UnscheduledError
from poetc.ir.graph import graphs, tensor_bytes
from poetc.ir.kinds import tensor_kinds
from poetc.ir.poet import ComputeOp, GraphOp
from poetc.ir.text import make_context
from poetc.ir.timeline import tensor_name
from poetc.options import OPTIONS, Given, default
from poetc.passes.stablehlo_to_poet import FROZEN_ON_STORAGE, frozen_on_storage
from poetc.pipeline import run_passes
from poetc.report_ram import source_of
from poetc.request import GIVE_UNSCHEDULED, Options, options_of
from poetc.units import format_bytes, format_energy, format_time


@dataclass(frozen=True)
class Change:
    """Options to give (None: to leave out), and what that means for the user."""

    options: tuple[tuple[str, str | None], ...]
    meaning: str

    @property
    def text(self) -> str:
        """The change as it is written on the command line."""
        return " ".join(_option(OPTIONS[name].flag, value) for name, value in self.options)

    def applied(self, given: Given) -> Given:
        """The options with the change made."""
        texts = {**given.texts, **dict(self.options)}
        return Given({name: text for name, text in texts.items() if text is not None})


@dataclass(frozen=True)
class Outcome:
    """The outcome of a change: a schedule of `ram_bytes`, `energy_nj` and `time_ns`, or, where
    there is none, the least RAM for which one is known (`least_bytes`) and the shortest time known
    (`fastest_ns`). Unknown numbers are None."""

    change: Change
    ram_bytes: int | None = None
    energy_nj: int | None = None
    time_ns: int | None = None
    least_bytes: int | None = None
    fastest_ns: int | None = None

    @property
    def fits(self) -> bool:
        """Whether there is a schedule."""
        return self.energy_nj is not None


@dataclass(frozen=True)
class HeldTensor:
    """A tensor that a kernel reads or writes."""

    name: str
    use: str
    bytes: int


@dataclass(frozen=True)
class Explanation:
    """The request and its outcome. `diagnosis` is None where there is a schedule, which `asked` has
    then. `holder` are the tensors of the kernel that needs most RAM, largest first. `changes` are
    those that help, in order of gain."""

    asked: Outcome
    diagnosis: Diagnosis | None
    holder: tuple[HeldTensor, ...]
    changes: tuple[Outcome, ...]

    def to_json(self) -> dict[str, Any]:
        """The same as plain data."""
        changes = [asdict(each) | {"text": each.change.text} for each in self.changes]
        diagnosis = None if self.diagnosis is None else self.diagnosis.to_json()
        return asdict(self) | {"changes": changes, "diagnosis": diagnosis}

    def to_text(self) -> str:
        """The same in words."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        found = self.diagnosis
        if found is None:
            yield f"There is a schedule: {_scheduled(self.asked)}."
            return
        yield f"There is no schedule as asked: {found.text()}."
        if self.holder:
            kernel = found.kernel
            yield ""
            yield f"What {kernel or 'it'} needs at once:"
            for tensor in self.holder:
                yield f"  {tensor.bytes:>12,} B  {tensor.name} ({tensor.use})"
        enough = [each for each in self.changes if each.fits]
        less = [each for each in self.changes if not each.fits]
        if enough:
            yield ""
            several = "Any one of these is enough; the one that takes least energy is first:"
            yield several if len(enough) > 1 else "This is enough:"
            for each in enough:
                yield f"  {each.change.text}"
                yield f"      {each.change.meaning}: {_scheduled(each)}"
        if less:
            yield ""
            yield "Not enough alone, the one that helps most first:"
            for each in less:
                yield f"  {each.change.text}"
                yield f"      {each.change.meaning}: {_needed(each, found)}"
        if not self.changes:
            yield ""
            yield "No change of options that was tried helps; a smaller batch or model may."


def _option(flag: str, value: str | None) -> str:
    """An option as one writes it in a shell."""
    if value is None:
        return f"no {flag}"
    text = f"{flag}={value}"
    return f'"{text}"' if "'" in text and not set(text) & set('"$`\\') else shlex.quote(text)


def _scheduled(outcome: Outcome) -> str:
    assert outcome.ram_bytes is not None and outcome.energy_nj is not None
    size, energy = format_bytes(outcome.ram_bytes), format_energy(outcome.energy_nj)
    time = "" if outcome.time_ns is None else f", {format_time(outcome.time_ns)}"
    return f"{size} of RAM, {energy}{time}"


def _needed(outcome: Outcome, diagnosis: Diagnosis) -> str:
    if diagnosis.is_about_time and outcome.fastest_ns is not None:
        return f"the fastest schedule known takes {format_time(outcome.fastest_ns)}"
    assert outcome.least_bytes is not None
    return f"least RAM known to work {format_bytes(outcome.least_bytes)}"


def explain(module: ModuleOp, name: str, given: Given, warn: Callable[[str], None]) -> Explanation:
    """The reasons why a verified module of unscheduled IR misses the limits that are asked for, and
    the changes that help.

    Each attempt has the time limit that is given. Raises InputError for what cannot be compiled,
    whatever the limits.
    """
    if any(graph.is_scheduled for graph in graphs(module)):
        raise InputError(f"the input is scheduled already; {GIVE_UNSCHEDULED}")
    options = options_of(given, warn)
    as_asked = Change((), "as asked")
    asked, diagnosis = _outcome(module, name, given, as_asked)
    if diagnosis is None:
        return Explanation(asked, None, (), ())
    graph = _unscheduled(module.clone(), options)
    found = [
        outcome
        for change in _changes(given, options, graph, diagnosis)
        if (outcome := _try(module, name, given, change)) is not None
    ]
    enough = sorted((o for o in found if o.fits), key=lambda o: o.energy_nj or 0)
    late = diagnosis.is_about_time

    def need(outcome: Outcome) -> float:
        value = outcome.fastest_ns if late else outcome.least_bytes
        return float("inf") if value is None else value

    less = sorted((o for o in found if not o.fits and need(o) < need(asked)), key=need)
    if not enough and len(less) > 1:
        options_of_all = dict(pair for each in reversed(less) for pair in each.change.options)
        together = Change(tuple(options_of_all.items()), "all that helps, together")
        outcome = _try(module, name, given, together)
        enough = [outcome] if outcome is not None and outcome.fits else []
    return Explanation(asked, diagnosis, _holder(graph, diagnosis), (*enough, *less))


def _outcome(
    module: ModuleOp, name: str, given: Given, change: Change
) -> tuple[Outcome, Diagnosis | None]:
    options = options_of(change.applied(given), lambda message: None)
    try:
        summary = compile_step(module.clone(), name, options).brief
    except UnscheduledError as error:
        found = error.diagnosis
        least_bytes = found.known_bytes
        if found.least_ram is not None:
            least_bytes = found.least_ram.known_bytes
        return Outcome(change, least_bytes=least_bytes, fastest_ns=found.fastest_ns), found
    ram_bytes = summary.ram.total_bytes
    return Outcome(change, ram_bytes, summary.energy_nj, summary.time_ns), None


def _try(module: ModuleOp, name: str, given: Given, change: Change) -> Outcome | None:
    """None where the change cannot be made."""
    try:
        return _outcome(module, name, given, change)[0]
    except InputError:
        # Such as parameters on storage that an output returns again: no remedy for this step.
        return None


def _unscheduled(module: ModuleOp, options: Options) -> GraphOp:
    separate(module)  # What holds the RAM of a step is shown of the step.
    passes = front_passes_of(module, options)
    run_passes(make_context(), module, passes, lambda step, module, seconds: None)
    return graphs(module)[0]


def _holder(graph: GraphOp, diagnosis: Diagnosis) -> tuple[HeldTensor, ...]:
    """The tensors of the kernel that the diagnosis names; nothing where less is enough for it in
    tiles."""
    kernel, least = diagnosis.kernel, diagnosis.least_ram
    if least is not None and least.tiles:
        return ()
    named = [
        op
        for op in graph.computes
        if kernel is not None and (op.label.data, source_of(op)) == (kernel.label, kernel.source)
    ]
    if not named:
        return ()
    op = named[0]
    outside = graph.caller_values()
    held = [
        HeldTensor(tensor_name(graph, value), use, tensor_bytes(value.type))
        for use, values in (("read", dict.fromkeys(op.operands)), ("written", op.results))
        for value in values
        if value not in outside
    ]
    if op.cost is not None and op.cost.workspace:
        held.append(HeldTensor("workspace", "scratch memory", op.cost.workspace))
    return tuple(sorted(held, key=lambda tensor: -tensor.bytes))


def _changes(
    given: Given, options: Options, graph: GraphOp, diagnosis: Diagnosis
) -> Iterator[Change]:
    """Changes that may help, each of what is asked for."""
    storage = options.device.storage is not None and options.paging
    for name, freed, meaning in (
        ("strategy", "auto", "all techniques, not those of one strategy"),
        ("remat", "on", "kernels may run again"),
        ("paging", "on", "tensors may be moved to storage"),
        ("stream", "auto", "kernels may run in tiles"),
        ("params", "auto", "parameters may be on storage between steps"),
    ):
        if given.flags(name) and given.text(name) != freed:
            yield Change(((name, freed),), meaning)
    if given.text("storage") == NO_STORAGE:
        yield Change((("storage", None),), "the device has its own storage")
    if frozen_on_storage(options.frozen):
        words = options.frozen.split(",")
        named = ",".join(w for w in words if w != FROZEN_ON_STORAGE) or default("frozen")
        yield Change(
            (("frozen", named),),
            "what is frozen is in flash, where kernels read it, which --ram does not count",
        )
    if options.params == "auto" and storage:
        yield Change((("params", "storage"),), "parameters are on storage between steps")
    if options.io != "caller":
        yield Change(
            (("io", "caller"),),
            "inputs and results are in buffers of the caller, which --ram does not count",
        )
    if options.stack_compiler is None and not given.flags("stack"):
        yield Change((("stack", "measure"),), "the stack is measured, not estimated")
    if options.pages == default("pages"):
        yield Change(
            (("pages", "f16"),), "weights are held in 16 bits, which gives other parameters"
        )
    if options.train is None:
        yield from _trained_less(graph)
    if options.deadline is not None:
        yield Change((("deadline", None),), "without a deadline")
        if diagnosis.fastest_ns is not None:
            text = f"{diagnosis.fastest_ns / 1e6:.3f}ms"
            yield Change((("deadline", text),), "a later deadline: the fastest schedule known")
    least = diagnosis.least_ram
    known = diagnosis.known_bytes if least is None else least.known_bytes
    if known is not None and diagnosis.reason is not Reason.DEADLINE and options.ram_bytes:
        yield Change((("ram", str(known)),), "more RAM: the least that is known to work")


def _trained_less(graph: GraphOp) -> Iterator[Change]:
    """The last layer only, and vectors (biases and scales) only: other training, which gives other
    parameters."""
    depth: dict[ComputeOp, int] = {}
    for op in graph.computes:
        makers = [v.owner for v in op.operands if isinstance(v.owner, ComputeOp)]
        depth[op] = 1 + max((depth[maker] for maker in makers), default=0)
    kinds = tensor_kinds(graph)
    made: list[tuple[int, str, int]] = []
    for i, argument in enumerate(graph.arguments):
        at = graph.updates(i)
        maker = None if at is None else graph.return_op.arguments[at].owner
        if isinstance(maker, ComputeOp) and kinds[argument] == "parameters":
            made.append((depth[maker], graph.arg_name(i), len(graph.arg_shape(i))))
    made.sort()
    matrices = [number for number, (_, _, rank) in enumerate(made) if rank > 1]
    if len(matrices) > 1:
        last = [name for _, name, _ in made[: matrices[0] + 1]]
        yield _train(last, "only the last layer is trained, which gives other parameters")
    vectors = [name for _, name, rank in made if rank <= 1]
    if vectors and matrices:
        yield _train(
            vectors, "only biases and other vectors are trained, which gives other parameters"
        )


def _train(names: list[str], meaning: str) -> Change:
    return Change((("train", ",".join(sorted(names))),), meaning)
