"""TOML files that describe devices, cores and storage: an error in one is said with its line."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from poetc.errors import InputError, SourceLocation

MAX_INTEGER = 1 << 53
"""Greatest integer in a file, and greatest idle power in nanowatts, which is used as one: larger
ones are not exact as floating-point numbers."""

_MAY_BE_ZERO = {"idle_power_w", "read_latency_s", "write_latency_s"}


@dataclass(frozen=True)
class TomlFile:
    """A file that describes a `kind` of thing: its text, to say where in it an error is, and what
    it says."""

    kind: str
    path: Path
    text: str
    table: dict[str, Any]

    @staticmethod
    def read(path: Path, kind: str) -> TomlFile:
        """The file. Raises InputError if it cannot be read or is not TOML."""
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise InputError(f"cannot read {kind} file {path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{kind} file {path} is not UTF-8 text") from error
        except ValueError as error:
            raise InputError(f"cannot read {kind} file {str(path)!r}: {error}") from error
        try:
            return TomlFile(kind, path, text, tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise _syntax_error(path, text, error) from error
        except (ValueError, RecursionError) as error:
            # A number or date that Python does not convert, or arrays in arrays without end.
            # Python's message goes on with advice for programmers.
            deep = isinstance(error, RecursionError)
            reason = "nested too deeply" if deep else str(error).split(";")[0]
            raise InputError(f"{kind} file {path} is not valid: {reason}") from error

    def values(
        self,
        record: type,
        table: Mapping[str, Any],
        section: str | None = None,
        others: Collection[str] = (),
        *,
        measured: bool = False,
    ) -> dict[str, Any]:
        """The checked values of all fields of `record` that are no tables. `others` are keys that
        `table` may have beside them. What is `measured` is all there, and may be zero."""
        kinds = {f.name: f.type for f in fields(record) if f.type in (str, bool, int, float)}
        for key in table:
            if key not in kinds and key not in others:
                known = ", ".join((*kinds, *others))
                raise self.error(key, section, f"unknown key; known are {known}")
        optional = {f.name for f in fields(record) if f.default is not MISSING and not measured}
        missing = [key for key in kinds if key not in table and key not in optional]
        if missing:
            where = f" in [{section}]" if section else ""
            raise InputError(f"{self.path}: missing {', '.join(missing)}{where}")
        return {
            key: self.value(key, kind, table[key], section, measured=measured)
            for key, kind in kinds.items()
            if key in table
        }

    def value(
        self,
        key: str,
        kind: Any,
        value: Any,
        section: str | None = None,
        *,
        measured: bool = False,
    ) -> Any:
        """`value`, if it is one that `key` may have. Raises InputError if not."""
        # In Python a boolean is an integer, and an integer will do for a float.
        right = type(value) is kind or (kind is float and type(value) is int)
        if not right:
            names = {str: "a string", bool: "true or false", int: "an integer", float: "a number"}
            raise self.error(key, section, f"must be {names[kind]}, got {show(value)}")
        if kind in (int, float):
            # Compared instead of converted, as an integer may be larger than any float.
            if not abs(value) <= sys.float_info.max:
                raise self.error(key, section, f"must be finite, got {show(value)}")
            may_be_zero = measured or key in _MAY_BE_ZERO
            if value < 0 or (value == 0 and not may_be_zero):
                least = "not negative" if may_be_zero else "positive"
                raise self.error(key, section, f"must be {least}, got {show(value)}")
            if kind is int and value > MAX_INTEGER:
                raise self.error(key, section, f"must be at most {MAX_INTEGER}, got {show(value)}")
            if key == "idle_power_w" and value > MAX_INTEGER * 1e-9:
                raise self.error(
                    key, section, f"must be at most {MAX_INTEGER * 1e-9:.0f}, got {show(value)}"
                )
        return kind(value)

    def error(self, key: str, section: str | None, message: str) -> InputError:
        """An error about `key`, at its line if it is written there in the usual way."""
        full = f"{section}.{key}" if section else key
        current: str | None = None
        for number, line in enumerate(self.text.splitlines(), 1):
            if header := re.match(r"\s*\[\s*([^\]]+?)\s*\]", line):
                current = header[1]
            written = re.match(r"\s*\"?([\w.-]+)\"?\s*=", line)
            if current == full or (
                written and full == (f"{current}.{written[1]}" if current else written[1])
            ):
                column = len(line) - len(line.lstrip()) + 1
                return InputError(
                    f"{full}: {message}", SourceLocation(str(self.path), number, column)
                )
        return InputError(f"{self.path}: {full}: {message}")


def show(value: Any) -> str:
    """A value as a message names it."""
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and value.bit_length() > 128:
        # Python does not print integers of any length.
        return f"an integer of {value.bit_length()} bits"
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def _syntax_error(path: Path, text: str, error: tomllib.TOMLDecodeError) -> InputError:
    message = str(error)
    if found := re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL):
        location = SourceLocation(str(path), int(found[2]), int(found[3]))
        return InputError(f"not valid TOML: {found[1]}", location)
    message = message.removesuffix(" (at end of document)")
    return InputError(
        f"not valid TOML: {message}", SourceLocation(str(path), text.count("\n") + 1, 1)
    )
