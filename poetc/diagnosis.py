"""A diagnosis: why there is no schedule, or why none was found, as data and in words.

The scheduler makes a `Diagnosis`, callers add what they know with `dataclasses.replace`, and
`Diagnosis.text` is what the command line, the passes and Relax say. All sizes are of all of the RAM
that was given, what is reserved from it included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from poetc.units import format_bytes, format_time


class Reason(StrEnum):
    """The reason why a step has no schedule."""

    RAM = "ram"
    DEADLINE = "deadline"
    RESERVED = "reserved"
    """The reserved bytes leave no RAM for tensors."""
    STORAGE = "storage"
    """Auxiliary storage is too small for the tensors that start or must end there."""
    STRATEGY = "strategy"
    """The strategy that was asked for has no schedule; others may have one."""
    SEARCH = "search"
    """The search ended without a schedule and without a proof."""
    ARENA = "arena"
    """The tensors fit at any one time, but no arena was found that has a place for each."""
    PAGES = "pages"
    """By the profile, the step is late with its pages where they are in the blocks of storage."""
    STACK = "stack"
    """The scheduled step takes more stack than was expected."""
    REPORTED = "reported"
    """Any reason: only its `words` have come through another program."""


@dataclass(frozen=True)
class Tried:
    """One way to have the parameters, and the outcome of the search for it.

    `params` is where they are between steps, "ram" or "storage"; with `tiles` kernels may run in
    tiles. `energy_nj` is that of the best schedule, None: there is none. `bound_nj`: no schedule
    uses less; None where there provably is none at all. Without `searched` the bound alone said
    that nothing better is to be found, or there was no time.
    """

    params: str
    energy_nj: int | None
    bound_nj: int | None
    searched: bool
    tiles: bool = False

    def again(self, other: Tried) -> Tried:
        """The outcome of two searches for the same: the better schedule, and the better bound."""
        if self.bound_nj is None or other.bound_nj is None:
            return self if self.bound_nj is None else other
        bound_nj = max(self.bound_nj, other.bound_nj)
        return replace(self.or_else(other), bound_nj=bound_nj)

    def or_else(self, other: Tried) -> Tried:
        """Both as one way: the better schedule, and a bound for either."""
        energies = [each for each in (self.energy_nj, other.energy_nj) if each is not None]
        bounds = [each for each in (self.bound_nj, other.bound_nj) if each is not None]
        return replace(
            self,
            energy_nj=min(energies, default=None),
            bound_nj=min(bounds, default=None),
            searched=self.searched or other.searched,
        )


@dataclass(frozen=True)
class Kernel:
    """The kernel that a proof is about. `number` counts from 1; `source` is its place in the input,
    and `function` the compiled function, where there is one."""

    label: str
    number: int
    source: str | None = None
    function: str | None = None

    def __str__(self) -> str:
        if self.function is not None:
            return f'"{self.label}" ({self.function})'
        origin = "" if self.source is None else f", from {self.source}"
        return f'kernel "{self.label}" (number {self.number} of the step{origin})'


@dataclass(frozen=True)
class LeastRam:
    """The least RAM for which a schedule is known (None: none is), with kernels in
    `tiles` or without, and what is proven necessary, where it is known which for
    `kernel`. Deadlines do not count."""

    known_bytes: int | None
    bound_bytes: int
    tiles: bool = False
    kernel: Kernel | None = None


@dataclass(frozen=True)
class Diagnosis:
    """Why there is no schedule: proven for everything that was left open (`proven`), for the given
    order of the kernels only (`in_order`), or not at all.

    `ram_bytes` and `deadline_ns` were asked for, `reserved` names what is set aside from the RAM
    with its bytes, and `restrictions` are the options that exclude schedules. `needed_bytes` and
    `time_bound_ns` are proven necessary, the former for `kernel`; `known_bytes` is the least RAM
    for which the search found a schedule, deadlines aside, and `fastest_ns` the shortest makespan
    known, or found. The smallest arena exceeds the RAM by `excess_bytes`. `stack_bytes` is the
    stack that was measured. `tiles` says what kernels in tiles came to; `whole` that
    less may be needed with kernels in tiles.
    """

    reason: Reason
    proven: bool = False
    in_order: bool = False
    subject: str = ""
    ram_bytes: int | None = None
    deadline_ns: int | None = None
    reserved: tuple[tuple[str, int], ...] = ()
    strategy: str = "auto"
    restrictions: tuple[str, ...] = ()
    kernel: Kernel | None = None
    needed_bytes: int | None = None
    known_bytes: int | None = None
    excess_bytes: int = 0
    time_bound_ns: int | None = None
    fastest_ns: int | None = None
    stack_bytes: int | None = None
    searched_s: float = 0.0
    remedies: tuple[str, ...] = ()
    tiles: str = ""
    whole: bool = False
    least_ram: LeastRam | None = None
    tried: tuple[Tried, ...] = ()
    words: str = ""

    @property
    def is_about_time(self) -> bool:
        """Whether it is the deadline that is missed, so that less need of RAM does not help."""
        return self.reason is Reason.DEADLINE

    @property
    def is_proof(self) -> bool:
        """Whether something is proven, be it for one order only."""
        return self.proven or self.in_order

    @property
    def reserved_bytes(self) -> int:
        """All that is set aside from the RAM."""
        return sum(bytes for _, bytes in self.reserved)

    @property
    def soonest_ns(self) -> float:
        """The shortest makespan known or possible, in nanoseconds; infinite if nothing is known."""
        known = (self.fastest_ns, self.time_bound_ns)
        return min((time_ns for time_ns in known if time_ns is not None), default=math.inf)

    def text(self) -> str:
        """The diagnosis in words, for a user."""
        words = "; ".join(self._words())
        return f"{self.subject}: {words}" if self.subject else words

    def to_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {"message": self.text(), **asdict(self)}

    def _words(self) -> Iterator[str]:
        yield from self._what()
        if self.remedies:
            yield f"{' or '.join(self.remedies)} may help"
        if self.tiles:
            yield self.tiles
        if self.least_ram is not None:
            yield from self._least_ram_words(self.least_ram)
        elif self.known_bytes is not None:
            yield f"least RAM known to work: {format_bytes(self.known_bytes)}"
        if self.reserved_bytes and self.ram_bytes is not None and self.reason is not Reason.STACK:
            parts = [f"{format_bytes(bytes)} for {what}" for what, bytes in self.reserved]
            yield f"that includes {' and '.join(parts)}"

    def _what(self) -> Iterator[str]:
        how = f" with {' '.join(self.restrictions)}" if self.restrictions else ""
        if self.in_order and not self.proven:
            how += " with the kernels in this order"
        ram = "" if self.ram_bytes is None else format_bytes(self.ram_bytes)
        match self.reason:
            case Reason.RAM:
                fits = "fits" if self.is_proof else "was found that fits"
                yield f"no schedule{how} {fits} into {ram}"
                if self.needed_bytes is not None:
                    yield self.needed_words()
            case Reason.DEADLINE:
                within = f" within {ram}" if ram else ""
                yield f"no schedule{how} meets the deadline{self._deadline()}{within}"
                if self.time_bound_ns is not None:
                    yield f"the step takes at least {format_time(self.time_bound_ns)}"
                if self.fastest_ns is not None:
                    yield f"the fastest schedule known takes {format_time(self.fastest_ns)}"
            case Reason.RESERVED:
                yield f"{ram} of RAM leave nothing for tensors"
            case Reason.STORAGE:
                yield "the auxiliary storage is too small for what starts or must end there"
            case Reason.STRATEGY:
                limits = [ram] if ram else []
                limits += [format_time(self.deadline_ns)] if self.deadline_ns is not None else []
                within = f" within {' and '.join(limits)}" if limits else ""
                yield f"strategy {self.strategy} has no schedule{within}"
                yield "this proves nothing about other strategies"
            case Reason.SEARCH:
                yield (
                    f"the search{how} ended after {self.searched_s:.1f} s without a schedule, and "
                    "without a proof that there is none"
                )
            case Reason.ARENA:
                excess = format_bytes(self.excess_bytes)
                yield f"the smallest arena found{how} takes {excess} more than the {ram} of RAM"
                if self.needed_bytes is not None:
                    yield f"at most {format_bytes(self.needed_bytes)} are alive at once"
            case Reason.PAGES:
                yield (
                    "by the profile, and with its pages where they are, the last schedule found "
                    f"takes {format_time(self.fastest_ns or 0)}, after the deadline"
                    f"{self._deadline()}"
                )
            case Reason.REPORTED:
                yield self.words
            case Reason.STACK:
                assert self.stack_bytes is not None and self.needed_bytes is not None
                yield (
                    f"the step takes {format_bytes(self.stack_bytes)} of stack, more than was "
                    f"expected before it was scheduled, and {format_bytes(self.needed_bytes)} of "
                    f"RAM in all; --stack={self.stack_bytes} sets enough aside"
                )

    def needed_words(self) -> str:
        """The words on the RAM that is needed, and for which kernel."""
        assert self.needed_bytes is not None
        whole = "with whole kernels " if self.whole else ""
        where = "" if self.kernel is None else f" for {self.kernel}"
        return f"{whole}at least {format_bytes(self.needed_bytes)} are needed{where}"

    def _deadline(self) -> str:
        return "" if self.deadline_ns is None else f" of {format_time(self.deadline_ns)}"

    def _least_ram_words(self, least: LeastRam) -> Iterator[str]:
        words = "none was found"
        if least.known_bytes is not None:
            words = format_bytes(least.known_bytes)
            words += " with kernels in tiles" if least.tiles else ""
        aside = "without a deadline, " if self.deadline_ns is not None else ""
        proven = format_bytes(least.bound_bytes)
        yield f"{aside}least RAM known to work: {words}; proven: {proven}"
        if self.strategy != "auto":
            yield "a strategy other than auto may need more"
