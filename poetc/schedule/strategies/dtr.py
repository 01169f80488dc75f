"""`dtr`: Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021), simulated: the program
runs in order, and when something does not fit the tensor with the least

    h(t) = projected cost / (bytes · staleness)                       (h_DTR^eq)

is evicted until it does. Staleness is the time since the last access, the projected cost the time
to run the operation that makes t plus the costs of the evicted neighbourhoods of t. These are
tracked in a union-find structure as the prototype does: evicting t joins it with
its evicted parents and children; when t is recomputed its cost is subtracted from its set and the
set is not split.

Tensors whose last reader has run are evicted at once (the paper's eager eviction) and may be made
again for the sake of others. Generalised: an operation with several results makes them all again;
a tensor that starts on storage comes back by page-in at that cost; what depends on a parameter is
not evicted if it is read after the parameter is replaced, where the paper copies what is
overwritten. Nothing else is paged.
"""

from __future__ import annotations

from poetc.schedule.model.instance import Instance
from poetc.schedule.search.state import Search
from poetc.schedule.strategies import strategy
from poetc.schedule.strategies._runtime import OutOfMemoryError, Runtime


@strategy(turn=4)
def dtr(search: Search) -> bool:
    """Offers the schedule of the simulated run; True when that runs out of memory."""
    machine = Dtr(search.instance)
    try:
        events = machine.sequence()
    except OutOfMemoryError as error:
        search.note(f"dtr: {error}")
        return True
    search.offer(events, f"dtr, {machine.evictions} evictions")
    return search.steps is None


class Dtr(Runtime):
    """The machine with DTR's choice; `evictions` counts those for want of room."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(instance)
        self.evictions = 0
        self.cost_ns = [
            instance.tensors[v].pagein_time_ns
            if v in self.stored or k is None
            else instance.operations[k].time_ns
            for v, k in enumerate(instance.producer)
        ]
        self.set_of: dict[int, int] = {}  # evicted tensor -> a member of its union-find set
        self.parent: list[int] = []
        self.total_ns: list[int] = []

    def victim(self, candidates: list[int]) -> int:
        self.evictions += 1
        return min(candidates, key=lambda v: (self.score(v), v))

    def score(self, v: int) -> float:
        """h(v)."""
        sets = {self.find(self.set_of[u]) for u in self.neighbours(v) if u in self.set_of}
        cost = self.cost_ns[v] + sum(self.total_ns[s] for s in sets)
        return cost / (self.size[v] * max(self.clock_ns - self.accessed_ns[v], 1))

    def neighbours(self, v: int) -> list[int]:
        """The tensors that `v` is made of, and those made of it."""
        if v in self.stored:
            return []
        instance = self.instance
        k = instance.producer[v]
        above = list(instance.operations[k].inputs) if k is not None else []
        return above + [u for j in instance.readers[v] for u in instance.operations[j].outputs]

    def drop(self, v: int) -> None:
        super().drop(v)
        if v in self.stored or self.instance.producer[v] is None or v in self.set_of:
            return
        new = len(self.parent)
        self.parent.append(new)
        self.total_ns.append(self.cost_ns[v])
        for u in self.neighbours(v):
            if u in self.set_of:
                self.join(new, self.set_of[u])
        self.set_of[v] = new

    def came_back(self, v: int) -> None:
        if v in self.set_of:
            root = self.find(self.set_of.pop(v))
            self.total_ns[root] = max(0, self.total_ns[root] - self.cost_ns[v])

    def find(self, s: int) -> int:
        while self.parent[s] != s:
            self.parent[s] = s = self.parent[self.parent[s]]
        return s

    def join(self, a: int, b: int) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self.parent[b] = a
            self.total_ns[a] += self.total_ns[b]
