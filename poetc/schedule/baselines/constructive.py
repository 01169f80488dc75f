"""The strategies that construct a schedule without searching, by name."""

from __future__ import annotations

from collections.abc import Callable

from poetc.schedule.baselines.capuchin import capuchin
from poetc.schedule.baselines.chen import chen_greedy, chen_sqrt
from poetc.schedule.baselines.dtr import dtr
from poetc.schedule.baselines.griewank import griewank
from poetc.schedule.baselines.pofo import pofo
from poetc.schedule.search import Search

# They prove nothing: they return True when they have nothing more to try.
CONSTRUCTIVE: dict[str, Callable[[Search], bool]] = {
    "chen-sqrt": chen_sqrt,
    "chen-greedy": chen_greedy,
    "griewank": griewank,
    "dtr": dtr,
    "capuchin": capuchin,
    "pofo": pofo,
}
