"""`pofo`: Beaumont, Eyraud-Dubois, Shilova, "Efficient Combination of Rematerialization and
Offloading for Training DNNs" (NeurIPS 2021): a dynamic programme over a chain in which each
block's results are kept, recomputed once, or moved to storage.

The blocks lie between the articulation points of the forward graph, as its authors do with
networks that are no chains. The programme goes through the blocks in forward order; as the
backward part goes the other way, what is in RAM while block b is on its way back is what the
blocks before it keep, what b needs and what the operation at hand takes. Block by block:

- keep: the stash (what the backward part reads of the block) stays in RAM;
- offload: the stash goes to storage when it is made and comes back when it is read;
- recompute: a run of blocks is recomputed together from the state before it, each operation once;
  that state is kept or offloaded.

With DMA transfers cost no time, as in the paper, but page-outs take no longer than the forward
part and page-ins no longer than the backward part; without DMA they take their time. RAM and
transfers are counted in steps (`MEMORY_STEPS`, `BUS_STEPS`), rounded up. The paper minimises time;
the programme is solved for time and for energy, and the schedule that uses less energy is
returned. What it leaves out (the transients of a segment that is recomputed, in-place, states that
several blocks read) makes RAM estimates wrong, so it is solved for somewhat more RAM than there
is, then for less and less, until the checker accepts the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from poetc.schedule.model import keep_all
from poetc.schedule.model.errors import StrategyUndefinedError
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event, Load
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy
from poetc.schedule.strategies._chain import Chain, Emitter, forward_chain

MEMORY_STEPS = 400
BUS_STEPS = 16
# The programme is solved for these multiples of the RAM.
SHARES = tuple(1.15 * 0.96**i for i in range(60))
# A longer chain is cut at every second, third, ... of its articulation points.
MOST_BLOCKS = 48


class Fate(Enum):
    """The fate of a block's stash."""

    KEEP = "keep"
    OFFLOAD = "offload"
    RECOMPUTE = "recompute"


@dataclass(frozen=True)
class Part:
    """Blocks `begin` to `end` (exclusive) with one fate; `offload_state` says that the state from
    which they are recomputed goes to storage."""

    begin: int
    end: int
    fate: Fate
    offload_state: bool = False


@strategy(turn=6)
def pofo(search: Search) -> bool:
    """Solves the programme for smaller and smaller RAM until a schedule keeps to the limits, for
    time and for energy. True when there is none; raises `StrategyUndefinedError`."""
    chain = _coarse(forward_chain(search.instance))
    search.note(chain.describe())
    if chain.length < 2:
        raise StrategyUndefinedError(
            "strategy pofo is defined for chains: the forward part of this program "
            f"({chain.boundary} operations) has no articulation point"
        )
    programme = Programme(chain)
    ram = search.instance.problem.ram_bytes
    for energy in (True, False):
        tried: set[tuple[Part, ...]] = set()
        for share in SHARES if ram is not None else SHARES[:1]:
            if search.remaining <= 0 or search.stop.is_set():
                return False
            parts = programme.solve(math.inf if ram is None else ram * share, energy)
            if parts is None:
                break
            if parts in tried:
                continue
            tried.add(parts)
            if search.offer(realise(chain, parts), f"pofo: {_describe(parts)}"):
                break
    return search.steps is None


def _describe(parts: Sequence[Part]) -> str:
    count = dict.fromkeys(Fate, 0)
    for part in parts:
        count[part.fate] += part.end - part.begin
    return ", ".join(f"{fate.value} {blocks}" for fate, blocks in count.items())


def _coarse(chain: Chain) -> Chain:
    stride = -(-chain.length // MOST_BLOCKS) if chain.length else 1
    cuts = chain.cuts[:-1:stride] + chain.cuts[-1:]
    return Chain(chain.instance, cuts) if stride > 1 else chain


class Programme:
    """Facts about each block for the dynamic programme, and the programme."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.instance = instance = chain.instance
        tensors = instance.tensors
        self.stash = [sum(tensors[v].bytes for v in stash) for stash in chain.stashes]
        self._measure()
        # Time and energy to make each block again; inf where something may not run again.
        self.again = [self._again(b) for b in range(chain.length)]
        self.forward_ns = sum(o.time_ns for o in instance.operations[: chain.boundary])
        self.backward_ns = sum(o.time_ns for o in instance.operations[chain.boundary :])

    def _measure(self) -> None:
        """RAM in the unlimited run, less the stashes of the blocks before: `forward[b]` the most
        while block b goes forward, `backward[b]` while it is the last with a stash in use on the
        way back, `gradient[b]` what the backward part itself has in RAM when that begins."""
        chain, instance = self.chain, self.instance
        size = [t.bytes for t in instance.tensors]
        born = [-1 if k is None else k for k in instance.producer]
        last = [instance.n if t.end is Place.RAM else -1 for t in instance.tensors]
        last = [max(end, *r, -1) for end, r in zip(last, instance.readers, strict=True)]
        self.forward, self.backward = [0] * chain.length, [0] * chain.length
        self.gradient = [0] * chain.length
        for k, used in enumerate(keep_all.bytes_in_use(instance)):
            live = [sum(size[v] for v in s if born[v] <= k <= last[v]) for s in chain.stashes]
            if k < chain.boundary:
                b = chain.block[k]
                self.forward[b] = max(self.forward[b], used - sum(live[:b]))
                continue
            b = max((b for b in range(chain.length) if live[b]), default=0)
            if not self.backward[b]:
                made = range(len(size))
                self.gradient[b] = sum(
                    size[v] for v in made if chain.boundary <= born[v] < k <= last[v]
                )
            self.backward[b] = max(self.backward[b], used - sum(live[:b]))

    def _again(self, b: int) -> tuple[float, float]:
        chain, instance = self.chain, self.instance
        first = min(
            (j for v in chain.stashes[b] for j in instance.readers[v] if j >= chain.boundary),
            default=instance.n,
        )
        targets = {*chain.stashes[b], *(chain.states[b + 1] if b + 1 < chain.length else ())}
        runs = chain.needed(b, targets, chain.states[b])
        if any(instance.last_recompute[k] < min(first, instance.n) for k in runs):
            return math.inf, math.inf
        return sum(instance.operations[k].time_ns for k in runs), sum(
            instance.run_energy[k] for k in runs
        )

    def transfer(self, tensors: Sequence[int], energy: bool) -> tuple[float, int]:
        """Price of moving `tensors` out and in (inf where that is not allowed), and the steps of
        the bus that it takes."""
        instance = self.instance
        if not all(instance.pageable[v] for v in tensors):
            return math.inf, 0
        new = [v for v in tensors if not instance.must_store[v]]
        out_ns = sum(instance.tensors[v].pageout_time_ns for v in new)
        in_ns = sum(instance.tensors[v].pagein_time_ns for v in tensors)
        share = 0.0
        if instance.problem.dma:
            share = max(out_ns / max(self.forward_ns, 1), in_ns / max(self.backward_ns, 1))
        steps = min(math.ceil(share * BUS_STEPS), BUS_STEPS + 1)
        if energy:
            price = sum(instance.out_energy[v] for v in new)
            return price + sum(instance.in_energy[v] for v in tensors), steps
        return (0.0 if instance.problem.dma else float(out_ns + in_ns)), steps

    def solve(self, ram: float, energy: bool) -> tuple[Part, ...] | None:
        """The cheapest fates within `ram`, by energy or by time; None where there are none."""
        chain, length = self.chain, self.chain.length
        bus = BUS_STEPS if self.instance.problem.dma else 0
        unit = 1.0 if math.isinf(ram) else max(ram / MEMORY_STEPS, 1e-9)
        rows = 0 if math.isinf(ram) else MEMORY_STEPS

        def steps(bytes: float) -> int:
            return min(math.ceil(bytes / unit), rows + 1) if rows else 0

        # best[b][bus, memory]: the least price for the blocks before b; how it was reached beside
        # it.
        best = [np.full((bus + 1, rows + 1), math.inf) for _ in range(length + 1)]
        via: list[list[tuple[Part, int, int]]] = [[] for _ in range(length + 1)]
        choice = [np.full((bus + 1, rows + 1), -1) for _ in range(length + 1)]
        best[0][0, 0] = 0.0

        def step(part: Part, price: float, moved: int, kept: int, peak: int) -> None:
            """Takes `part` wherever `peak` fits beside what is kept so far."""
            room = rows - peak
            if math.isinf(price) or room < 0 or moved > bus:
                return
            source, goal = best[part.begin], best[part.end]
            height = min(room, rows - kept) + 1
            if height <= 0:
                return
            new = source[: bus + 1 - moved, :height] + price
            old = goal[moved:, kept : kept + height]
            better = new < old
            if better.any():
                old[better] = new[better]
                via[part.end].append((part, moved, kept))
                choice[part.end][moved:, kept : kept + height][better] = len(via[part.end]) - 1

        for b in range(length):
            stash, peak = self.stash[b], steps(max(self.forward[b], self.backward[b]))
            price, moved = self.transfer(chain.stashes[b], energy)
            step(Part(b, b + 1, Fate.KEEP), 0.0, 0, steps(stash), peak)
            if stash:
                # Too big by this count, it may still do alone: its tensors come back one by one.
                step(Part(b, b + 1, Fate.OFFLOAD), price, moved, 0, min(peak, rows))
            state = [v for v in chain.states[b] if self.instance.tensors[v].end is not Place.RAM]
            size = sum(self.instance.tensors[v].bytes for v in state)
            out, bus_out = self.transfer(state, energy)
            total, forward, backward, again = 0, 0, 0, 0.0
            for end in range(b + 1, length + 1):
                forward = max(forward, total + self.forward[end - 1])
                backward = max(backward, total + self.backward[end - 1])
                total += self.stash[end - 1]
                again += self.again[end - 1][energy]
                peak = steps(size + max(forward + self.gradient[end - 1], backward))
                if peak > rows or math.isinf(again):
                    break
                step(Part(b, end, Fate.RECOMPUTE), again, 0, steps(size), peak)
                step(Part(b, end, Fate.RECOMPUTE, True), again + out, bus_out, 0, peak)

        if not np.isfinite(best[length]).any():
            return None
        at, memory = np.unravel_index(int(np.argmin(best[length])), best[length].shape)
        parts: list[Part] = []
        end = length
        while end > 0:
            part, moved, kept = via[end][choice[end][at, memory]]
            parts.append(part)
            end, at, memory = part.begin, at - moved, memory - kept
        return tuple(reversed(parts))


def realise(chain: Chain, parts: Sequence[Part]) -> list[Event]:
    """The program with these fates. What cannot be recomputed when it is wanted is kept; a state
    that a segment is recomputed from is kept, or offloaded, whatever the fate of the block that
    makes it."""
    instance = chain.instance
    part_of = [part for part in parts for _ in range(part.begin, part.end)]
    offloaded: set[int] = set()
    dropped: set[int] = set()
    held: set[int] = set()
    for part in parts:
        stash = {v for b in range(part.begin, part.end) for v in chain.stashes[b]}
        if part.fate is Fate.OFFLOAD:
            offloaded |= stash
        if part.fate is Fate.RECOMPUTE:
            dropped |= stash
    for part in parts:
        if part.fate is Fate.RECOMPUTE:
            state = {
                v for v in chain.states[part.begin] if instance.tensors[v].end is not Place.RAM
            }
            (offloaded if part.offload_state else held).update(state)
    while True:
        away = {v for v in offloaded - held if instance.pageable[v]}
        events, stuck = _emit(chain, part_of, dropped - held - away, away, held)
        if not stuck:
            return events
        held |= stuck


def _emit(
    chain: Chain, part_of: Sequence[Part], dropped: set[int], away: set[int], held: set[int]
) -> tuple[list[Event], set[int]]:
    """The events, and what was wanted but could not be recomputed."""
    instance, boundary = chain.instance, chain.boundary
    emitter, stuck = Emitter(instance), set[int]()
    gone, outside = set(dropped), set(away)

    def bring(tensors: Sequence[int], stage: int) -> None:
        for v in tensors:
            if v in outside:
                outside.discard(v)
                emitter.events.append(Load(v))
        wanted = gone.intersection(tensors)
        blocks = {b for v in wanted if (b := chain.block_of(v)) is not None}
        for part in dict.fromkeys(part_of[b] for b in sorted(blocks)):
            again(part, stage)

    def again(part: Part, stage: int) -> None:
        """Makes the dropped results of a part again."""
        targets = {v for b in range(part.begin, part.end) for v in chain.stashes[b] if v in gone}
        if not targets:
            return
        runs: list[int] = []
        wanted = set(targets)
        for k in reversed(range(chain.cuts[part.begin], chain.cuts[part.end])):
            if not wanted.isdisjoint(instance.operations[k].outputs):
                runs.append(k)
                wanted.update(v for v in instance.inputs[k] if not there(v))
        gone.difference_update(targets)
        for k in reversed(runs):
            if instance.last_recompute[k] < stage:
                stuck.update(instance.operations[k].outputs)
            bring([v for v in instance.inputs[k] if chain.block_of(v) is not None], stage)
            emitter.run(k)

    def there(v: int) -> bool:
        """Is `v`, a result of the forward part, still in RAM or on storage in the backward part?"""
        return (
            chain.block_of(v) is None
            or instance.tensors[v].end is Place.RAM
            or v in away
            or v in held
            or (instance.readers[v][-1] >= boundary and v not in gone)
        )

    for k in range(instance.n + 1):
        if k >= boundary:
            bring(instance.inputs[k], k)
        emitter.run(k)
    return emitter.events, stuck
