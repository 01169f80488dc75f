"""`--emit=report`: the summary as JSON."""

import json

from poetc.emit import Backend, Job
from poetc.streams import write


def _emit(job: Job) -> None:
    write(job.output, json.dumps(job.step.summary.to_json(), indent=2) + "\n")


BACKEND = Backend(_emit, has_entries=True)
