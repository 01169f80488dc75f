"""`keep-all`: what a framework does by default: free at last use, no recompute, no paging.

Tensors that start on storage are paged in before their first use, those that must end there are
written when they are made.
"""

from __future__ import annotations

from poetc.schedule.instance import Instance
from poetc.schedule.rebuild import Event, Load, Run
from poetc.schedule.search import Search


def sequence(instance: Instance) -> list[Event]:
    """Each operation once; each tensor that starts on storage is loaded once."""
    loaded: set[int] = set()
    events: list[Event] = []
    for k in range(instance.n + 1):
        for v in instance.inputs[k]:
            if instance.stored_at_start[v] and v not in loaded:
                loaded.add(v)
                events.append(Load(v))
        if k < instance.n:
            events.append(Run(k))
    return events


def keep_all(search: Search) -> bool:
    """Offers the one schedule there is; True (no schedule of this kind) when it breaks a limit."""
    search.offer(sequence(search.instance), "keep-all")
    return search.steps is None
