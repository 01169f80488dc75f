"""From what runs and what is paged in, in order, to a complete schedule.

A solver decides the sequence of runs and page-ins. The rest follows: a tensor stays in RAM exactly
as long as something later reads that live range, it is written to storage the first time it is in
RAM if it is ever paged in (or must end there), and an input that dies hands its buffer to an output
where it may. No other choice needs less RAM or energy for the same sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Compute, Free, PageIn, PageOut, Place, Problem, Step


@dataclass(frozen=True)
class Run:
    """Run an operation."""

    operation: int


@dataclass(frozen=True)
class Load:
    """Page a tensor in."""

    tensor: int


Event = Run | Load


def prune(instance: Instance, events: Sequence[Event]) -> tuple[list[Event], list[set[int]]]:
    """Drops runs and page-ins that nothing uses; returns the rest and what is in RAM before each
    event and, last, at the end."""
    first: dict[int, int] = {}
    for index, event in enumerate(events):
        if isinstance(event, Run):
            first.setdefault(event.operation, index)
    needed = set(instance.inputs[-1])
    kept: list[Event] = []
    live = [set(needed)]
    for index in reversed(range(len(events))):
        event = events[index]
        if isinstance(event, Load):
            if event.tensor not in needed:
                continue
            needed.discard(event.tensor)
        else:
            outputs = instance.operations[event.operation].outputs
            if first[event.operation] != index and needed.isdisjoint(outputs):
                continue
            needed.difference_update(outputs)
            needed.update(instance.inputs[event.operation])
        kept.append(event)
        live.append(set(needed))
    kept.reverse()
    live.reverse()
    return kept, live


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
    loaded = {event.tensor for event in kept if isinstance(event, Load)}
    store = {
        v
        for v, tensor in enumerate(tensors)
        if (v in loaded or tensor.end is Place.STORAGE) and not instance.stored_at_start[v]
    }
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
            operation = instance.operations[event.operation]
            dying = {v for v in operation.inputs if v not in after}
            pairs = share(instance.problem, event.operation, dying)
            steps.append(Compute(event.operation, pairs))
            ram.difference_update(i for _, i in pairs)
            ram.update(operation.outputs)
            written = store.intersection(operation.outputs)
            steps += [PageOut(v) for v in sorted(written)]
            store -= written
        steps += [Free(v) for v in sorted(ram - after)]
        ram &= after
    return tuple(steps)


def share(problem: Problem, k: int, dying: set[int]) -> tuple[tuple[int, int], ...]:
    """The in-place pairs of operation `k` that save most, given which inputs die there."""
    tensors = problem.tensors
    pairs = [(o, i) for o, i in problem.operations[k].inplace if i in dying]
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
