"""The common part of the checkpointing baselines: where the forward part of a program ends, where
it can be cut into a chain, and how dropped tensors are recomputed.

A `Problem` does not say what is forward and what is backward. A training step shows it in how long
tensors live: what the first layers make is read last, so lifetimes nest around the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event, Load, Run

# A tensor of at most so many operations (a mask, a one-hot label) does not keep a cut from
# being an articulation point: it is kept beside the one activation.
SIDE_OPERATIONS = 3


def loss_boundary(instance: Instance) -> int:
    """The number of operations in the forward part.

    It ends where the tensors that are in use have the longest lives in all (in operations). Only
    tensors that operations make count, and of these not those that stay until the end or that only
    updates of parameters read: gradients that wait for the optimizer are no activations.
    """
    n = instance.n
    change = [0] * (n + 1)
    for v, k in enumerate(instance.producer):
        readers = instance.readers[v]
        if k is None or not readers or all(_updates(instance, j) for j in readers):
            continue
        change[k] += readers[-1] - k
        change[readers[-1]] -= readers[-1] - k
    best, boundary, total = 0, n, 0
    for k in range(n):
        total += change[k]
        if total > best:
            best, boundary = total, k + 1
    return boundary


def _updates(instance: Instance, k: int) -> bool:
    """Does operation k make nothing but new values of parameters and results of the program?"""
    made = [instance.tensors[v] for v in instance.operations[k].outputs]
    return all(tensor.replaces is not None or tensor.end is not None for tensor in made)


@dataclass(frozen=True)
class Chain:
    """The forward part of a program, in program order, as a chain of blocks.

    Block b consists of the operations from `cuts[b]` up to but not including `cuts[b + 1]`; the
    first cut is 0 and the last is the boundary to the backward part. At each cut between blocks the
    operations after it, beginning with the first, read the results of one operation before it: an
    articulation point of the forward graph. Tensors that hang on few operations
    (`SIDE_OPERATIONS`) may cross as well.
    """

    instance: Instance
    cuts: tuple[int, ...]

    @property
    def boundary(self) -> int:
        return self.cuts[-1]

    @property
    def length(self) -> int:
        """Number of blocks."""
        return len(self.cuts) - 1

    @cached_property
    def block(self) -> tuple[int, ...]:
        """The block of each forward operation."""
        return tuple(b for b in range(self.length) for _ in range(self.cuts[b], self.cuts[b + 1]))

    @cached_property
    def states(self) -> tuple[frozenset[int], ...]:
        """The tensors that each block reads of blocks before it, or these pass on across it."""
        return tuple(frozenset(crossing(self.instance, c, self.boundary)) for c in self.cuts)

    def block_of(self, v: int) -> int | None:
        """The block that makes tensor v; None where none does."""
        k = self.instance.producer[v]
        return None if k is None or k >= self.boundary else self.block[k]

    @cached_property
    def stashes(self) -> tuple[tuple[int, ...], ...]:
        """For each block the tensors that it makes and the backward part reads, but for those that
        must be in RAM at the end."""
        stashes: list[list[int]] = [[] for _ in range(self.length)]
        for v, readers in enumerate(self.instance.readers):
            b = self.block_of(v)
            if b is None or self.instance.tensors[v].end is Place.RAM:
                continue
            if readers and readers[-1] >= self.boundary:
                stashes[b].append(v)
        return tuple(map(tuple, stashes))

    def describe(self) -> str:
        """A line for the log."""
        text = f"forward part: {self.boundary} operations in {self.length} blocks"
        if self.length < self.boundary:
            text += " (not a chain: linearised at its articulation points)"
        return text

    def needed(self, b: int, targets: Iterable[int], have: frozenset[int] | set[int]) -> list[int]:
        """The operations of block b that make `targets` when `have` is in RAM, and what must be
        there at the end, in order."""
        wanted = set(targets)
        found: list[int] = []
        for k in reversed(range(self.cuts[b], self.cuts[b + 1])):
            if not wanted.isdisjoint(self.instance.operations[k].outputs):
                found.append(k)
                wanted.update(
                    v
                    for v in self.instance.inputs[k]
                    if v not in have and self.instance.tensors[v].end is not Place.RAM
                )
        return found[::-1]


def crossing(instance: Instance, cut: int, boundary: int) -> list[int]:
    """Tensors made before `cut` that forward operations from `cut` on read."""
    return [
        v
        for v, k in enumerate(instance.producer)
        if k is not None and k < cut and any(cut <= j < boundary for j in instance.readers[v])
    ]


def forward_chain(instance: Instance) -> Chain:
    """The forward part, cut at all its articulation points."""
    boundary = loss_boundary(instance)
    n_ancestors = [len(above) for above in instance.depth]
    last = [max((j for j in r if j < boundary), default=-1) for r in instance.readers]
    cuts = [0]
    live: set[int] = set()  # operations before the cut with results that are read after it
    for cut in range(1, boundary):
        live.add(cut - 1)
        live = {k for k in live if any(last[v] >= cut for v in instance.operations[k].outputs)}
        # Where all hang on few operations, as after the first ones, there must be only one.
        trunk = {k for k in live if n_ancestors[k] >= SIDE_OPERATIONS} or live
        if len(trunk) == 1 and not trunk.isdisjoint(
            k for v in instance.inputs[cut] if (k := instance.producer[v]) is not None
        ):
            cuts.append(cut)
    return Chain(instance, (*cuts, boundary) if boundary else (0,))


class Emitter:
    """The runs and page-ins of a program in which some forward operations run again.

    Tensors that start on storage are loaded before they are first read, and then stay.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.events: list[Event] = []
        self.loaded: set[int] = set()

    def run(self, k: int) -> None:
        """Run operation k (k = n: have what must be in RAM at the end)."""
        for v in self.instance.inputs[k]:
            if self.instance.stored_at_start[v] and v not in self.loaded:
                self.loaded.add(v)
                self.events.append(Load(v))
        if k < self.instance.n:
            self.events.append(Run(k))


def with_checkpoints(chain: Chain, chosen: Sequence[int]) -> list[Event]:
    """The program with checkpoints at the cuts `chosen` (Chen et al. 2016).

    What crosses a chosen cut is kept. Everything else of the forward part that the backward part
    reads is dropped, but for the last segment, which the backward part begins with. The rest of a
    segment is recomputed, each operation at most once, when the backward part first reads any of
    it. What cannot be recomputed by then is kept.
    """
    instance = chain.instance
    kept = set().union(*(crossing(instance, cut, chain.boundary) for cut in chosen))
    bounds = (0, *sorted(chosen), chain.boundary)
    segment = [s for s in range(len(bounds) - 1) for _ in range(bounds[s], bounds[s + 1])]
    blocks = Chain(instance, bounds)
    dropped = {v for stash in blocks.stashes[:-1] for v in stash if v not in kept}
    while True:
        emitter, gone = Emitter(instance), set(dropped)
        stuck: set[int] = set()
        for k in range(instance.n + 1):
            wanted = gone.intersection(instance.inputs[k]) if k >= chain.boundary else ()
            for s in sorted({segment[instance.producer[v] or 0] for v in wanted}):
                targets = {v for v in blocks.stashes[s] if v in gone}
                have = kept | (set(blocks.stashes[s]) - gone)
                again = blocks.needed(s, targets, have)
                stuck.update(j for j in again if instance.last_recompute[j] < k)
                for j in again:
                    emitter.run(j)
                gone -= targets
            emitter.run(k)
        if not stuck:
            return emitter.events
        # The results of such an operation are kept, and so need not be recomputed.
        held = {v for j in stuck for v in instance.operations[j].outputs}
        kept |= held
        dropped -= held
