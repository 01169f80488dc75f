"""Descriptions of target devices, read from TOML files that name the source of each number.

    name = "board"
    description = "what it is"
    flops_per_s = 1e6          # float32 operations a second
    ...
    [storage]                  # left out: no auxiliary storage
    read_latency_s = 1e-4
    ...

The keys are the fields of `Device` and `Storage`; each without a default is required.
"""

import os
import re
import sys
import tomllib
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poetc.errors import InputError, SourceLocation

if TYPE_CHECKING:
    from poetc.costmodel.profile import Profile

DEFAULT_WRITE_UNIT_BYTES = 512
"""A sector of disks and memory cards."""

MIN_WRITE_UNIT_BYTES = 16
"""A unit holds at least the record that commits a step."""

NO_CACHE_LINE_BYTES = 4
"""The "line" of a device without a cache: its words."""

_DEVICES = Path(__file__).parent / "devices"


@dataclass(frozen=True)
class Storage:
    """Auxiliary storage.

    A transfer takes the latency plus its bytes, in whole blocks, divided by the rate. `power_w` is
    what the storage draws meanwhile, beside the processor. A write that is cut off may spoil all of
    each unit of `write_unit_bytes` (a power of two) that it touches, and nothing else.
    """

    read_latency_s: float
    read_bytes_per_s: float
    write_latency_s: float
    write_bytes_per_s: float
    power_w: float
    block_bytes: int
    write_unit_bytes: int = DEFAULT_WRITE_UNIT_BYTES


@dataclass(frozen=True)
class Device:
    """A processor with its RAM and, unless `storage` is None, auxiliary storage.

    `flops_per_s` and `memory_bytes_per_s` are what one core reaches on float32 kernels and on RAM.
    `active_power_w` is drawn while computing, `idle_power_w` during the whole step (zero where it
    is not known or already part of the active powers). `dma` says whether transfers run beside
    compute. `alignment_bytes` is the alignment of tensors in RAM. `cache_line_bytes` is the line of
    a data cache that transfers beside compute do not go through; 4, if there is none or they do.

    `clock_hz` and `cycles_per_instruction` turn a profile in instructions into time; zero where
    they are not known. With a `profile`, kernels and transfers take what it says, instead of what
    follows from the speeds.
    """

    name: str
    description: str
    flops_per_s: float
    memory_bytes_per_s: float
    active_power_w: float
    idle_power_w: float
    ram_bytes: int
    alignment_bytes: int
    dma: bool
    storage: Storage | None
    cache_line_bytes: int = NO_CACHE_LINE_BYTES
    clock_hz: float = 0.0
    cycles_per_instruction: float = 0.0
    profile: "Profile | None" = None


_MAX_INTEGER = 1 << 53
"""Greatest integer in a device file, and greatest idle power in nanowatts, which is used as one:
larger ones are not exact as floating-point numbers."""

_MAY_BE_ZERO = {"idle_power_w", "read_latency_s", "write_latency_s"}


def known_devices() -> tuple[str, ...]:
    """Names of the devices that come with poetc, sorted."""
    return tuple(sorted(path.stem for path in _DEVICES.glob("*.toml")))


def load_device(name_or_path: str) -> Device:
    """The device of that name, or the one described by the TOML file at that path.

    Anything that ends in `.toml` or contains a directory separator is a path. Raises InputError for
    an unknown name (listing the known ones) and for a file that cannot be read or is not valid.
    """
    # `Path` drops the directory of `./board`.
    if name_or_path.endswith(".toml") or any(c in name_or_path for c in (os.sep, os.altsep) if c):
        return _load(Path(name_or_path))
    if name_or_path not in known_devices():
        raise InputError(
            f"unknown device '{name_or_path}'; known devices are {', '.join(known_devices())} "
            "(or give the path of a .toml file)"
        )
    return _load(_DEVICES / f"{name_or_path}.toml")


def device_of(name_or_path: str | None, profile_path: str | None, default: str) -> Device:
    """The device, `default` if it is None, with the profile in a file, if there is one.

    With a profile and no device, it is the one that the profile was measured on. Transfers are
    measured without DMA. Raises InputError where the device cannot tell how long an instruction
    takes, and for files that are not valid.
    """
    if profile_path is None:
        return load_device(name_or_path or default)
    from poetc.costmodel.profile import load_profile

    profile = load_profile(profile_path)
    name = name_or_path or profile.device_name
    if name_or_path is None and name not in known_devices():
        raise InputError(
            f"profile {profile_path} is from {profile.origin}, of which no device is known: "
            "--device=FILE.toml describes it"
        )
    device = load_device(name)
    if profile.unit == "instructions" and not (device.clock_hz and device.cycles_per_instruction):
        raise InputError(
            f"profile {profile_path} counts instructions; device {device.name} does not say "
            "clock_hz and cycles_per_instruction, which make time of them"
        )
    measured = f"{device.name}, measured on {profile.origin}"
    return replace(device, name=measured, dma=False, profile=profile)


def _load(path: Path) -> Device:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot read device file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"device file {path} is not UTF-8 text") from error
    except ValueError as error:
        raise InputError(f"cannot read device file {str(path)!r}: {error}") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, error) from error
    except (ValueError, RecursionError) as error:
        # A number or date that Python does not convert, or arrays in arrays without end.
        # Python's message goes on with advice for programmers.
        deep = isinstance(error, RecursionError)
        reason = "nested too deeply" if deep else str(error).split(";")[0]
        raise InputError(f"device file {path} is not valid: {reason}") from error
    source = _Source(path, text)
    storage = table.get("storage")
    if storage is not None:
        if not isinstance(storage, dict):
            raise source.error("storage", None, f"must be a table, got {_show(storage)}")
        storage = Storage(**source.values(Storage, storage, "storage"))
        unit = storage.write_unit_bytes
        if unit & (unit - 1) or unit < MIN_WRITE_UNIT_BYTES:
            raise source.error(
                "write_unit_bytes",
                "storage",
                f"must be a power of two and at least {MIN_WRITE_UNIT_BYTES}, got {unit}",
            )
    device = Device(**source.values(Device, table, None), storage=storage)
    for key, least in (("alignment_bytes", 1), ("cache_line_bytes", NO_CACHE_LINE_BYTES)):
        value = getattr(device, key)
        if value & (value - 1) or value < least:
            above = f" and at least {least}" if least > 1 else ""
            raise source.error(key, None, f"must be a power of two{above}, got {value}")
    return device


def _syntax_error(path: Path, text: str, error: tomllib.TOMLDecodeError) -> InputError:
    message = str(error)
    if found := re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", message, re.DOTALL):
        location = SourceLocation(str(path), int(found[2]), int(found[3]))
        return InputError(f"not valid TOML: {found[1]}", location)
    message = message.removesuffix(" (at end of document)")
    return InputError(
        f"not valid TOML: {message}", SourceLocation(str(path), text.count("\n") + 1, 1)
    )


@dataclass(frozen=True)
class _Source:
    """A device file, to say where in it an error is."""

    path: Path
    text: str

    def values(self, record: type, table: dict[str, Any], section: str | None) -> dict[str, Any]:
        """The checked values of all fields of `record`; the fields of tables are left out."""
        kinds = {f.name: f.type for f in fields(record) if f.type in (str, bool, int, float)}
        for key in table:
            if key not in kinds and key != "storage":
                raise self.error(key, section, f"unknown key; known are {', '.join(kinds)}")
        if "storage" in table and section is not None:
            raise self.error("storage", section, "unknown key")
        optional = {f.name for f in fields(record) if f.default is not MISSING}
        missing = [key for key in kinds if key not in table and key not in optional]
        if missing:
            where = f" in [{section}]" if section else ""
            raise InputError(f"{self.path}: missing {', '.join(missing)}{where}")
        return {
            key: self._value(key, kind, table[key], section)
            for key, kind in kinds.items()
            if key in table
        }

    def _value(self, key: str, kind: Any, value: Any, section: str | None) -> Any:
        # In Python a boolean is an integer, and an integer will do for a float.
        right = type(value) is kind or (kind is float and type(value) is int)
        if not right:
            names = {str: "a string", bool: "true or false", int: "an integer", float: "a number"}
            raise self.error(key, section, f"must be {names[kind]}, got {_show(value)}")
        if kind in (int, float):
            # Compared instead of converted, as an integer may be larger than any float.
            if not abs(value) <= sys.float_info.max:
                raise self.error(key, section, f"must be finite, got {_show(value)}")
            if value < 0 or (value == 0 and key not in _MAY_BE_ZERO):
                least = "not negative" if key in _MAY_BE_ZERO else "positive"
                raise self.error(key, section, f"must be {least}, got {_show(value)}")
            if kind is int and value > _MAX_INTEGER:
                raise self.error(
                    key, section, f"must be at most {_MAX_INTEGER}, got {_show(value)}"
                )
            if key == "idle_power_w" and value > _MAX_INTEGER * 1e-9:
                raise self.error(
                    key, section, f"must be at most {_MAX_INTEGER * 1e-9:.0f}, got {_show(value)}"
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


def _show(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and value.bit_length() > 128:
        # Python does not print integers of any length.
        return f"an integer of {value.bit_length()} bits"
    return f"'{value}'" if isinstance(value, str) else str(value).lower()
