"""The memory of a model: one knapsack over binaries a slot, and the in-place pairs in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poetc.schedule.exact.highs import INF
from poetc.schedule.exact.slots import NONE, Use
from poetc.schedule.model.problem import Variant

if TYPE_CHECKING:
    from poetc.schedule.exact.milp import SlotModel

_Touch = tuple[int, Use, int]
"""A tensor that the operation of a slot makes or reads, that use, and the keep column before it."""


class Knapsacks:
    """The rows about memory, and their columns: `share[s, p]` for the in-place pair p in slot s,
    `ram` for the limit where that is what is minimised."""

    def __init__(self, model: SlotModel) -> None:
        self.model = model
        instance = model.instance
        self.share: dict[tuple[int, tuple[int, int]], int] = {}
        self.ram = NONE
        self.size = [instance.units(t.bytes) for t in instance.tensors]
        # (tensor, column) of what is in each slot only for a transfer.
        self.passing: dict[int, list[tuple[int, int]]] = {}
        if model.overlap is not None:
            for columns in (model.overlap.early, model.overlap.late):
                for (s, v), there in columns.items():
                    self.passing.setdefault(s, []).append((v, there))
        if model.minimise == "ram":
            self.ram = model.lp.column(1.0, 0.0, INF)
        elif instance.problem.ram_bytes is None:
            return
        self._rows()
        model.lp.label = NONE
        self._share_rows()

    def _rows(self) -> None:
        """One knapsack a slot."""
        model, size = self.model, self.size
        position = [0] * len(size)  # index of the next event of each tensor
        active: dict[int, int] = {}  # keep column -> tensor, for what is between two events
        for v, uses in enumerate(model.events):
            if uses and uses[0].slot < 0:
                position[v] = 1
                if uses[0].keep != NONE:
                    active[uses[0].keep] = v
        for s, slot in enumerate(model.slots):
            inputs, outputs = model.operation_tensors(slot.operation)
            touched: list[tuple[int, Use, int]] = []
            for v in (*inputs, *outputs):
                at = position[v]
                if at >= len(model.events[v]):
                    continue
                use = model.events[v][at]
                before = model.events[v][at - 1].keep if at else NONE
                active.pop(before, None)
                touched.append((v, use, before))
                position[v] = at + 1
            if not (slot.optional and model.relaxation):
                model.lp.label = s
                self._row(s, active, touched)
            for v, use, _ in touched:
                if use.keep != NONE:
                    active[use.keep] = v

    def _row(self, s: int, active: dict[int, int], touched: list[_Touch]) -> None:
        """The knapsack of slot `s`: `active` are the keep columns across it, with their tensors;
        `touched` is what its operation makes or reads."""
        model, size = self.model, self.size
        instance, lp = model.instance, model.lp
        k, column = model.slots[s].operation, model.run[s]
        operation = instance.operations[k] if k < instance.n else None
        workspace = operation.workspace_bytes if operation else 0
        index, value = list(active), [size[v] for v in active.values()]
        for v, there in self.passing.get(s, ()):
            index.append(there)
            value.append(size[v])
        shared, share_value, forced = self._share_columns(s, touched)
        limit = instance.problem.ram_bytes
        room = 0 if model.minimise == "ram" else instance.units(limit or 0)
        inputs, outputs = model.operation_tensors(k)
        ways: list[tuple[int, int]] = []  # columns and what they take
        if s in model.choices.columns:
            ways = [(c, self._way(k, way)) for c, way in model.choices.ways(s)]
            beside, beside_value = self._inputs(s, touched)
            index += beside
            value += beside_value
            if column == NONE:
                room -= sum(size[v] for v in inputs if not model.choices.movable(s, v))
        elif column == NONE:
            penalty = self._penalty(workspace)
            room -= penalty + sum(size[v] for v in (*inputs, *outputs)) - forced
        else:
            weight = self._penalty(workspace) + sum(size[v] for v in outputs)
            if weight:
                index.append(column)
                value.append(weight)
            for v, use, before in touched:
                index += [c for c in (before, use.load) if c != NONE]
                value += [size[v]] * sum(c != NONE for c in (before, use.load))
        if model.minimise != "ram":
            best = room + sum(share_value)
            for c, weight in ways:
                if weight > best:
                    lp.fix(c, 0.0)
            if column == NONE:
                best -= min((weight for _, weight in ways), default=0)
                for c, weight in zip(index, value, strict=True):
                    if weight > best:
                        lp.fix(c, 0.0)
        index += [c for c, weight in ways if weight]
        value += [weight for _, weight in ways if weight]
        if model.minimise == "ram":
            weights = (*value, *(-w for w in share_value))
            model.floor(self.ram, (*index, *shared), weights, -room)
        elif sum(value) > room:
            lp.row((*index, *shared), (*value, *(-w for w in share_value)), upper=room)

    def _penalty(self, workspace: int) -> int:
        """Units that a workspace takes. Tensors are whole units: what is left beside it is rounded
        down."""
        model, limit = self.model, self.model.instance.problem.ram_bytes
        if model.minimise == "ram":
            return -model.instance.units(-workspace)
        assert limit is not None
        return model.instance.units(limit) - model.instance.units(limit - workspace)

    def _way(self, k: int, way: Variant) -> int:
        """Units that a way to run an operation takes beside its inputs."""
        tensors = self.model.instance.tensors
        # The result that replaces a tensor takes over its buffer.
        made = way.resident(self.model.instance.operations[k].outputs)
        new = sum(self.size[v] for v in made if tensors[v].replaces is None)
        return self._penalty(way.workspace_bytes) + new

    def _inputs(self, s: int, touched: list[_Touch]) -> tuple[list[int], list[int]]:
        """Columns of what a slot with variants has in RAM of what it makes or reads, and units.
        What an obligatory slot surely has there is not among it."""
        model, index, value = self.model, [], []
        obligatory = model.obligatory(s)
        for v, use, before in touched:
            movable = model.choices.movable(s, v)
            if use.makes or not obligatory or (movable and not model.relaxation):
                columns = [c for c in (before, use.load) if c != NONE]
            elif movable:
                # Read by this run, or kept for what comes after the stage.
                there = model.lp.column(integer=False)
                model.lp.row(
                    (*(resident := model.choices.resident(s, v) or []), there),
                    (*[1] * len(resident), -1),
                    upper=0,
                )
                if use.keep != NONE:
                    model.lp.at_most(use.keep, (there,))
                columns = [there]
            else:
                continue
            index += columns
            value += [self.size[v]] * len(columns)
        return index, value

    def _share_columns(self, s: int, touched: list[_Touch]) -> tuple[list[int], list[int], int]:
        """Columns and sizes of the in-place pairs of a slot, and the units that must be shared."""
        model, size = self.model, self.size
        tensors, k = model.instance.tensors, model.slots[s].operation
        if k == model.instance.n:
            return [], [], 0
        after = {v: use.keep for v, use, _ in touched}
        columns, sizes, forced = [], [], 0
        pairs = dict.fromkeys(model.instance.operations[k].inplace)
        replacing = [(o, i) for o, i in pairs if tensors[o].replaces == i]
        varied = s in model.choices.columns

        def allowed(pair: tuple[int, int], away: frozenset[int]) -> bool:
            """May a pair share a buffer where `away` is streamed?"""
            taken = {v for o, i in replacing if o not in away for v in (o, i)}
            return taken.isdisjoint(pair) and away.isdisjoint(pair)

        for o, i in pairs:
            if (o, i) in replacing:
                forced += size[o]
            elif size[o] and (varied or allowed((o, i), frozenset())):
                column = model.lp.column(integer=False)
                self.share[s, (o, i)] = column
                columns.append(column)
                sizes.append(size[o])
                if varied:
                    ways = model.choices.ways(s)
                    model.lp.at_most(
                        column, [c for c, way in ways if allowed((o, i), way.streamed)]
                    )
                elif model.run[s] != NONE:
                    model.lp.at_most(column, (model.run[s],))
                if after.get(i, NONE) != NONE:
                    model.lp.row((column, after[i]), (1, 1), upper=1)
        return columns, sizes, forced

    def _share_rows(self) -> None:
        """A tensor is in one in-place pair of a slot at a time."""
        groups: dict[tuple[int, int, int], list[int]] = {}
        for (s, (o, i)), column in self.share.items():
            groups.setdefault((s, 0, o), []).append(column)
            groups.setdefault((s, 1, i), []).append(column)
        for columns in groups.values():
            if len(columns) > 1:
                self.model.lp.row(columns, [1] * len(columns), upper=1)
