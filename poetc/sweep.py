"""Many schedules of one step: each strategy, budget and deadline that is asked for.

A `Point` is one question and a `Row` its answer, or why there is none. Points are independent: they
are answered in this process or, with Dask, by the workers of a cluster.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp

from poetc import __version__
from poetc.budget import Deadline
from poetc.diagnosis import Reason
from poetc.errors import InputError, PoetcError, UnscheduledError
from poetc.files import write_whole
from poetc.ir.garbage import collect_less
from poetc.request import GIVE_UNSCHEDULED, Options

if TYPE_CHECKING:
    from poetc.compilation import CompiledStep

ATTEMPTS = 3
"""How many workers may be lost with one point before it is given up."""


@dataclass(frozen=True)
class Point:
    """One question: a strategy, all of the RAM in bytes, and the deadline as a user writes it; None
    where there is no limit."""

    strategy: str
    ram_bytes: int | None
    deadline: str | None


@dataclass(frozen=True)
class Row:
    """The answer to a point.

    `status` is "optimal" (within the gap), "feasible", "infeasible" (proven), "none found" or
    "refused" (the strategy is not defined for the step); without a schedule `message` says why, and
    the numbers of it are None. `used_bytes` is all of the RAM that is used, `moved_bytes` what is
    transferred either way, `written_bytes` what is written to storage in a step, `tiles` how many
    kernels run in tiles, `bound_nj` the energy that no schedule of the strategy's kind goes below,
    `seconds` those of the solver.
    """

    strategy: str
    ram_bytes: int | None
    deadline: str | None
    status: str
    energy_nj: int | None = None
    time_ns: int | None = None
    used_bytes: int | None = None
    moved_bytes: int | None = None
    recomputed: int | None = None
    tiles: int | None = None
    written_bytes: int | None = None
    bound_nj: int | None = None
    seconds: float | None = None
    message: str = ""


@dataclass(frozen=True)
class Step:
    """A model: its name, its text or bytecode, and what is the same for all points."""

    name: str
    data: bytes
    options: Options

    def key(self, point: Point) -> str:
        """A key that tells the answer to a point of this step from all others."""
        asked = (__version__, self.name, repr(self.options), repr(point))
        return hashlib.sha256("\n".join(asked).encode() + b"\n" + self.data).hexdigest()


def answer(step: Step, point: Point) -> Row:
    """Schedules one point. Raises InputError for a step that cannot be compiled."""
    deadline = None
    if point.deadline is not None:
        deadline = Deadline.parse(point.deadline, "--deadline")
    options = replace(
        step.options, strategy=point.strategy, ram_bytes=point.ram_bytes, deadline=deadline
    )
    asked = asdict(point)
    module = _module(step.name, step.data)
    try:
        found = _compiled(module, step.name, options).brief
    except UnscheduledError as error:
        # The limits of a strategy prove nothing about the step.
        proven = error.diagnosis.proven and error.diagnosis.reason is not Reason.STRATEGY
        status = "infeasible" if proven else "none found"
        return Row(**asked, status=status, message=error.message)
    except InputError as error:
        if point.strategy == "auto":
            raise
        return Row(**asked, status="refused", message=error.message)
    return Row(
        **asked,
        status=found.status or "feasible",
        energy_nj=found.energy_nj,
        time_ns=found.time_ns,
        used_bytes=found.ram.total_bytes,
        moved_bytes=found.page_in_bytes + found.page_out_bytes,
        recomputed=found.recomputes,
        tiles=found.streams,
        written_bytes=found.page_out_bytes,
        bound_nj=found.bound_nj,
        seconds=found.solver_seconds,
    )


@lru_cache(maxsize=1)
def _module(name: str, data: bytes) -> ModuleOp:
    """The module of a step. Raises InputError for one that is scheduled already."""
    from poetc.ir.graph import graphs
    from poetc.ir.text import read_module

    module = read_module(data, name)
    if any(graph.is_scheduled for graph in graphs(module)):
        raise InputError(
            f"{name} is scheduled already, so another strategy or budget changes nothing; "
            f"{GIVE_UNSCHEDULED}"
        )
    return module


def _compiled(module: ModuleOp, name: str, options: Options) -> CompiledStep:
    """The module as it is scheduled with these options."""
    from poetc.compilation import compile_step

    return compile_step(module.clone(), name, options)


def budgets(step: Step, count: int) -> tuple[int, ...]:
    """So many budgets in bytes, from the least RAM in which the step is known to run, with whole
    parameters, to what it takes without a limit: each the same factor larger than the one before.

    Raises InputError where the two are the same.
    """
    unlimited = replace(step.options, ram_bytes=None, deadline=None, strategy="auto")
    ram = _compiled(_module(step.name, step.data), step.name, unlimited).summary.ram
    most = ram.total_bytes
    known = [least.known_bytes for least in ram.least if least.known_bytes is not None]
    least = min(known, default=most)
    if least >= most:
        raise InputError(f"the step takes {most:,} bytes in any case; --budgets says which to try")
    ratio = most / least
    inner = {math.ceil(least * ratio ** (i / (count - 1))) for i in range(1, count - 1)}
    return tuple(sorted({least, most, *inner}))


class Cache:
    """Answers in a directory, one file for each; None keeps none."""

    def __init__(self, directory: str | None) -> None:
        self.directory = None if directory is None else Path(directory)
        if self.directory is not None:
            try:
                self.directory.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(f"cannot write {directory}: {error.strerror}") from error

    def get(self, key: str) -> Row | None:
        """The known row; None also if its file cannot be read."""
        if self.directory is None:
            return None
        try:
            known = json.loads((self.directory / f"{key}.json").read_text())
            return Row(**known)
        except (OSError, ValueError, TypeError):
            return None

    def put(self, key: str, row: Row) -> None:
        """Keeps an answer."""
        if self.directory is not None:
            write_whole(self.directory / f"{key}.json", json.dumps(asdict(row)) + "\n")


def sweep(
    step: Step,
    points: Sequence[Point],
    workers: str | int = 1,
    cache: Cache | None = None,
    done: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """The answers to all points, in their order; `done` gets each as it comes.

    `workers` is how many processes work, or the address of a Dask scheduler; one is this process.
    What a worker was at when it was lost is given to another. Raises InputError for a step that
    cannot be compiled, or where no workers can be had.
    """
    cache = cache or Cache(None)
    rows: dict[Point, Row] = {}

    def take(point: Point, row: Row, known: bool = False) -> None:
        rows[point] = row
        if not known:
            cache.put(step.key(point), row)
        done(row)

    for point in points:
        found = cache.get(step.key(point))
        if found is not None:
            take(point, found, known=True)
    left = [point for point in points if point not in rows]
    if workers == 1:
        for point in left:
            take(point, answer(step, point))
    elif left:
        for point, row in _by_dask(step, left, workers):
            take(point, row)
    return [rows[point] for point in points]


def _by_dask(
    step: Step, points: Sequence[Point], workers: str | int
) -> Iterator[tuple[Point, Row]]:
    """Answers of the workers of a cluster, as they come."""
    try:
        from dask import config
        from distributed import Client, KilledWorker, LocalCluster, as_completed
    except ImportError as error:
        raise InputError(
            "more than one worker needs Dask: pip install 'poetc[sweep]', or --workers=1"
        ) from error
    with config.set({"distributed.scheduler.allowed-failures": ATTEMPTS}):
        try:
            if isinstance(workers, int):
                place = LocalCluster(
                    workers,
                    threads_per_worker=1,
                    dashboard_address=":0",
                    silence_logs=logging.CRITICAL,
                )
            else:
                place = workers
            client = Client(place, timeout=20)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(f"--workers={workers}: no Dask scheduler there") from error
        with client:
            try:
                if isinstance(workers, int):
                    client.run(collect_less)
                asked = {client.submit(answer, step, p, pure=False): p for p in points}
                for future in as_completed(asked):
                    point = asked[future]
                    try:
                        yield point, future.result()
                    except KilledWorker:
                        message = f"{ATTEMPTS + 1} workers were lost with it"
                        yield point, Row(**asdict(point), status="none found", message=message)
                    except PoetcError:
                        client.cancel(list(asked))
                        raise
            finally:
                if not isinstance(place, str):
                    place.close()
