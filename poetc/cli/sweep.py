"""`poetc compare` and `poetc pareto`: one step under many strategies, budgets and deadlines."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from poetc.budget import Deadline
from poetc.cli.arguments import Parser, given
from poetc.errors import InputError
from poetc.options import OPTIONS, Given
from poetc.streams import check_writable, file_name, read, write
from poetc.terminal import is_terminal, say, warn
from poetc.units import format_energy, format_time, parse_bytes, parse_count

if TYPE_CHECKING:
    from poetc.sweep import Row

COMPARE, PARETO = "compare", "pareto"
FORMATS = ("table", "json", "csv")

ASKED = (
    "ram",
    "deadline",
    "device",
    "storage",
    "profile",
    "paging",
    "remat",
    "params",
    "frozen",
    "train",
    "pages",
    "stream",
    "block",
    "io",
    "time_limit",
    "stop",
    "threads",
    "gap",
    "stack",
    "board",
    "layout",
    "static",
    "ram_scope",
)
"""Options that say what is scheduled, and how."""

_DOES = {
    COMPARE: "Schedule one step with every strategy and say what each takes.",
    PARETO: "Schedule one step for many budgets of RAM: energy and time over RAM.",
}


def build_parser(command: str) -> Parser:
    """The command line of `poetc compare` or `poetc pareto`."""
    parser = Parser(
        prog=f"poetc {command}",
        description=_DOES[command],
        epilog="exit codes: 0 some schedule was found, 2 bad usage or input, 4 none was found, "
        "130 interrupted: what was found until then is written",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", help="MLIR file, or - for standard input")
    names = "all" if command == COMPARE else OPTIONS["strategy"].default
    add("--strategies", metavar="NAME,...", help=f"all, or some of them (default {names})")
    if command == PARETO:
        add("--budgets", metavar="N|SIZE,...", default="12", help="how many, or which")
        add("--deadlines", metavar="TIME,...", help="for example none,1.5x (default none)")
    own = ("ram", "deadline") if command == PARETO else ()
    parser.add_options(OPTIONS[name] for name in ASKED if name not in own)
    default = "1" if command == COMPARE else "one for each core"
    add(
        "--workers",
        metavar="N|tcp://HOST:PORT",
        help=f"processes, or the scheduler of a Dask cluster (default {default}); more than one "
        "needs Dask: pip install 'poetc[sweep]'",
    )
    add("--cache", metavar="DIRECTORY", help="keep answers there, and take those that are there")
    add("--format", choices=FORMATS, default=FORMATS[0], help="default %(default)s")
    add("-o", "--output", metavar="FILE", help="default, and -: stdout")
    add("-q", "--quiet", action="store_true", help="no progress")
    return parser


def run(command: str, arguments: argparse.Namespace) -> int:
    """Schedules all points and writes what comes of them; the exit code."""
    from poetc import sweep
    from poetc.request import options_of

    strategies = _strategies(arguments.strategies, command)
    workers = _workers(arguments.workers, command)
    arguments.output = file_name(arguments.output)
    check_writable(arguments.output)
    texts = dict(given(arguments).texts)
    if command == PARETO:
        # There are points for all cores.
        texts.setdefault("threads", "1")
    options = options_of(Given(texts), warn)
    cache = sweep.Cache(arguments.cache)
    step = sweep.Step(*read(arguments.input), options)
    if command == PARETO:
        sizes, deadlines = _budgets(arguments.budgets), _deadlines(arguments.deadlines)
        rams: Sequence[int | None]
        rams = sweep.budgets(step, sizes) if isinstance(sizes, int) else sizes
    else:
        rams = [options.ram_bytes]
        deadlines = [arguments.deadline]
    points = [
        sweep.Point(strategy, ram_bytes, deadline)
        for strategy in strategies
        for deadline in deadlines
        for ram_bytes in rams
    ]
    rows: list[Row] = []
    interrupted = False
    with _Progress(len(points), arguments.quiet) as progress:

        def done(row: Row) -> None:
            rows.append(row)
            progress.step()

        try:
            rows = sweep.sweep(step, points, workers, cache, done)
        except KeyboardInterrupt:
            interrupted = True
    write(arguments.output, _text(rows, arguments.format))
    if interrupted:
        say(f"poetc: interrupted after {len(rows)} of {len(points)}")
        return 130
    return 0 if any(row.energy_nj is not None for row in rows) else 4


def _strategies(text: str | None, command: str) -> list[str]:
    option = OPTIONS["strategy"]
    known = list(option.choices or ())
    if text is None:
        text = "all" if command == COMPARE else str(option.default)
    if text == "all":
        return known
    chosen = list(dict.fromkeys(text.split(",")))
    for name in chosen:
        if name not in known:
            raise InputError(f"--strategies: no {name!r}; there are {', '.join(known)}")
    return chosen


def _workers(text: str | None, command: str) -> str | int:
    if text is None:
        return 1 if command == COMPARE else len(os.sched_getaffinity(0))
    return text if "://" in text else parse_count(text, "--workers", "processes")


def _budgets(text: str) -> int | list[int]:
    """How many, or which, smallest first."""
    if text.isdecimal():
        count = parse_count(text, "--budgets", "budgets")
        if count < 2:
            raise InputError("--budgets: at least 2, or sizes such as 16KB")
        return count
    return sorted({parse_bytes(size, "--budgets") for size in text.split(",")})


def _deadlines(text: str | None) -> list[str | None]:
    found = [None if each == "none" else each for each in (text or "none").split(",")]
    for each in found:
        if each is not None:
            Deadline.parse(each, "--deadlines")
    return list(dict.fromkeys(found))


class _Progress:
    """A bar with the time left, on a terminal; nothing elsewhere."""

    def __init__(self, total: int, quiet: bool) -> None:
        self._bar = None
        if is_terminal() and not quiet and total > 1:
            try:
                from tqdm import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="schedule", leave=False)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self) -> None:
        """One more is done."""
        if self._bar is not None:
            self._bar.update()


def _text(rows: Sequence[Row], format: str) -> str:
    from poetc.sweep import Row

    if format == "json":
        return json.dumps([asdict(row) for row in rows], indent=2) + "\n"
    if format == "csv":
        out = io.StringIO()
        writer = csv.DictWriter(out, [field.name for field in fields(Row)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(map(asdict, rows))
        return out.getvalue()
    return _table(rows)


_HEAD = (
    "strategy",
    "RAM budget",
    "deadline",
    "energy",
    "bound",
    "time",
    "RAM used",
    "moved",
    "written",
    "recomputed",
    "in tiles",
    "solver",
    "",
)


def _table(rows: Sequence[Row]) -> str:
    """Columns that say something, numbers to the right; why there is no schedule, below."""
    cells = [_cells(row) for row in rows]
    told = [i for i, name in enumerate(_HEAD) if not name or any(line[i] for line in cells)]
    table = [[line[i] for i in told] for line in (_HEAD, *cells)]
    widths = [max(len(line[i]) for line in table) for i in range(len(told))]
    lines = [
        "  ".join(
            cell.ljust(width) if told[i] in (0, len(_HEAD) - 1) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]
    why: dict[str, list[str]] = {}
    for row in rows:
        if row.message:
            # The rest is of this row alone, and in the other formats.
            why.setdefault(row.message.split(";")[0], []).append(row.strategy)
    notes = [f"{', '.join(dict.fromkeys(names))}: {text}" for text, names in why.items()]
    return "\n".join([*lines, *([""] if notes else []), *notes]) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    def size(count: int | None) -> str:
        return "" if count is None else f"{count:,} B"

    energy = "" if row.energy_nj is None else format_energy(row.energy_nj)
    return (
        row.strategy,
        size(row.ram_bytes),
        row.deadline or "",
        energy,
        "" if row.bound_nj is None else format_energy(row.bound_nj),
        "" if row.time_ns is None else format_time(row.time_ns),
        size(row.used_bytes),
        size(row.moved_bytes),
        size(row.written_bytes),
        "" if row.recomputed is None else str(row.recomputed),
        str(row.tiles) if row.tiles else "",
        "" if row.seconds is None else f"{row.seconds:.1f} s",
        row.status,
    )
