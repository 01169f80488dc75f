"""What every schedule needs at least, without solving anything."""

from __future__ import annotations

from poetc.schedule.instance import Instance
from poetc.schedule.problem import Place
from poetc.schedule.rebuild import share


def ram_needed(instance: Instance) -> tuple[int, int | None]:
    """Bytes of RAM below which there is no schedule, and the operation that needs them (None: what
    is in RAM at the start or the end).

    While an operation runs for the first time its inputs, outputs and workspace are in RAM, less
    what may be shared in place, and so is every tensor that is still wanted and can be had in no
    other way.
    """
    tensors = instance.tensors
    size = [t.bytes for t in tensors]
    start = sum(t.bytes for t in tensors if t.start is Place.RAM)
    end = sum(t.bytes for t in tensors if t.end is Place.RAM)
    best: tuple[int, int | None] = (max(start, end), None)
    n = instance.n
    last_use = [max(r, default=-1) for r in instance.readers]
    for v in instance.inputs[-1]:
        last_use[v] = n
    for k, operation in enumerate(instance.operations):
        held = {v for v in range(len(tensors)) if _held(instance, v, k, last_use[v])}
        held |= set(operation.inputs)
        dying = {
            v
            for v in operation.inputs
            if not (_held(instance, v, k, last_use[v]) and last_use[v] > k)
        }
        shared = sum(size[o] for o, _ in share(instance.problem, k, dying))
        held |= set(operation.outputs)
        needed = sum(size[v] for v in held) + operation.workspace_bytes - shared
        if needed > best[0]:
            best = (needed, k)
    return best


def _held(instance: Instance, v: int, k: int, last_use: int) -> bool:
    """Is `v`, beside what operation `k` reads and makes, surely in RAM while `k` runs first?"""
    producer = instance.producer[v]
    if instance.pageable[v] or last_use <= k:
        return False
    if producer is None:
        return instance.tensors[v].start is Place.RAM
    return producer < k and instance.last_rerun[producer] <= k
