"""Descriptions of a program in JSON, which lie beside its sources, and the number of their run.

`NAME_build.h` defines the number that all generated files of one run have
(poetc/backends/c/build_id.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from poetc.errors import InputError

_HEADER_PLACES = ("", "include", "src")
"""The folders with the header in the layouts, seen from the descriptions."""


def header_name(name: str) -> str:
    """The header of a model that defines the number."""
    return f"{name}_build.h"


def check_description(file: Path, data: Mapping[str, Any]) -> None:
    """Raises InputError if the description `data` in `file` is not of the run that the sources
    beside it are of. A description that has none beside it may be of any."""
    header = header_name(file.name.rpartition("_")[0])
    for place in _HEADER_PLACES:
        path = file.parent / place / header
        try:
            found = re.search(r"_ID 0x([0-9a-f]{8})u$", path.read_text(), re.MULTILINE)
        except (OSError, ValueError):
            continue
        if found is None or data.get("build_id") != int(found[1], 16):
            raise InputError(f"of another run of poetc than {path}: run poetc again")
