"""`poetc explain`: why a step misses its budget, and what would help."""

from __future__ import annotations

import argparse
import json

from poetc.cli.arguments import Parser, given
from poetc.cli.sweep import ASKED
from poetc.options import OPTIONS, Given
from poetc.streams import read, write
from poetc.terminal import warn

TIME_LIMIT = "10"
"""Seconds for each change that is tried, where none are given."""


def build_parser() -> Parser:
    """The command line of `poetc explain`."""
    parser = Parser(
        prog="poetc explain",
        description="Say why a step has no schedule within its limits, what holds the RAM, and "
        "which changes of the options help, in order of gain. Each change is tried.",
        epilog="exit codes: 0 explained, also where there is a schedule, 2 bad usage or input",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("input", help="MLIR file, or - for standard input")
    parser.add_options(OPTIONS[name] for name in (*ASKED, "strategy") if name != "time_limit")
    add(
        "--time-limit",
        metavar="SECONDS",
        help=f"for each change that is tried (default {TIME_LIMIT})",
    )
    add("--json", action="store_true", help="as JSON")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Writes the explanation to standard output; the exit code."""
    from poetc.explain import explain
    from poetc.ir.text import read_module

    asked = Given({"time_limit": TIME_LIMIT} | dict(given(arguments).texts))
    name, data = read(arguments.input)
    found = explain(read_module(data, name), name, asked, warn)
    text = json.dumps(found.to_json(), indent=2) + "\n" if arguments.json else found.to_text()
    write(None, text)
    return 0
