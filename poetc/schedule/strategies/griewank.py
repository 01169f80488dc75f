"""`griewank`: Griewank and Walther, "Algorithm 799: Revolve" (ACM TOMS 26, 2000): binomial
checkpointing of a chain of steps of equal cost.

To reverse l steps with c checkpoints (the initial state takes one of them) revolve runs

    t(l, c) = r·l − β(c + 1, r − 1)     with β(c, r) = (c + r over c),  β(c, r − 1) < l <= β(c, r)

forward steps before the ones that the backward steps themselves need, and no method runs fewer. A
step is here a block of the forward graph between two articulation points, its state what crosses
the cut before it. The number of checkpoints is the greatest with which the schedule keeps to the
limits.

Undefined where the forward part has no articulation points. What cannot be recomputed, because its
operation may not run again or reads a parameter that has been replaced by then, is kept beside the
checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import comb

from poetc.schedule.model.errors import StrategyUndefinedError
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy
from poetc.schedule.strategies._chain import Chain, Emitter, forward_chain


@strategy(turn=3)
def griewank(search: Search) -> bool:
    """Tries fewer and fewer checkpoints. True when no number of them keeps to the limits; raises
    `StrategyUndefinedError`."""
    chain = forward_chain(search.instance)
    search.note(chain.describe())
    if chain.length < 2:
        raise StrategyUndefinedError(
            "strategy griewank is defined for chains: the forward part of this program "
            f"({chain.boundary} operations) has no articulation point"
        )
    for checkpoints in range(chain.length, 0, -1):
        if search.remaining <= 0 or search.stop.is_set():
            return False
        search.offer(revolve(chain, checkpoints), f"{checkpoints} checkpoints")
        if search.steps is not None:
            return False
    return True


def _repetitions(length: int, checkpoints: int) -> int:
    """The least r with l <= β(c, r): no step runs forward more often."""
    r = 0
    while comb(checkpoints + r, checkpoints) < length:
        r += 1
    return r


def advance(length: int, checkpoints: int) -> int:
    """How many steps to go before the next checkpoint, with `length` > 1 steps to reverse from a
    state that takes one of `checkpoints`; all but the last when that is the only one."""
    if checkpoints == 1:
        return length - 1
    r = _repetitions(length, checkpoints)
    return max(
        comb(checkpoints + r - 2, checkpoints),
        length - comb(checkpoints + r - 1, checkpoints - 1),
        1,
    )


def revolve(chain: Chain, checkpoints: int) -> list[Event]:
    """The program with at most so many states kept at a time."""
    held: set[int] = set()
    while True:
        attempt = _Revolve(chain, checkpoints, held)
        events = attempt.sequence()
        if not attempt.stuck:
            return events
        held |= attempt.stuck


class _Revolve:
    """`stored` are the positions whose states are checkpoints, `position` is where the machine is:
    its state is there too. Position p is the cut before block p. `made` is what blocks have made
    for the backward part, `held` what is kept throughout, `stuck` what should have been."""

    def __init__(self, chain: Chain, checkpoints: int, held: set[int]) -> None:
        self.chain, self.checkpoints = chain, checkpoints
        self.instance = chain.instance
        self.emitter = Emitter(chain.instance)
        self.stored = [0]
        self.position = 0
        self.made: set[int] = set()
        self.held, self.stuck = held, set[int]()
        self.stage = 0

    def sequence(self) -> list[Event]:
        chain, instance = self.chain, self.instance
        last = chain.length - 1
        for k in range(chain.boundary):
            self.emitter.run(k)
        self.place(last)
        self.position = last
        self.made.update(chain.stashes[last])
        for k in range(chain.boundary, instance.n + 1):
            self.stage = k
            self.provide(instance.inputs[k])
            self.emitter.run(k)
        return self.emitter.events

    def place(self, target: int) -> list[int]:
        """Decides on the checkpoints on the way from the last stored position to `target`; returns
        them."""
        placed: list[int] = []
        while self.stored[-1] < target:
            free = self.checkpoints - len(self.stored) + 1
            if free == 1:
                break
            step = advance(target - self.stored[-1] + 1, free)
            self.stored.append(self.stored[-1] + step)
            placed.append(self.stored[-1])
        return placed

    def available(self, v: int) -> bool:
        """Is `v` in RAM, as far as this strategy keeps it?"""
        return (
            self.chain.block_of(v) is None
            or self.instance.tensors[v].end is Place.RAM
            or v in self.made
            or v in self.held
            or v in self.chain.states[self.position]
            or any(v in self.chain.states[p] for p in self.stored)
        )

    def provide(self, tensors: tuple[int, ...]) -> None:
        """Makes everything that the operation at hand reads."""
        chain = self.chain
        missing = {v: b for v in tensors if (b := chain.block_of(v)) is not None}
        while missing := {v: b for v, b in missing.items() if not self.available(v)}:
            block = max(missing.values())
            if block + 1 < chain.length and chain.states[block + 1].issuperset(missing):
                self.restore(block + 1)
                return
            self.restore(block)
            targets = [
                v
                for v in chain.stashes[block]
                if self.instance.readers[v][-1] >= self.stage and not self.available(v)
            ]
            self.again(block, targets)
            self.made.update(targets)

    def restore(self, target: int) -> None:
        """Goes to position `target`, from the nearest checkpoint before it. States after it that
        operations yet to come read are kept for them: backward parts are not strictly in
        reverse."""
        for p in (*self.stored, self.position):
            if p > target:
                self.made.update(
                    v for v in self.chain.states[p] if self.instance.readers[v][-1] >= self.stage
                )
        self.stored = [p for p in self.stored if p <= target]
        position = self.stored[-1]
        self.place(target)
        for block in range(position, target):
            self.position = block
            self.again(block, self.chain.states[block + 1] - self.chain.states[block])
        self.position = target

    def again(self, block: int, targets: Iterable[int]) -> None:
        """Runs what is needed of a block once more."""
        have = self.chain.states[block] | self.held
        for k in self.chain.needed(block, [v for v in targets if v not in have], have):
            if self.instance.last_recompute[k] < self.stage:
                self.stuck.update(self.instance.operations[k].outputs)
            self.emitter.run(k)
