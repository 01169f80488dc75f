"""`--emit=ir`: scheduled poet IR."""

from poetc.emit import Backend, Job
from poetc.streams import write


def _emit(job: Job) -> None:
    from poetc.ir.text import module_text

    write(job.output, module_text(job.step.compiled.module))


BACKEND = Backend(_emit)
