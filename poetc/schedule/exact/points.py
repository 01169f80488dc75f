"""Between points of a model and sequences of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from poetc.schedule.exact.highs import LinearProgram
from poetc.schedule.exact.milp import SlotModel
from poetc.schedule.exact.slots import NONE
from poetc.schedule.model.rebuild import Event, Load, Run, prune, resident, stages, streamed


def sequence(model: SlotModel, x: np.ndarray) -> list[Event]:
    """The runs and page-ins of a point, rounded."""
    loads: list[list[int]] = [[] for _ in model.slots]
    for v, uses in enumerate(model.events):
        before = -1
        for use in uses:
            if use.load != NONE and x[use.load] > 0.5:
                loads[_issued(model, v, before, use.slot, x)].append(v)
            before = use.slot
    result: list[Event] = []
    for s, slot in enumerate(model.slots):
        result += [Load(v) for v in loads[s]]
        used = model.obligatory(s) or x[model.run[s]] > 0.5
        if used and slot.operation < model.instance.n:
            ways = model.choices.columns.get(s, {})
            result.append(Run(slot.operation, max(ways, key=lambda w: x[ways[w]], default=None)))
    return result


def _issued(model: SlotModel, v: int, before: int, slot: int, x: np.ndarray) -> int:
    """The slot before which `v` is paged in for `slot`: as many first runs earlier as it is in
    RAM for that, but after the slot `before`."""
    issued = slot
    early = {} if model.overlap is None else model.overlap.early
    for s in range(slot - 1, before, -1):
        if (s, v) in early:
            if x[early[s, v]] <= 0.5:
                break
            issued = s
    return issued


def point(model: SlotModel, events: Sequence[Event]) -> np.ndarray | None:
    """The point of a sequence, or None where the slots cannot express it or a row is broken.

    Recomputes take the slot of the stage they fall in, whatever their order in it.
    """
    instance = model.instance
    kept, _ = prune(instance, events)
    where = {(slot.stage, slot.operation): s for s, slot in enumerate(model.slots)}
    x = np.zeros(model.lp.columns)
    used: dict[int, Run | None] = {-1: None}
    waiting: list[int] = []
    loads: set[tuple[int, int]] = set()
    for event, stage in zip(kept, stages(instance.n, kept), strict=True):
        if isinstance(event, Load):
            waiting.append(event.tensor)
            continue
        s = where.get((stage, event.operation))
        if s is None or s in used:
            return None
        used[s] = event
        read = [v for v in waiting if v in resident(instance, event)[0]]
        waiting = [v for v in waiting if v not in read]
        loads |= {(v, s) for v in read}
    end = len(model.slots) - 1
    used[end] = None
    loads |= {(v, end) for v in waiting}
    # Tensors that are streamed, in and out.
    read, written = set[tuple[int, int]](), set[int]()
    for s, run in used.items():
        if s >= 0 and model.run[s] != NONE:
            x[model.run[s]] = 1.0
        if run is not None:
            if s in model.choices.columns:
                x[model.choices.columns[s][run.variant]] = 1.0
            ins, outs = streamed(instance, run)
            read |= {(v, s) for v in ins}
            written |= outs
    for v, uses in enumerate(model.events):
        # Backwards: is v wanted in RAM after this event, and is it to come by a page-in?
        wanted = loading = False
        for use in reversed(uses):
            if use.keep != NONE:
                x[use.keep] = float(wanted)
            if use.slot in used and (v, use.slot) not in read:
                wanted, loading = not use.makes, (v, use.slot) in loads
            if wanted and loading and use.load != NONE:
                x[use.load] = 1.0
                wanted = loading = False
        if wanted:
            return None
        paged = instance.must_store[v] or any((v, s) in loads | read for s in used)
        if v in model.write and paged and v not in written:
            x[model.write[v]] = 1.0
    _complete(model, x, used)
    return x if violation(model.lp, x) <= 1e-6 else None


def _complete(model: SlotModel, x: np.ndarray, used: Mapping[int, Run | None]) -> None:
    """Fills in the columns that follow from the others."""
    lp = model.lp
    taken: set[tuple[int, int]] = set()
    after = {
        (v, use.slot): use.keep
        for v, uses in enumerate(model.events)
        for use in uses
        if use.keep != NONE
    }
    by_size = sorted(
        model.share.items(), key=lambda item: -model.instance.tensors[item[0][1][0]].bytes
    )
    for (s, (o, i)), column in by_size:
        kept = (i, s) in after and x[after[i, s]] > 0.5
        run = used.get(s)
        away = set[int]() if run is None else set[int]().union(*streamed(model.instance, run))
        together = {
            v
            for a, b in model.instance.operations[model.slots[s].operation].inplace
            if model.instance.tensors[a].replaces == b and a not in away
            for v in (a, b)
        }
        if {o, i} & (away | together):
            continue
        if s in used and not kept and not {(s, o), (s, ~i)} & taken:
            taken |= {(s, o), (s, ~i)}
            x[column] = 1.0
    for column, rows in model.derived.items():
        for row in rows:
            begin, end = lp.starts[row], lp.starts[row + 1] - 1
            terms = zip(lp.index[begin:end], lp.value[begin:end], strict=True)
            rest = sum(weight * x[j] for j, weight in terms) - lp.row_upper[row]
            x[column] = max(x[column], rest)


def violation(lp: LinearProgram, x: np.ndarray) -> float:
    """The most by which `x` breaks a row or a bound."""
    worst = max(
        float(np.max(np.array(lp.lower) - x, initial=0.0)),
        float(np.max(x - np.array(lp.upper), initial=0.0)),
    )
    starts = np.array(lp.starts)
    terms = np.append(np.array(lp.value) * x[np.array(lp.index, dtype=int)], 0.0)
    sums = np.add.reduceat(terms, starts[:-1]) if lp.rows else np.zeros(0)
    sums[np.diff(starts) == 0] = 0.0
    worst = max(worst, float(np.max(np.array(lp.row_lower) - sums, initial=0.0)))
    return max(worst, float(np.max(sums - np.array(lp.row_upper), initial=0.0)))
