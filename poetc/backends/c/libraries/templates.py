"""Templates of the files that build a program: Makefiles, CMake, Zephyr, Arduino, linker scripts.

Each is a file of poetc/backends/c/templates/, written for Jinja, with `<< value >>` and
`<% statement %>` in place of braces, which these files are full of.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from poetc.backends.c.libraries.library import MARK, OPTIONS, RUNTIME_MARK
from poetc.backends.c.libraries.step import COMPARE, DIRECTORY, IMAGE, STORAGE

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _environment() -> Environment:
    # Imported when the first template is filled in: most runs of poetc fill in none.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("poetc.backends.c", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
    )
    environment.globals |= {
        "MARK": MARK,
        "RUNTIME_MARK": RUNTIME_MARK,
        "OPTIONS": OPTIONS,
        "DIRECTORY": DIRECTORY,
        "IMAGE": IMAGE,
        "STORAGE": STORAGE,
        "COMPARE": COMPARE,
    }
    return environment


def render(template: str, /, **values: Any) -> str:
    """The text of a template with those values of its variables.

    Also known to it: what generated files begin with, the options that compilers must be given, and
    the names of the files of a run (libraries/step.py).
    """
    return _environment().get_template(template).render(values)
