"""`--emit=report`: the summary as JSON."""

import json

from poetc.cli.emit import Backend, Job
from poetc.cli.files import write


def _emit(job: Job) -> None:
    write(job.arguments.output, json.dumps(job.summary().to_json(), indent=2) + "\n")


BACKEND = Backend(_emit)
