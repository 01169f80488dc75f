"""The power goes at every write of a step: parameters are all old or all new, never mixed.

After each loss the parameters are read from what the store still holds. With RAM full of garbage
the step is repeated, and its bits are compared with those of a run that nothing disturbed.
"""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from compiled import prepare
from conftest import more
from power import OK, Loss, Machine, parameters
from storage_step import C, V, W, X, storage_module

from poetc.errors import InputError
from poetc.image import pack
from poetc.ir.graph import graphs
from poetc.planning.plan import schedule_and_plan

WHOLE = 2**31
"""More bytes than any write has: it is complete, but nobody was told."""


class Trial:
    """Cuts in one step, whose images before and after are known.

    After `repeats` of the cuts at each event, the step is repeated.
    """

    def __init__(
        self, machine: Machine, before: bytes, after: bytes, repeats: int = 1_000_000
    ) -> None:
        self.machine, self.before, self.repeats = machine, before, repeats
        self.old, self.new = machine.state(before), machine.state(after)
        machine.power_on(before)
        assert machine.step() == OK
        assert machine.state(machine.image) == self.new
        self.events, self.outputs = machine.events, machine.outputs()
        self.lost = self.kept = 0
        self.repeated: dict[int, set[bytes]] = {}

    def lose(self, event: int, torn: int = 0, spoil: bool = False) -> None:
        """The power goes at that event; what is left must do."""
        machine = self.machine
        machine.power_on(self.before)
        machine.cut(event, torn, spoil)
        self.check(event)

    def lose_unsynced(self, event: int, loss: Loss, seed: int) -> None:
        """The same, and of what was written since the last sync, some or all is lost."""
        machine = self.machine
        machine.power_on(self.before)
        machine.cut(event)
        machine.loss(loss, seed)
        self.check(event)

    def check(self, event: int) -> None:
        machine = self.machine
        assert machine.step() != OK
        image = machine.image
        state = machine.state(image)
        assert state in (self.old, self.new)
        self.lost += state == self.old
        self.kept += state == self.new
        repeated = self.repeated.setdefault(event, set())
        if state == self.old and image not in repeated and len(repeated) < self.repeats:
            # Equal images lead to equal runs; one of each is enough.
            repeated.add(image)
            machine.power_on(image)
            assert machine.step() == OK
            assert machine.state(machine.image) == self.new
            assert machine.outputs() == self.outputs

    def cut_everywhere(self) -> None:
        """At every write and sync, with nothing, a part or all of the write done."""
        for event, bytes in enumerate(self.events):
            # A sector that was being written when the power went may hold anything.
            self.lose(event, bytes // 2, spoil=True)
            for torn in sorted({0, 1, bytes // 2, max(bytes - 1, 0), WHOLE}):
                self.lose(event, torn)

    def lose_at_random(self, seeds: int) -> None:
        """At every write and sync, whatever was not yet synced being lost, kept or spoiled."""
        for event in range(len(self.events)):
            for seed in range(1, seeds + 1):
                self.lose_unsynced(event, Loss.RANDOM, 7919 * event + seed)


# A small step, exhaustively


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(storage_module(), tmp_path_factory.mktemp("small") / "out", {0: X})


STARTS = [2**31 - 1, 2**32 - 2, *more(0, 1, 2**32 - 1)]


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_every_byte_of_every_write(small: Machine, start: int) -> None:
    """Three steps in a row; where the sequence wraps, too."""
    images = small.run(pack(small.layout, [W, C, V], start), 3)
    for before, after in pairwise(images):
        trial = Trial(small, before, after)
        # w, v, the record; the page of the step; each but the record with its CRC, and two syncs.
        assert sorted(trial.events) == [0, 0, 4, 4, 4, 16, 16, 16, 16]
        assert trial.events[-3:] == [0, 16, 0]
        for event, bytes in enumerate(trial.events):
            for torn in range(bytes + 1):
                for spoil in (False, True):
                    trial.lose(event, torn, spoil)
        assert trial.lost and trial.kept


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_every_subset_of_unsynced_writes(small: Machine, start: int) -> None:
    images = small.run(pack(small.layout, [W, C, V], start), 3)
    for before, after in pairwise(images):
        trial = Trial(small, before, after)
        for event in range(len(trial.events)):
            for mask in range(2 ** (event + 1)):
                trial.lose_unsynced(event, Loss.MASK, mask)
        trial.lose_at_random(100)
        assert trial.lost and trial.kept


def test_without_sync_it_would_not_be_safe(small: Machine) -> None:
    """The test above can fail: with a sync that does nothing, parameters are lost."""
    before, after = small.run(pack(small.layout, [W, C, V]), 1)
    old, new = small.state(before), small.state(after)
    found: set[str] = set()
    for mask in range(2**9):
        small.power_on(before)
        small.library.power_lie(small.store)
        small.cut(8)
        small.loss(Loss.MASK, mask)
        assert small.step() != OK
        try:
            state = small.state(small.image)
        except InputError:
            found.add("damaged")
        else:
            found.add("old" if state == old else "new" if state == new else "mixed")
    # Not mixed even then: the pages carry the number of their step.
    assert found == {"old", "new", "damaged"}


def test_power_that_goes_again_and_again(small: Machine) -> None:
    """Each attempt at a step gets somewhere else; in the end it gets through."""
    choose = random.Random(0)
    images = small.run(pack(small.layout, [W, C, V], 2**32 - 5), 10)
    states = [small.state(image) for image in images]
    image, step = images[0], 0
    while step < 10:
        small.power_on(image)
        small.cut(choose.randrange(12))
        small.loss(Loss.RANDOM, choose.randrange(1, 2**32))
        small.step()
        image = small.image
        state = small.state(image)
        assert state in states[step : step + 2]
        step = states.index(state)


# Real models

BUDGETS = {"kws_conv": 8 * 1024, "gesture_mlp": 12 * 1024, "dscnn": 128 * 1024}
"""Bytes of RAM, of which some are set aside."""
RESERVED = 1056

STEPS = {"kws_conv": 3, "gesture_mlp": 3, "dscnn": 1}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["kws_conv", *more("gesture_mlp", "dscnn")])
def test_models(name: str, tmp_path: Path) -> None:
    model = prepare(name)
    options = model.options(BUDGETS[name] - RESERVED, params="storage", gap=0.5)
    schedule_and_plan(graphs(model.module)[0], options)
    graph = graphs(model.module)[0]
    inputs = {i: a for i, a in enumerate(model.arguments) if not graph.is_stored(i)}
    machine = Machine(model.module, tmp_path / "out", inputs, "-O3")
    # The sequence of the second step wraps.
    first = pack(machine.layout, parameters(machine.layout, model.arguments), 2**32 - 2)
    images = machine.run(first, STEPS[name])
    for before, after in pairwise(images):
        trial = Trial(machine, before, after, repeats=3)
        trial.lose_at_random(2)
        trial.cut_everywhere()
        assert trial.lost > 5 * len(trial.events) and trial.kept
