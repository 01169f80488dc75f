"""How well and how fast arenas are packed whose perfect packing is known.

    python -m benchmarks.arena [--seeds N] [--output docs/arena.md]

The instances are rectangles of 1 MiB cut into pieces (`arena_instances.py`); every packing is
checked by the validator.
"""

from __future__ import annotations

import argparse
import time

from benchmarks import document
from benchmarks.arena_instances import CAPACITY_BYTES, perfect
from poetc.schedule.arena.check import check_packing
from poetc.schedule.arena.pack import pack

KINDS: dict[str, dict[str, float]] = {
    "straight cuts, 1024 steps, 1 KiB": {"steps": 1024, "unit_bytes": 1024},
    "30% spirals, 1024 steps, 1 KiB": {"steps": 1024, "unit_bytes": 1024, "spirals": 0.3},
    "straight cuts, 100 steps, 4 B": {"steps": 100, "unit_bytes": 4},
    "20% spirals, 100 steps, 4 B": {"steps": 100, "unit_bytes": 4, "spirals": 0.2},
    "30% spirals, 400 steps, 4 B": {"steps": 400, "unit_bytes": 4, "spirals": 0.3},
    "straight cuts, 20 steps, 4 KiB": {"steps": 20, "unit_bytes": 4096},
    "20% spirals, 50 steps, 1 KiB": {"steps": 50, "unit_bytes": 1024, "spirals": 0.2},
    "2 parts, all sizes": {"steps": 1024, "unit_bytes": 1024, "even": True},
    "2 to 4 parts, all sizes": {"steps": 1024, "unit_bytes": 1024, "most": 4, "even": True},
    "2 to 4 parts, 20% spirals, all sizes": {
        "steps": 1024,
        "unit_bytes": 1024,
        "most": 4,
        "even": True,
        "spirals": 0.2,
    },
    "2 to 5 parts, 200 steps, all sizes": {
        "steps": 200,
        "unit_bytes": 1024,
        "most": 5,
        "even": True,
    },
    "5% left out, 1024 steps, 1 KiB": {"steps": 1024, "unit_bytes": 1024, "slack": 0.05},
}
COUNTS = (100, 200, 300, 450)

HEAD = """# Packing the arena

`poetc/schedule/arena/pack.py` gives every buffer an offset. A buffer lives from its first to its
last step, both included: one that ends at step 4 and one that begins at step 5 may share bytes, one
that begins at step 4 may not. Sizes and offsets are multiples of the alignment. A buffer may have a
stricter one of its own (a cache line, say): then it takes whole multiples of that.

1. Buffers that meet all others go to the bottom, if they keep the others aligned; groups that never
   meet in time are packed apart.
2. Six orders with first fit and best fit. On training steps one of them nearly always reaches the
   peak of live bytes, which no arena can be below.
3. Otherwise a search (`arena/search.py`) for exactly that height: it fills the valleys of the
   skyline, the one with the fewest possibilities first, jumps back over decisions that did not
   matter, and restarts. Where there is no room to spare, buffers that must lie side by side are
   joined first (`arena/join.py`); restarts doubt some of these guesses. Effort grows from round to
   round: each goes on with the search for the height that is wanted (the target, if one is given)
   and for the least possible, and with a sixteenth of that effort for each of some heights in
   between. More effort is never worse. A search that ends without an answer proves a higher bound.

`arena/check.py`, which shares no code with this, checks every plan.

## Buffers that move

Even where each step has room for its live tensors, there may be no packing: a buffer keeps its
place, and its neighbours change. Example, in units, first and last step: (2, 0–0), (3, 0–1),
(1, 1–2), (2, 2–2), (1, 1–3), (1, 2–3), (3, 3–4), (2, 4–4). At most 5 units are alive; 6 are needed.
With storage there is a way out. A tensor that leaves RAM after one use and is paged in before the
next gets another place; in the example one unit does so. In the extreme every kernel finds its
operands wherever it likes, so whatever RAM a schedule needs at least is enough for an arena too, at
the price of transfers.

`schedule/arena/relocate.py` looks for few and cheap moves. A sweep through time places each buffer
that begins where that costs least: in a hole, or else where buffers lie that can move away at that
moment. Local search over what each buffer prefers (bottom, top, near a place) and over moves that
are made in any case runs some thousand sweeps. Last, each move is taken back that
`arena/pack.py` can do without. No move at all is a possible result, and not a rare one.

## Instances with a known perfect packing
"""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args(words)
    print(HEAD)
    print(
        f"Made by `python -m benchmarks.arena --seeds {arguments.seeds}`: a rectangle of "
        f"{CAPACITY_BYTES:,} bytes cut into\nbuffers, packed at default effort with the capacity "
        "as the target. Nothing is left over, unless\nsome buffers are left out; a spiral is five "
        "pieces around a middle one; *all sizes*: small pieces\nare cut as often as big ones. "
        "*Solved* is within the capacity; waste, what the arena has beyond it,\nand seconds of all "
        "instances, median and worst.\n"
    )
    print("| cuts | buffers | solved | waste, median | worst | s, median | worst |")
    print("|---|---|---|---|---|---|---|")
    for name, kind in KINDS.items():
        for count in COUNTS:
            wastes, seconds = [], []
            for seed in range(arguments.seeds):
                buffers = perfect(seed, count, **kind)  # type: ignore[arg-type]
                started = time.monotonic()
                packing = pack(buffers, target_bytes=CAPACITY_BYTES)
                seconds.append(time.monotonic() - started)
                check_packing(
                    [b.bytes for b in buffers],
                    [(b.first, b.last) for b in buffers],
                    packing.offsets,
                    packing.arena_bytes,
                    4,
                )
                excess = max(0, packing.arena_bytes - CAPACITY_BYTES)
                wastes.append(excess / CAPACITY_BYTES)
            wastes.sort()
            seconds.sort()
            middle = len(wastes) // 2
            print(
                f"| {name} | {count} | {wastes.count(0)} of {len(wastes)} "
                f"| {wastes[middle]:.1%} | {wastes[-1]:.1%} "
                f"| {seconds[middle]:.1f} | {seconds[-1]:.1f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    document.run(main)
