"""The check that TVM can be imported, and the command that installs it."""

from __future__ import annotations

from importlib import import_module

from poetc.errors import InputError

INSTALL = "pip install 'poetc[tvm]'"
"""The command that installs the versions that work together (pyproject.toml)."""


def require_tvm(what: str) -> None:
    """Raises InputError, which says how to install it, unless TVM can be imported.

    `what` is the option or function that needs it.
    """
    try:
        import_module("tvm")
    except ImportError as error:
        raise InputError(
            f"{what} needs Apache TVM ({error}); install it with: {INSTALL}"
        ) from error
