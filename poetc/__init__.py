"""poetc: compile neural-network training steps for devices with very little memory.

    program = poetc.compile(step, (params, x, y), ram="256KB", device="nrf52840")
    loss = program.step(x, y)

What this package has is in docs/api.md. Its names are imported when they are used first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from poetc.api import CompileOptions, JittedStep, compile, jit
    from poetc.diagnosis import Diagnosis
    from poetc.errors import (
        InfeasibleError,
        InputError,
        PoetcError,
        StepError,
        TimeLimitError,
        UnscheduledError,
    )
    from poetc.program import Program
    from poetc.report import Summary

__version__ = "0.2.0"

_PLACES = {
    **dict.fromkeys(("CompileOptions", "JittedStep", "compile", "jit"), "api"),
    "Diagnosis": "diagnosis",
    **dict.fromkeys(("InfeasibleError", "InputError", "PoetcError", "StepError"), "errors"),
    **dict.fromkeys(("TimeLimitError", "UnscheduledError"), "errors"),
    "Program": "program",
    "Summary": "report",
}
"""The public names, and the modules that have them."""

__all__ = [
    "CompileOptions",
    "Diagnosis",
    "InfeasibleError",
    "InputError",
    "JittedStep",
    "PoetcError",
    "Program",
    "StepError",
    "Summary",
    "TimeLimitError",
    "UnscheduledError",
    "compile",
    "jit",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
