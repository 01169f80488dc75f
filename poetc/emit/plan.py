"""`--emit=plan`: the schedule as a plan, for a program that runs plans."""

from poetc.emit import Backend, Job
from poetc.errors import InputError
from poetc.options import Given
from poetc.streams import STDOUT, write


def _check(given: Given, output: str | None) -> None:
    if output is None:
        raise InputError(f"--emit=plan needs -o FILE, or -o {STDOUT} for standard output")


def _plans(given: Given) -> bool:
    if given.text("executor") == "code":
        raise InputError("--emit=plan is for programs with --executor=plan, not --executor=code")
    return True


def _emit(job: Job) -> str:
    from poetc.backends.plan.codec import identity_of
    from poetc.backends.plan.lower import plan_bytes

    plan = plan_bytes(job.step.compiled.graph)
    write(job.output, plan)
    return f"a plan of {len(plan)} bytes for table 0x{identity_of(plan):08x}"


BACKEND = Backend(
    _emit,
    check=_check,
    plans=_plans,
)
