"""Pictures of a compiled step, an option of `poetc` each: a page for the browser (`page.py`), a
trace for Perfetto (`trace.py`) and a figure (`figure.py`). All of them show what `step.py` reads
from the scheduled graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from poetc.errors import InputError
from poetc.streams import file_name

if TYPE_CHECKING:
    from poetc.compilation import CompiledStep
    from poetc.views.step import StepView


def _page(view: StepView, step: CompiledStep, path: str) -> str:
    from poetc.views.page import page_html

    return page_html(view, step.summary, step.compiled.report)


def _trace(view: StepView, step: CompiledStep, path: str) -> str:
    from poetc.views.trace import trace_json

    return trace_json(view, step.name)


def _figure(view: StepView, step: CompiledStep, path: str) -> bytes:
    from poetc.views.figure import memory_figure

    limit_bytes = step.compiled.options.budget.arena_bytes
    return memory_figure(view, limit_bytes, path.rpartition(".")[2].lower())


@dataclass(frozen=True)
class Picture:
    """A picture that an option writes into a file. `render` makes the content of the file of that
    name from what happens in a step, and the step; the Python module `needs` must be there for it.
    The name ends with one of `endings`."""

    metavar: str
    help: str
    render: Callable[[StepView, CompiledStep, str], str | bytes]
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


def draw(step: CompiledStep, paths: Mapping[str, str]) -> dict[str, str | bytes]:
    """The content of each file, by its path, of pictures of a step; `paths` are those of the
    pictures by name. Raises InputError as `step_view`."""
    if not paths:
        return {}
    from poetc.views.step import step_view

    view = step_view(step.compiled)
    return {path: PICTURES[name].render(view, step, path) for name, path in paths.items()}
