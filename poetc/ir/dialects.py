"""The dialects that poetc defines. Each is imported when it is asked for."""

from collections.abc import Callable
from importlib import import_module

from xdsl.ir import Dialect

_DIALECTS = {
    "poet": ("poetc.ir.poet", "Poet"),
    "stablehlo": ("poetc.ir.stablehlo", "StableHLO"),
    "chlo": ("poetc.ir.stablehlo", "CHLO"),
    "sdy": ("poetc.ir.sdy", "SDY"),
    "resume": ("poetc.ir.stablehlo", "Resume"),
}


def _dialect(module: str, name: str) -> Callable[[], Dialect]:
    return lambda: getattr(import_module(module), name)


DIALECTS = {name: _dialect(*where) for name, where in _DIALECTS.items()}
"""Name of a dialect to a function that returns the dialect."""
