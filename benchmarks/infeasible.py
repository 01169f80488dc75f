"""How long `solve` takes to refuse what cannot be, and what it says.

    python -m benchmarks.infeasible [--only REGEX]

For the problem of every source of the optimiser benchmark: one byte of RAM less than some operation
needs, and a deadline one nanosecond below the time that everything takes once, with unlimited RAM
and with little. Prints a Markdown table; the exit code is 1 where an answer is late or no refusal.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import time
from collections.abc import Iterator

from benchmarks import document
from benchmarks.instances import build, cases
from poetc.schedule.exact.bounds import ram_needed
from poetc.schedule.model.errors import InfeasibleProblem
from poetc.schedule.model.instance import Instance
from poetc.schedule.model.problem import Problem
from poetc.schedule.solve import solve

LIMIT_S = 2.0
"""Within which the answer is wanted."""


def refusals(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Limits that are just too low, with a name each."""
    instance = Instance(problem)
    need = ram_needed(instance)[0]
    yield "RAM", dataclasses.replace(problem, ram_bytes=need - 1)
    hurried = instance.base_time_ns - 1
    yield "deadline", dataclasses.replace(problem, deadline_ns=hurried)
    yield "RAM and deadline", dataclasses.replace(problem, ram_bytes=need, deadline_ns=hurried)


def ask(problem: Problem) -> tuple[float, str, bool]:
    """Seconds, the message, and whether it is a refusal with a number that is proven."""
    started = time.monotonic()
    try:
        schedule = solve(problem, time_limit_s=60)
    except InfeasibleProblem as error:
        proven = error.ram_bound_bytes if error.time_bound_ns is None else error.time_bound_ns
        return time.monotonic() - started, str(error), proven is not None
    return time.monotonic() - started, f"a schedule of {schedule.energy_nj} nJ", False


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="sources whose name matches")
    only = re.compile(parser.parse_args(words).only)
    print("| source | too little | seconds | answer |\n|---|---|---|---|")
    bad = 0
    for source in dict.fromkeys(case.source for case in cases()):
        if not only.search(source.name):
            continue
        for kind, problem in refusals(build(source)):
            seconds, message, refused = ask(problem)
            bad += not refused or seconds > LIMIT_S
            print(f"| {source.name} | {kind} | {seconds:.2f} | {message} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    document.run(main)
