"""Pictures of a compiled step, an option of `poetc` each: a page for the browser (`page.py`), a
trace for Perfetto (`trace.py`) and a figure (`figure.py`). All of them show what `step.py` reads
from the scheduled graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from poetc.errors import InputError
from poetc.streams import file_name

if TYPE_CHECKING:
    from poetc.compilation import CompiledStep


def _page(step: CompiledStep, path: str) -> str:
    from poetc.views.page import page_html
    from poetc.views.step import step_view

    return page_html(step_view(step.compiled), step.summary, step.compiled.report)


def _trace(step: CompiledStep, path: str) -> str:
    from poetc.views.step import step_view
    from poetc.views.trace import trace_json

    return trace_json(step_view(step.compiled), step.name)


def _figure(step: CompiledStep, path: str) -> bytes:
    from poetc.views.figure import memory_figure
    from poetc.views.step import step_view

    limit_bytes = step.compiled.options.budget.arena_bytes
    format = path.rpartition(".")[2].lower()
    return memory_figure(step_view(step.compiled), limit_bytes, format)


@dataclass(frozen=True)
class Picture:
    """A picture that an option writes into a file. `render` gives the content of the file of that
    name, for which the Python module `needs` must be there; the name ends with one of `endings`."""

    metavar: str
    help: str
    render: Callable[[CompiledStep, str], str | bytes]
    needs: str | None = None
    endings: tuple[str, ...] = ()


PICTURES = {
    "report": Picture(
        "FILE.html", "a page that shows the step, for the browser", _page, "vl_convert"
    ),
    "trace": Picture("FILE.json", "the step in Chrome's trace format, for Perfetto", _trace),
    "plot": Picture(
        "FILE",
        "a figure of the memory over the step: .svg, .png or .pdf",
        _figure,
        "matplotlib",
        (".svg", ".png", ".pdf"),
    ),
}
"""By the name of their option."""


def check(name: str, path: str) -> None:
    """Raises InputError, before the work is done, where the picture cannot be drawn."""
    picture = PICTURES[name]
    if file_name(path) is None:
        raise InputError(f"--{name}={path}: pictures are written into files; give a name")
    if picture.endings and not path.lower().endswith(picture.endings):
        known = ", ".join(picture.endings)
        raise InputError(f"--{name}={path}: the name ends with one of {known}")
    if picture.needs is not None and find_spec(picture.needs) is None:
        raise InputError(f"--{name} needs pip install 'poetc[report]'")
