"""From what runs and what is paged in, in order, to a complete schedule.

A solver decides the sequence of runs and page-ins. The rest follows: a tensor stays in RAM exactly
as long as something later reads that live range, it is written to storage the first time it is in
RAM if its page is ever read (or must be there at the end) and no run streams it there, and an input
that dies hands its buffer to an output where it may. No other choice needs less RAM or energy for
the same sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Compute, Free, PageIn, PageOut, Place, Problem, Step


@dataclass(frozen=True)
class Run:
    """Run an operation, as it is (None) or by one of its variants."""

    operation: int
    variant: int | None = None


@dataclass(frozen=True)
class Load:
    """Page a tensor in."""

    tensor: int


Event = Run | Load


def events_of(steps: Iterable[Step]) -> list[Event]:
    """The computes and page-ins, in order."""
    events: list[Event] = []
    for step in steps:
        if isinstance(step, Compute):
            events.append(Run(step.operation, step.variant))
        elif isinstance(step, PageIn):
            events.append(Load(step.tensor))
    return events


def prune(instance: Instance, events: Sequence[Event]) -> tuple[list[Event], list[set[int]]]:
    """Drops runs and page-ins that nothing uses; returns the rest and what is in RAM before each
    event and, last, at the end."""
    first: dict[int, int] = {}
    for index, event in enumerate(events):
        if isinstance(event, Run):
            first.setdefault(event.operation, index)
    needed = set(instance.inputs[-1])
    pages = {v for v, must in enumerate(instance.must_store) if must}
    kept: list[Event] = []
    live = [set(needed)]
    for index in reversed(range(len(events))):
        event = events[index]
        if isinstance(event, Load):
            if event.tensor not in needed:
                continue
            needed.discard(event.tensor)
            pages.add(event.tensor)
        else:
            inputs, outputs = resident(instance, event)
            read, written = streamed(instance, event)
            useless = needed.isdisjoint(outputs) and pages.isdisjoint(written)
            if first[event.operation] != index and useless:
                continue
            needed.difference_update(outputs)
            needed.update(inputs)
            pages.difference_update(written)
            pages.update(read)
        kept.append(event)
        live.append(set(needed))
    kept.reverse()
    live.reverse()
    return kept, live


def resident(instance: Instance, run: Run) -> tuple[set[int], set[int]]:
    """Inputs and outputs of a run that it has in RAM."""
    operation = instance.operations[run.operation]
    way = operation.way(run.variant)
    return set(way.resident(operation.inputs)), set(way.resident(operation.outputs))


def streamed(instance: Instance, run: Run) -> tuple[set[int], set[int]]:
    """Inputs and outputs of a run that it streams."""
    operation = instance.operations[run.operation]
    way = operation.way(run.variant)
    return set(way.streams(operation.inputs)), set(way.streams(operation.outputs))


def stages(n: int, events: Sequence[Event]) -> list[int]:
    """For each event the operation whose first run it leads to, `n` after the last first run."""
    result = [n] * len(events)
    seen: set[int] = set()
    for index, event in enumerate(events):
        if isinstance(event, Run) and event.operation not in seen:
            seen.add(event.operation)
            result[index] = event.operation
    for index in reversed(range(len(events) - 1)):
        event = events[index]
        if not (isinstance(event, Run) and event.operation == result[index]):
            result[index] = result[index + 1]
    return result


def rebuild(instance: Instance, events: Sequence[Event]) -> tuple[Step, ...]:
    """The schedule of `events`. It may break a rule: that is for the checker to say."""
    tensors = instance.tensors
    kept, live = prune(instance, events)
    store = {v for v, must in enumerate(instance.must_store) if must}
    written: set[int] = set()
    for event in kept:
        if isinstance(event, Load):
            store.add(event.tensor)
        else:
            read, made = streamed(instance, event)
            store |= read
            written |= made
    store -= written
    store -= {v for v, there in enumerate(instance.stored_at_start) if there}
    ram = {v for v, tensor in enumerate(tensors) if tensor.start is Place.RAM}
    steps: list[Step] = [PageOut(v) for v in sorted(ram & store)]
    store -= ram
    steps += [Free(v) for v in sorted(ram - live[0])]
    ram &= live[0]
    for event, after in zip(kept, live[1:], strict=True):
        if isinstance(event, Load):
            steps.append(PageIn(event.tensor))
            ram.add(event.tensor)
        else:
            inputs, outputs = resident(instance, event)
            pairs = share(instance.problem, event.operation, inputs - after, outputs)
            steps.append(Compute(event.operation, pairs, event.variant))
            ram.difference_update(i for _, i in pairs)
            ram.update(outputs)
            steps += [PageOut(v) for v in sorted(store & outputs)]
            store -= outputs
        steps += [Free(v) for v in sorted(ram - after)]
        ram &= after
    return tuple(steps)


def share(
    problem: Problem, k: int, dying: set[int], made: set[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """The in-place pairs of operation `k` that save most, given which inputs die there, and which
    outputs are made in RAM (None: all)."""
    tensors = problem.tensors
    pairs = [
        (o, i)
        for o, i in problem.operations[k].inplace
        if i in dying and (made is None or o in made)
    ]
    forced = [(o, i) for o, i in pairs if tensors[o].replaces == i]
    taken = {v for pair in forced for v in pair}
    free = [pair for pair in pairs if taken.isdisjoint(pair)]
    return tuple(forced) + _best(problem, tuple(free))


def _best(problem: Problem, pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """A matching of greatest weight. The weight of a pair is the size of its output, so what can be
    matched is a transversal matroid: the largest output first, each that can be (Edmonds 1971)."""
    choices: dict[int, list[int]] = {}
    for o, i in pairs:
        choices.setdefault(o, []).append(i)
    user: dict[int, int] = {}

    def match(o: int, tried: set[int]) -> bool:
        """Finds an input for `o`; outputs that have one may change to another."""
        for i in choices[o]:
            if i not in tried:
                tried.add(i)
                if i not in user or match(user[i], tried):
                    user[i] = o
                    return True
        return False

    for o in sorted(choices, key=lambda o: -problem.tensors[o].bytes):
        match(o, set())
    return tuple(sorted((o, i) for i, o in user.items()))
