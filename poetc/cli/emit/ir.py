"""`--emit=ir`: scheduled poet IR."""

from poetc.cli.emit import Backend, Job
from poetc.cli.files import write


def _emit(job: Job) -> None:
    from poetc.ir.text import module_text

    write(job.arguments.output, module_text(job.compiled.module))


BACKEND = Backend(_emit)
