"""Random small problems with everything that a problem can have."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import strategies as st

from poetc.schedule.model.problem import Operation, Place, Problem, Tensor, Variant


def problems(max_operations: int = 6, plain: bool = False) -> st.SearchStrategy[Problem]:
    """Problems of up to `max_operations`; `plain` ones have only what the paper's model knows."""
    seeds = st.integers(0, 2**32 - 1)
    return seeds.map(lambda seed: random_problem(random.Random(seed), max_operations, plain))


def problems_with_variants(max_operations: int = 5) -> st.SearchStrategy[Problem]:
    """The same, whose operations have up to three variants each, mostly in little RAM."""
    seeds = st.integers(0, 2**32 - 1)
    return seeds.map(lambda seed: random_variants(random.Random(seed), max_operations))


def random_variants(rng: random.Random, max_operations: int = 5) -> Problem:
    """A random problem, with variants that stream some inputs and outputs; some stream nothing."""
    fixed = random_problem(rng, max_operations)
    tensors = fixed.tensors
    operations: list[Operation] = []
    least = 0
    for operation in fixed.operations:
        movable = [v for v in {*operation.inputs, *operation.outputs} if tensors[v].pageable]
        variants: list[Variant] = []
        for _ in range(rng.randint(0, 3)):
            streamed = {v for v in sorted(movable) if rng.random() < 0.6}
            # A new value that is in RAM is made in place of one that is.
            streamed |= {
                o for o, old in operation.inplace if tensors[o].replaces == old and old in streamed
            }
            bus_ns = rng.randint(0, 3)
            variants.append(
                Variant(
                    frozenset(streamed),
                    rng.randint(0, 2),
                    bus_ns + rng.randint(0, 4),
                    bus_ns,
                    rng.randint(0, 9),
                )
            )
        operations.append(replace(operation, variants=tuple(variants)))
        resident = [
            operation.workspace_bytes,
            *(way.workspace_bytes for way in variants),
        ]
        away = [frozenset(), *(way.streamed for way in variants)]
        mine = {*operation.inputs, *operation.outputs}
        least = max(
            least,
            min(
                sum(tensors[v].bytes for v in mine - streamed) + workspace
                for workspace, streamed in zip(resident, away, strict=True)
            ),
        )
    return replace(
        fixed,
        operations=tuple(operations),
        ram_bytes=max(0, least + rng.choice((-1, 0, 0, 1, 1, 2, 3))),
    )


def random_problem(rng: random.Random, max_operations: int = 6, plain: bool = False) -> Problem:
    """Mostly chains that come back to old tensors, as a training step does, with little RAM: that
    is where there is something to decide."""
    tensors: list[Tensor] = []
    operations: list[Operation] = []
    replaced: set[int] = set()

    def chance(percent: int) -> bool:
        return not plain and rng.randrange(100) < percent

    def tensor(**fields) -> int:
        tensors.append(
            Tensor(
                f"t{len(tensors)}",
                rng.randint(1, 4),
                pageable=not chance(15),
                pagein_energy_nj=rng.randint(0, 6),
                pagein_time_ns=rng.randint(0, 3),
                pageout_energy_nj=rng.randint(0, 4),
                pageout_time_ns=rng.randint(0, 3),
                **fields,
            )
        )
        return len(tensors) - 1

    for _ in range(0 if plain else rng.choice((0, 0, 1, 1, 2))):
        v = tensor(start=Place.RAM)
        if tensors[v].pageable and chance(50):
            tensors[v] = replace(tensors[v], start=Place.STORAGE)
        if chance(20):
            tensors[v] = replace(tensors[v], end=tensors[v].start)
    n = rng.randint(max(1, max_operations - 3), max_operations)
    for k in range(n):
        available = [v for v in range(len(tensors)) if v not in replaced]
        inputs: list[int] = []
        if available and rng.random() < 0.9:
            inputs.append(available[-1])
        if available and rng.random() < (0.3 if k < n / 2 else 0.8):
            inputs.append(rng.choice(available))
        inputs = list(dict.fromkeys(inputs))
        outputs = [tensor() for _ in range(1 + chance(20))]
        pairs = []
        for o in outputs:
            if not inputs or not chance(40):
                continue
            old = rng.choice(inputs)
            parameter = tensors[old].start is not None and tensors[old].end is None
            if parameter and old not in replaced and chance(70):
                tensors[o] = replace(
                    tensors[o],
                    bytes=tensors[old].bytes,
                    pageable=tensors[old].pageable,
                    end=rng.choice((tensors[old].start, None)),
                    replaces=old,
                )
                replaced.add(old)
                pairs.append((o, old))
            elif tensors[o].bytes <= tensors[old].bytes:
                pairs.append((o, old))
        for o in outputs:
            if tensors[o].replaces is None and chance(12):
                place = Place.STORAGE if tensors[o].pageable and chance(50) else Place.RAM
                tensors[o] = replace(tensors[o], end=place)
        operations.append(
            Operation(
                f"o{k}",
                tuple(inputs),
                tuple(outputs),
                time_ns=rng.randint(0, 4),
                energy_nj=rng.randint(0, 5),
                workspace_bytes=rng.randint(0, 2) if chance(25) else 0,
                repeatable=not chance(8),
                inplace=tuple(pairs),
            )
        )
    need = max(
        sum(tensors[v].bytes for v in {*o.inputs, *o.outputs}) + o.workspace_bytes
        for o in operations
    )
    total_ns = sum(o.time_ns for o in operations)
    # Pages that are smaller than their tensors are padded, drawn without moving what follows.
    pages = random.Random(repr(tensors))
    if not plain:
        tensors = [
            replace(t, payload_bytes=pages.randint(1, t.bytes) if pages.random() < 0.3 else None)
            for t in tensors
        ]
    return Problem(
        tuple(operations),
        tuple(tensors),
        ram_bytes=need + rng.choice((-1, 0, 0, 1, 1, 2, 3)),
        deadline_ns=total_ns + rng.randint(0, 14) if chance(30) else None,
        storage_bytes=rng.randint(2, 16) if chance(25) else None,
        idle_power_nw=10**9 * rng.randint(1, 2) if chance(20) else 0,
    )
