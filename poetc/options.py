"""The options of poetc: name, unit, default and meaning of each, and who takes it.

The command lines, the fields of the passes, `PoetSchedule` and the table in docs/options.md
(docs/options_table.py) have names and defaults from here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any

from poetc.budget import SCOPES, Deadline
from poetc.errors import InputError
from poetc.page import BLOCK_BYTES, LEAST_BLOCK_BYTES, check_block_bytes
from poetc.schedule import strategies
from poetc.units import parse_bytes, parse_count, parse_fraction, parse_seconds

PASS, RELAX, PROFILE = "poet-schedule", "PoetSchedule", "poetc profile"
"""Who takes options beside `poetc`: a pass, the pass for Relax, another command."""


def _text(text: str, option: str) -> str:
    return text


def _switch(text: str, option: str) -> bool:
    return text == "on"


def _trials(text: str, option: str) -> int:
    return parse_count(text, option, "trials")


def _threads(text: str, option: str) -> int:
    return parse_count(text, option, "cores")


@dataclass(frozen=True)
class Option:
    """An option of the command `poetc`.

    `help` is what `--help` says, with `{default}` for the default, which is written as a user would
    write it; None: what else is given decides. `parse` makes the value of what is written after
    `--name=`, in the `unit`. `takers` have it too, by the same name. An option that is `alone` goes
    with `--passes`, too.
    """

    name: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] | None = None
    default: str | None = None
    parse: Callable[[str, str], Any] = _text
    unit: str = ""
    takers: tuple[str, ...] = ()
    alone: bool = False

    @property
    def flag(self) -> str:
        """How it is written on the command line."""
        return f"--{self.name.replace('_', '-')}"

    def value(self, text: str | None = None) -> Any:
        """The value that `text` stands for, the default if it is None. Raises InputError naming the
        option."""
        text = self.default if text is None else text
        return None if text is None else self.parse(text, self.flag)


def _names() -> tuple[str, ...]:
    return tuple(name for name in strategies.names() if name not in strategies.INTERNAL)


_SWITCH = ("on", "off")
_ALL = (PASS, RELAX)

_TABLE = (
    Option(
        "ram",
        "all of the RAM of the step, for example 32KB",
        "SIZE",
        parse=parse_bytes,
        unit="bytes",
        takers=_ALL,
    ),
    Option(
        "device",
        "what costs are of (default {default}; poetc devices lists them)",
        "NAME|FILE.toml",
        default="nrf52840",
        takers=_ALL,
    ),
    Option(
        "storage",
        "auxiliary storage in place of the device's own (poetc devices lists the kinds)",
        "NAME|FILE.toml|none",
        takers=_ALL,
    ),
    Option("profile", "measured costs, as poetc profile writes them", "FILE", takers=(PASS,)),
    Option(
        "deadline",
        "for example 20ms, or 1.5x the unlimited step's time",
        "TIME",
        parse=Deadline.parse,
        unit="ns",
        takers=_ALL,
    ),
    Option(
        "executor",
        "what runs the schedule: code (default), or plans, which --emit=plan makes and the "
        "program of --emit=c runs",
        choices=("code", "plan"),
    ),
    Option(
        "target",
        "with --emit=tvm or --kernels=tvm: what code is for, for example aarch64 or cortex-a72 "
        "(default host)",
        "TRIPLE[:CPU]",
        alone=True,
    ),
    Option(
        "kernels",
        "with --emit=c: kernels as C (default), or compiled by TVM for --target, which is "
        "faster on cores with floating point",
        choices=("c", "tvm"),
    ),
    Option(
        "tuning",
        "with --emit=tvm: arrange loops as was found fastest in these measurements",
        "DIRECTORY",
        alone=True,
    ),
    Option(
        "tune",
        "with --tuning: first measure so many arrangements of each hot kernel here, and add them",
        "TRIALS",
        parse=_trials,
        alone=True,
    ),
    Option("strategy", "default {default}", None, _names(), strategies.DEFAULT, takers=_ALL),
    Option(
        "paging",
        "use auxiliary storage (default {default})",
        choices=_SWITCH,
        default="on",
        parse=_switch,
        takers=_ALL,
    ),
    Option(
        "remat",
        "recompute kernels (default {default})",
        choices=_SWITCH,
        default="on",
        parse=_switch,
        takers=_ALL,
    ),
    Option(
        "params",
        "where parameters are between steps; {default}: on storage if RAM is too small for them",
        choices=("auto", "ram", "storage"),
        default="auto",
        takers=(PASS,),
    ),
    Option(
        "frozen",
        "arguments that are never written, and read where they are, such as in flash; {default} "
        "(default): those that the step returns unchanged; storage: on storage instead",
        "off|auto|storage|NAME,...",
        default="auto",
        takers=(PROFILE,),
    ),
    Option(
        "train",
        "parameters that are trained (default: all), by name or pattern; @AXIS:START:STOP: only "
        "these indices along an axis",
        "NAME,...",
        takers=(PROFILE,),
    ),
    Option(
        "pages",
        "how weights of f32 are held, in storage and in RAM: as they are (default), or rounded at "
        "the end of each step, which gives other results",
        choices=("exact", "f16", "bf16"),
        default="exact",
        takers=(PROFILE,),
    ),
    Option(
        "stream",
        "kernels in tiles, with operands and results on storage: {default} (default), where the "
        "step does not fit otherwise, or takes less energy",
        choices=("auto", "never"),
        default="auto",
    ),
    Option(
        "block",
        "bytes of a block of a page, where kernels run in tiles, of which one is in RAM (default "
        f"{BLOCK_BYTES}; where whole kernels do not fit {BLOCK_BYTES} or {LEAST_BLOCK_BYTES}, "
        "whichever takes less energy)",
        "SIZE",
        parse=lambda text, option: check_block_bytes(parse_bytes(text, option), option),
        unit="bytes",
    ),
    Option(
        "io",
        "where inputs and results are: in the arena (default), or in buffers of the caller, "
        "which --ram does not count",
        choices=("arena", "caller"),
        takers=(PASS,),
    ),
    Option(
        "time_limit",
        "for the solver (default {default})",
        "SECONDS",
        default="60",
        parse=parse_seconds,
        unit="s",
        takers=_ALL,
    ),
    Option(
        "stop",
        "what ends a search while the gap is open: the time limit (default), or the work that it "
        "stands for, with the same result on every machine",
        choices=("clock", "work"),
        default="clock",
        takers=_ALL,
    ),
    Option(
        "threads",
        "cores that a search uses (default {default}; pareto: 1 for each worker); the "
        "result is the same",
        choices=("1", "2"),
        default="2",
        parse=_threads,
        takers=_ALL,
    ),
    Option(
        "gap",
        "stop this close to optimal (default {default})",
        "FRACTION",
        default="1%",
        parse=parse_fraction,
        takers=_ALL,
    ),
    Option(
        "stack",
        "stack reserve inside --ram (default {default}); measure: what this model takes, found "
        "out with the C compiler",
        "SIZE|measure",
        default="1KB",
        parse=parse_bytes,
        unit="bytes",
    ),
    Option(
        "flash",
        "measure: the summary says what the program takes of flash, found out with the C compiler",
        choices=("off", "measure"),
        default="off",
    ),
    Option(
        "board",
        "firmware for a board, with --emit=c; --ram is all of its RAM, by default what it has",
        "NAME",
        takers=(PROFILE,),
    ),
    Option(
        "layout",
        "with --emit=c: a directory with a Makefile (default), or a library for CMake, for "
        "Arduino, or for Zephyr",
        choices=("make", "cmake", "arduino", "zephyr"),
        default="make",
    ),
    Option(
        "data",
        "with --emit=c: arguments of a step (arg0, arg1, ...) and its results, if known (out0, "
        "...); make run in the directory runs it on them and compares",
        "FILE.npz",
        takers=(PROFILE,),
    ),
    Option(
        "name",
        "with --emit=c: begins the names of symbols and files (default {default})",
        default="model",
    ),
    Option(
        "arena",
        "with --emit=c: what a step keeps in RAM is in the program (default), or in memory of the "
        "caller, for several instances, and for models that share it",
        choices=("program", "caller"),
        default="program",
    ),
    Option(
        "optimise",
        "with --emit=c: kernels that differ in sizes only share code if they take little of the "
        "time (default), always (size), or never (time)",
        choices=("balanced", "size", "time"),
        default="balanced",
    ),
    Option(
        "static",
        "static data beside the arena, inside --ram (default: what the stores that come with "
        "poetc, or the board, need)",
        "SIZE",
        parse=parse_bytes,
        unit="bytes",
    ),
    Option(
        "cc",
        "C compiler for --stack=measure and --flash=measure, with its options (default: gcc or cc)",
        "COMMAND",
    ),
    Option(
        "ram_scope",
        "what --ram covers: everything, or as the POET paper all but parameters and gradients",
        choices=SCOPES,
        default="all",
        takers=(PASS,),
    ),
)

OPTIONS = {option.name: option for option in _TABLE}
"""The options by name, in the order of `--help`."""


def default(name: str) -> Any:
    """The default of an option; None if it has none."""
    return OPTIONS[name].value()


@dataclass(frozen=True)
class Given:
    """The options of the table that are given, by name, written as on the command line."""

    texts: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(values: Mapping[str, Any]) -> Given:
        """The options that a caller in Python gives: `ram=4096` is --ram=4096, `paging=False` is
        --paging=off, None is what is not given, and several names may be a list.

        Raises TypeError for names and types that no option has, InputError for other values than
        those that it has.
        """
        if unknown := sorted(values.keys() - OPTIONS.keys()):
            raise TypeError(f"no option {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
        texts = {n: _written(n, value) for n, value in values.items() if value is not None}
        for name, text in texts.items():
            choices = OPTIONS[name].choices
            if choices is not None and text not in choices:
                raise InputError(f"{name}={text!r}: one of {', '.join(choices)}")
            if not text:
                raise InputError(f"{name} is given without a value")
        return Given(texts)

    def text(self, name: str) -> str | None:
        """The text given for an option; None if it is not given."""
        return self.texts.get(name)

    def value(self, name: str) -> Any:
        """The value of an option, the default if it is not given."""
        return OPTIONS[name].value(self.text(name))

    def flags(self, *names: str) -> list[str]:
        """The flags of the options that are given, as they are written on the command line."""
        return [OPTIONS[name].flag for name in names if name in self.texts]


def _written(name: str, value: Any) -> str:
    """A value as the command line has it."""
    match value:
        case bool():
            return "on" if value else "off"
        case str():
            return value
        case Real():  # Those of NumPy, too.
            return str(value)
        case os.PathLike():
            return os.fspath(value)
        case list() | tuple() if all(isinstance(each, str) for each in value):
            return ",".join(value)
    raise TypeError(f"{name} is text, a number, or a list of names, not {type(value).__name__}")


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """How to search for a schedule; these mean nothing where nothing is searched.

    `gap` is the optimality gap to stop at, relative to the energy. With `stop` "work" a search
    ends after the work that the time limit stands for, with "clock" at the time limit. `threads`
    are the cores that a search uses.
    """

    strategy: str = default("strategy")
    paging: bool = default("paging")
    remat: bool = default("remat")
    time_limit_s: float = default("time_limit")
    stop: str = default("stop")
    threads: int = default("threads")
    gap: float = default("gap")
    ram_scope: str = default("ram_scope")

    @property
    def counted(self) -> bool:
        """Whether work ends a search, not the clock."""
        return self.stop == "work"


SEARCH = {field.name: field.name.removesuffix("_s") for field in fields(SearchOptions)}
"""Fields of `SearchOptions`, and the options that they are."""

TILES = ("stream", "block")
"""Options that say how kernels may run in tiles, which a schedule settles."""


def check_search(options: SearchOptions) -> None:
    """Raises InputError for a `stop` and a number of `threads` that there are not, and for a time
    limit and a gap that are none: passes and callers in Python give what they like."""
    for name in ("stop", "threads"):
        choices, given = OPTIONS[name].choices or (), getattr(options, name)
        if str(given) not in choices:
            raise InputError(f"{name} is {' or '.join(choices)}, not {given}")
    for name, number in (("time_limit", options.time_limit_s), ("gap", options.gap)):
        if not number >= 0:
            raise InputError(f"{name} is a number from 0 on, not {number}")


def search_fields(options: SearchOptions) -> dict[str, Any]:
    """The fields of `SearchOptions`, for other options that have them too."""
    return {name: getattr(options, name) for name in SEARCH}
