"""A machine that runs the program in order and makes room when something does not fit, for the
baselines that decide at run time.

It knows what a run-time system knows: what is in RAM, what has been read when, and when a tensor
has had its last direct reader. Tensors that were evicted come back when they are read: from
storage, or by running the operation that makes them again, which may need others again.
"""

from __future__ import annotations

from collections import Counter

from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Place
from poetc.schedule.model.rebuild import Event, Load, Run, share

# A run that is this many times as long as the program is not going to end.
MOST_REPEATS = 200


class OutOfMemoryError(Exception):
    """Something does not fit, and nothing may be evicted."""


class Runtime:
    """The machine. A subclass says what to evict (`victim`) and how (`evict`).

    `stored` are the tensors that have a page, or will have one as soon as they are made; `locks`
    counts who needs a tensor at the moment. Transfers take time without DMA.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        limit = instance.problem.ram_bytes
        self.limit = (
            limit
            if limit is not None
            else sum(t.bytes for t in instance.tensors) * 2
            + (max((o.workspace_bytes for o in instance.operations), default=0))
        )
        self.size = [t.bytes for t in instance.tensors]
        self.ram = {v for v, t in enumerate(instance.tensors) if t.start is Place.RAM}
        self.used = sum(self.size[v] for v in self.ram)
        self.stored = {
            v
            for v in range(len(self.size))
            if instance.stored_at_start[v] or instance.must_store[v]
        }
        self.storage = instance.pages_of_end()
        self.accessed_ns = [0] * len(self.size)
        self.clock_ns = 0
        self.stage = 0
        self.ran = [False] * instance.n
        self.locks: Counter[int] = Counter()
        self.events: list[Event] = []
        # The last stage that reads each tensor, n where the end does.
        self.last_use = [max(r, default=-1) for r in instance.readers]
        for v in instance.inputs[-1]:
            self.last_use[v] = instance.n
        self.safe_until = self._safe_until()

    def _safe_until(self) -> list[int]:
        """The last stage in which each tensor can surely be had again without a page of its own."""
        instance = self.instance
        safe = [instance.n] * len(self.size)
        for k, operation in enumerate(instance.operations):
            stage = min(
                [instance.last_recompute[k], *(safe[v] for v in operation.inputs)],
                default=instance.n,
            )
            for v in operation.outputs:
                safe[v] = stage
                if v in self.stored:
                    safe[v] = max(stage, instance.replacer.get(v, instance.n))
        return safe

    # A subclass decides this.

    def victim(self, candidates: list[int]) -> int:
        """The tensor in RAM to evict."""
        raise NotImplementedError

    def may_put_away(self, v: int) -> bool:
        """Can `v` be had again whenever it is needed?"""
        return v in self.stored or self.can_recompute(v)

    def evict(self, v: int) -> None:
        """Ends the live range of `v`."""
        self.drop(v)

    def came_back(self, v: int) -> None:
        """`v` is in RAM (again)."""

    def after_first_run(self, k: int) -> None:
        """Operation k has run for the first time."""

    # The machine.

    def sequence(self) -> list[Event]:
        """Runs the program; raises `OutOfMemoryError`."""
        if self.used > self.limit:
            raise OutOfMemoryError("what is in RAM at the start does not fit")
        for k in range(self.instance.n + 1):
            self.stage = k
            for v in [v for v in self.ram if self.dead(v, k)]:
                self.drop(v)
            self.execute(k)
            if k < self.instance.n:
                self.after_first_run(k)
        return self.events

    def can_recompute(self, v: int) -> bool:
        """Can `v` be recomputed in every stage that will read it?"""
        return self.instance.producer[v] is not None and self.safe_until[v] >= self.last_use[v]

    def dead(self, v: int, stage: int) -> bool:
        """Will nothing read `v` from `stage` on, unless to make something again that makes `v`
        again too?"""
        if self.last_use[v] >= stage:
            return False
        if self.instance.producer[v] is not None or v in self.stored:
            return True
        return all(self.instance.last_recompute[j] < stage for j in self.instance.readers[v])

    def drop(self, v: int) -> None:
        self.ram.discard(v)
        self.used -= self.size[v]

    def arrive(self, v: int) -> None:
        self.ram.add(v)
        self.used += self.size[v]
        self.accessed_ns[v] = self.clock_ns
        self.came_back(v)

    def make_room(self, size: int, what: str) -> None:
        while self.used + size > self.limit:
            candidates = [
                v
                for v in sorted(self.ram)
                if not self.locks[v] and self.size[v] > 0 and self.may_put_away(v)
            ]
            if not candidates:
                raise OutOfMemoryError(f"no room for {what}, and nothing that can be evicted")
            self.evict(self.victim(candidates))

    def execute(self, goal: int) -> None:
        """Runs operation `goal` (n: the end), and before it what it takes to have its inputs in
        RAM."""
        instance = self.instance
        stack = [goal]
        self.locks.update(instance.inputs[goal])
        while stack:
            k = stack[-1]
            missing = [v for v in instance.inputs[k] if v not in self.ram]
            if missing:
                # Results come first, as they take room.
                v = min(missing, key=lambda v: v in self.stored)
                producer = instance.producer[v]
                if v in self.stored:
                    self.load(v)
                elif producer is None or instance.last_recompute[producer] < self.stage:
                    raise OutOfMemoryError(f"tensor {instance.tensors[v].name} cannot be had again")
                else:
                    stack.append(producer)
                    self.locks.update(instance.inputs[producer])
                continue
            if k < instance.n:
                self.run(k)
            stack.pop()
            self.locks.subtract(instance.inputs[k])
            for v in instance.inputs[k]:
                if v in self.ram and not self.locks[v] and self.dead(v, self.stage + (k == goal)):
                    self.drop(v)

    def load(self, v: int) -> None:
        tensor = self.instance.tensors[v]
        self.make_room(self.size[v], f"tensor {tensor.name}")
        if not self.instance.problem.dma:
            self.clock_ns += tensor.pagein_time_ns
        self.events.append(Load(v))
        self.arrive(v)

    def run(self, k: int) -> None:
        """Runs operation k, whose inputs are in RAM and locked."""
        instance = self.instance
        operation = instance.operations[k]
        if len(self.events) > MOST_REPEATS * (instance.n + 10):
            raise OutOfMemoryError(f"runs operations again without end (at {operation.name})")
        first = not self.ran[k]
        for v in operation.outputs:
            if v in self.ram:
                self.drop(v)
        after = self.stage + (k == self.stage)
        dying = {v for v in operation.inputs if self.locks[v] == 1 and self.dead(v, after)}
        pairs = share(instance.problem, k, dying)
        shared = sum(self.size[o] for o, _ in pairs)
        made = sum(self.size[v] for v in operation.outputs)
        self.make_room(made + operation.workspace_bytes - shared, f"operation {operation.name}")
        for _, i in pairs:
            self.drop(i)
        self.clock_ns += operation.time_ns
        for v in operation.inputs:
            self.accessed_ns[v] = self.clock_ns
        for v in operation.outputs:
            self.arrive(v)
        self.events.append(Run(k))
        self.ran[k] = True
        for v in operation.outputs:
            if not self.locks[v] and self.dead(v, self.stage + first):
                self.drop(v)
