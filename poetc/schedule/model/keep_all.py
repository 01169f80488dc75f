"""The sequence that keeps everything: operations run once, tensors are freed at their last use.

Tensors that start on storage are paged in before their first use.
"""

from __future__ import annotations

import dataclasses

from poetc.schedule.model.checker import replay
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Compute, Place
from poetc.schedule.model.rebuild import Event, Load, Run, rebuild


def sequence(instance: Instance) -> list[Event]:
    """Each operation once; each tensor that starts on storage is loaded once."""
    loaded: set[int] = set()
    events: list[Event] = []
    for k in range(instance.n + 1):
        for v in instance.inputs[k]:
            if instance.stored_at_start[v] and v not in loaded:
                loaded.add(v)
                events.append(Load(v))
        if k < instance.n:
            events.append(Run(k))
    return events


def bytes_in_use(instance: Instance) -> list[int]:
    """RAM in use while each operation runs, without any limit."""
    free = dataclasses.replace(
        instance.problem, ram_bytes=None, deadline_ns=None, storage_bytes=None
    )
    steps = rebuild(Instance(free), sequence(instance))
    used = [0] * instance.n
    for step, size in zip(steps, replay(free, steps).bytes_at_step, strict=True):
        if isinstance(step, Compute):
            used[step.operation] = size
    return used


def paging_all(instance: Instance) -> list[Event]:
    """Everything that can be paged is paged in for each operation that reads it."""
    there = {v for v, t in enumerate(instance.tensors) if t.start is Place.RAM}
    events: list[Event] = []
    for k, inputs in enumerate(instance.inputs):
        wanted = [v for v in inputs if instance.pageable[v] and v not in there]
        events += [Load(v) for v in wanted]
        if k < instance.n:
            events.append(Run(k))
        there.clear()
    return events
