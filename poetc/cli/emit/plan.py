"""`--emit=plan`: the schedule as a plan, for a program that runs plans."""

import argparse

from poetc.cli.emit import Backend, Job
from poetc.cli.files import write
from poetc.errors import InputError


def _check(arguments: argparse.Namespace) -> None:
    if arguments.output is None:
        raise InputError("--emit=plan needs -o FILE, or -o - for standard output")


def _plans(arguments: argparse.Namespace) -> bool:
    if arguments.executor == "code":
        raise InputError("--emit=plan is for programs with --executor=plan, not --executor=code")
    return True


def _emit(job: Job) -> str:
    from poetc.backends.plan.codec import identity_of
    from poetc.backends.plan.lower import plan_bytes

    plan = plan_bytes(job.compiled.graph)
    write(job.arguments.output, plan)
    return f"a plan of {len(plan)} bytes for table 0x{identity_of(plan):08x}"


BACKEND = Backend(_emit, check=_check, plans=_plans)
