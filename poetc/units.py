"""Sizes and durations as users write them, and as reports print them."""

from __future__ import annotations

import re
from decimal import Decimal
from fractions import Fraction

from poetc.errors import InputError

_LARGEST = 2**62
"""Sizes and times stay well inside the 64-bit integers of the IR."""

_NUMBER = re.compile(r"([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]{1,3})?)\s*([A-Za-z%]*)")
_BYTES = {"": 1, "B": 1, "KB": 1024, "KIB": 1024, "K": 1024, "MB": 1024**2, "MIB": 1024**2}
_BYTES |= {"M": 1024**2, "GB": 1024**3, "GIB": 1024**3, "G": 1024**3}
_TIME_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}


def parse_bytes(text: str, option: str) -> int:
    """A positive number of bytes: `32KB`, `1.5MiB`, `4096`. K is 1024 in both spellings.

    Raises `InputError` naming the option.
    """
    match = _NUMBER.fullmatch(text.strip())
    unit = _BYTES.get(match.group(2).upper()) if match else None
    if match is None or unit is None:
        raise InputError(f"{option}={text}: not a size; write for example 32KB, 1.5MB or 4096")
    number = Decimal(match.group(1))
    if number <= 0:
        raise InputError(f"{option}={text}: must be more than zero")
    if number > _LARGEST or (size := Fraction(number) * unit) > _LARGEST:
        raise InputError(f"{option}={text}: too large")
    if size.denominator != 1:
        raise InputError(f"{option}={text}: not a whole number of bytes")
    return int(size)


def parse_duration_ns(text: str, option: str) -> int | float:
    """A duration in ns (`20ms`, `1.5s`), or a float for a multiple of the unlimited step (`1.5x`).

    Raises `InputError` naming the option.
    """
    match = _NUMBER.fullmatch(text.strip())
    hint = "write for example 20ms, 1.5s, or 1.5x for a multiple of the unlimited step's time"
    if match is None:
        raise InputError(f"{option}={text}: not a duration; {hint}")
    value, unit = float(match.group(1)), match.group(2)
    if value <= 0:
        raise InputError(f"{option}={text}: must be more than zero")
    if value * _TIME_NS.get(unit, 1_000_000_000) > _LARGEST:
        raise InputError(f"{option}={text}: too large")
    if unit in ("x", "X"):
        return value
    if unit not in _TIME_NS:
        raise InputError(f"{option}={text}: needs a unit; {hint}")
    return max(1, round(value * _TIME_NS[unit]))


def parse_seconds(text: str, option: str) -> float:
    """A positive number of seconds: `60`, `0.5`. Raises `InputError` naming the option."""
    match = _NUMBER.fullmatch(text.strip())
    value = float(match.group(1)) if match is not None and not match.group(2) else 0.0
    if not 0 < value < float("inf"):
        raise InputError(f"{option}={text}: not a positive number of seconds")
    return value


def parse_count(text: str, option: str, what: str) -> int:
    """A positive whole number. Raises `InputError` naming the option and `what` is counted."""
    match = _NUMBER.fullmatch(text.strip())
    value = float(match.group(1)) if match is not None and not match.group(2) else 0.0
    if not 0 < value < _LARGEST or value != int(value):
        raise InputError(f"{option}={text}: not a positive number of {what}")
    return int(value)


def parse_fraction(text: str, option: str) -> float:
    """A relative tolerance: `1%` or `0.01`. Raises `InputError` naming the option."""
    match = _NUMBER.fullmatch(text.strip())
    if match is None or match.group(2) not in ("", "%"):
        raise InputError(f"{option}={text}: not a fraction; write for example 1% or 0.01")
    value = float(match.group(1)) / (100 if match.group(2) == "%" else 1)
    if not 0 <= value < 1:
        raise InputError(f"{option}={text}: must be at least 0% and below 100%")
    return value


def check_limit(value: int, name: str) -> int:
    """`value`, if it can be a limit in bytes or nanoseconds, as passes and callers in Python give
    it; raises InputError naming it if not."""
    if isinstance(value, bool):
        raise InputError(f"{name} must be a number, not {str(value).lower()}")
    if value <= 0:
        raise InputError(f"{name} must be more than zero, not {value}")
    if value > _LARGEST:
        raise InputError(f"{name} must be at most {_LARGEST}")
    return value


def format_bytes(count: int) -> str:
    """`12,345 B`, with KiB or MiB beside it where that reads better."""
    for unit, size in (("MiB", 1024**2), ("KiB", 1024)):
        if count >= size:
            return f"{count:,} B ({count / size:.1f} {unit})"
    return f"{count:,} B"


def format_time(time_ns: float) -> str:
    """A duration with a unit that leaves one to four digits before the point."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if time_ns >= size:
            return f"{time_ns / size:.3f} {unit}"
    return f"{time_ns:.0f} ns"


def format_energy(energy_nj: float) -> str:
    """An energy with a unit that leaves one to four digits before the point."""
    for unit, size in (("J", 1e9), ("mJ", 1e6), ("uJ", 1e3)):
        if energy_nj >= size:
            return f"{energy_nj / size:.3f} {unit}"
    return f"{energy_nj:.0f} nJ"
