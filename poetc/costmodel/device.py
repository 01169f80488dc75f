"""Descriptions of target devices, read from TOML files that name the source of each number.

    name = "board"
    description = "what it is"
    flops_per_s = 1e6          # float32 operations a second
    ...
    storage = "fram"           # one of the kinds that come with poetc

The keys are the fields of `Device`; each without a default is required. Storage of its own is a
table `[storage]` with the fields of `Storage`, and none at all is left out. `like = "nrf52840"`
takes what the file does not say from a device that comes with poetc. `core = "cortex-m4f"` with
`clock_hz` gives the speeds, where the file does not.

Storage and cores have files of their own in `storages/` and `cores/`, with the fields of `Storage`
and `Core`. A core has a table `[cycles]` with the fields of `Cycles`, or is `like` another.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from poetc.costmodel.toml_file import TomlFile, show
from poetc.errors import InputError

if TYPE_CHECKING:
    from poetc.costmodel.profile import Profile

DEFAULT_WRITE_UNIT_BYTES = 512
"""A sector of disks and memory cards."""

MIN_WRITE_UNIT_BYTES = 16
"""A unit holds at least the record that commits a step."""

NO_CACHE_LINE_BYTES = 4
"""The "line" of a device without a cache: its words."""

OWN_STORAGE = "own"
"""The name of storage that is described in a device's file."""

NO_STORAGE = "none"
"""`--storage=` for a device without any."""

_MOST_VECTOR_FLOATS = 64
"""In a vector of the widest instruction sets that there are, of 2,048 bits."""

_MOST_LOAD_FLOATS = 8
"""For which generated C has a macro."""

_HERE = Path(__file__).parent

Loaded = TypeVar("Loaded")


@dataclass(frozen=True)
class Cycles:
    """Cycles that each thing takes that a kernel does (`kernels/analysis.py` counts them), as
    compiled C: what surrounds it, such as addresses and waiting for results, is part of it."""

    load: float
    """Cycles of a load. One instruction may load several floats, in lanes of a vector or
    together."""
    store: float
    flop: float
    """An addition, subtraction, negation or multiplication of floats."""
    chained: float
    """One in a loop that sums: it waits for the one before. Of those in lanes of a vector, one."""
    compare: float
    """Cycles of a comparison of floats, and of their maxima, minima and absolute values."""
    divide: float
    """Cycles of a division of floats."""
    call: float
    """Cycles of a call of a function such as exp, beside the operations in it."""
    integer: float
    """An operation on integers, an index that is computed, a selection or a conversion."""
    guard: float
    """Testing whether an iteration does something."""
    iteration: float
    """Cycles of an iteration of a loop."""
    loop: float
    """Each time that a loop is begun."""


@dataclass(frozen=True)
class Core:
    """The speed of a core, on the average of generated kernels.

    `fpu` says whether it has float32 in hardware, with so many `float_registers`, and
    `vector_floats` in each of these; `load_floats` are those that one instruction loads from
    addresses that follow each other into separate registers. Both are powers of two. `cache_bytes`
    are those of the largest cache of its own; 0 without one. Without
    `memory_bytes_per_cycle`, `cycles_per_instruction` (zero) or `cycles`, those are not the core's
    to say, or not known.
    """

    name: str
    fpu: bool
    cycles_per_flop: float
    memory_bytes_per_cycle: float = 0.0
    cycles_per_instruction: float = 0.0
    float_registers: int = 0
    vector_floats: int = 1
    load_floats: int = 1
    cache_bytes: int = 0
    cycles: Cycles | None = None

    def slower(self, ratio: float) -> "Core":
        """A core that takes `ratio` times the cycles for the same instructions."""
        cycles = self.cycles and Cycles(**{k: v * ratio for k, v in asdict(self.cycles).items()})
        return replace(
            self,
            cycles_per_flop=self.cycles_per_flop * ratio,
            memory_bytes_per_cycle=self.memory_bytes_per_cycle / ratio,
            cycles_per_instruction=self.cycles_per_instruction * ratio,
            cycles=cycles,
        )

    def speeds(self, clock_hz: float) -> dict[str, float]:
        """The fields of `Device` that follow."""
        known = {
            "flops_per_s": clock_hz / self.cycles_per_flop,
            "memory_bytes_per_s": clock_hz * self.memory_bytes_per_cycle,
            "cycles_per_instruction": self.cycles_per_instruction,
        }
        return {name: value for name, value in known.items() if value}


@dataclass(frozen=True)
class Storage:
    """Auxiliary storage.

    A transfer takes the latency plus its bytes, in whole blocks, divided by the rate. `power_w` is
    what the storage draws meanwhile, beside the processor. A write that is cut off may spoil all of
    each unit of `write_unit_bytes` (a power of two) that it touches, and nothing else.
    `endurance_writes` is how often each place can be written; zero: not known, or without limit.
    """

    read_latency_s: float
    read_bytes_per_s: float
    write_latency_s: float
    write_bytes_per_s: float
    power_w: float
    block_bytes: int
    write_unit_bytes: int = DEFAULT_WRITE_UNIT_BYTES
    name: str = OWN_STORAGE
    description: str = "described in the file of the device"
    endurance_writes: float = 0.0


@dataclass(frozen=True)
class Device:
    """A processor with its RAM and, unless `storage` is None, auxiliary storage.

    `flops_per_s` and `memory_bytes_per_s` are what one core reaches on float32 kernels and on RAM.
    `active_power_w` is drawn while computing, `idle_power_w` during the whole step (zero where it
    is not known or already part of the active powers). `dma` says whether transfers run beside
    compute. `alignment_bytes` is the alignment of tensors in RAM. `cache_line_bytes` is the line of
    a data cache that transfers beside compute do not go through; 4, if there is none or they do.

    With `cycles`, kernels take these at `clock_hz`, and the speeds are for what is not known by its
    loops. `clock_hz` and `cycles_per_instruction` turn a profile in instructions into time; zero
    where they are not known. With a `profile`, kernels and transfers take what it says instead.
    `core` is the name of a core, and `flash_bytes` what there is for code and constants; empty or
    zero where that is not known or is a disk.

    `chosen_storage` is the name of the storage that was chosen in place of the device's own.
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
    core: str = ""
    flash_bytes: int = 0
    cycles: Cycles | None = None
    profile: "Profile | None" = None
    chosen_storage: str | None = None

    @property
    def title(self) -> str:
        """The device, and storage that it does not come with, for messages."""
        chosen = self.chosen_storage
        return self.name if chosen is None else f"{self.name}, storage {chosen}"

    def why_no_storage(self, called: str = "") -> str:
        """The option that leaves it without storage; `called` is how the user named the device."""
        if self.chosen_storage == NO_STORAGE:
            return f"--storage={NO_STORAGE}"
        return f"--device={called or self.name} (it has no storage)"


def known_devices() -> tuple[str, ...]:
    """Names of the devices that come with poetc, sorted."""
    return _known("devices")


def known_storages() -> tuple[str, ...]:
    """Names of the kinds of storage that come with poetc, sorted."""
    return _known("storages")


def known_cores() -> tuple[str, ...]:
    """Names of the cores that poetc knows, sorted."""
    return _known("cores")


def load_device(name_or_path: str) -> Device:
    """The device of that name, or the one described by the TOML file at that path.

    Anything that ends in `.toml` or contains a directory separator is a path. Raises InputError for
    an unknown name (listing the known ones) and for a file that cannot be read or is not valid.
    """
    return _load("device", name_or_path, _device)


def load_storage(name_or_path: str) -> Storage:
    """The kind of storage of that name, or the one described by a file; as `load_device`."""
    return _load("storage", name_or_path, _storage)


@cache
def load_core(name: str) -> Core:
    """The core of that name; InputError for an unknown one."""
    return _load("core", name, _core)


def device_of(
    name_or_path: str | None,
    profile_path: str | None,
    default: str,
    storage: str | None = None,
) -> Device:
    """The device, `default` if it is None, with the profile in a file, if there is one, and with
    `storage` in place of its own, unless that is None.

    With a profile and no device, it is the one that the profile was measured on. Transfers are
    measured without DMA. Raises InputError where the device cannot tell how long an instruction
    takes, for other storage than a profile's, and for files that are not valid.
    """
    if profile_path is None:
        return with_storage(load_device(name_or_path or default), storage)
    if storage is not None:
        raise InputError(
            f"--storage={storage} cannot go with a profile: that has measured the transfers of a "
            "board's storage"
        )
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


def with_storage(device: Device, storage: str | None) -> Device:
    """`device` with the storage of that name or file in place of its own: "none" for none, None
    for its own. Raises InputError as `load_storage`."""
    if storage is None:
        return device
    found = None if storage == NO_STORAGE else load_storage(storage)
    if found == device.storage:
        return device
    return replace(device, storage=found, chosen_storage=found.name if found else NO_STORAGE)


def _known(directory: str) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (_HERE / directory).glob("*.toml")))


def _load(kind: str, name_or_path: str, make: Callable[[TomlFile], Loaded]) -> Loaded:
    # `Path` drops the directory of `./board`.
    if name_or_path.endswith(".toml") or any(c in name_or_path for c in (os.sep, os.altsep) if c):
        return make(TomlFile.read(Path(name_or_path), kind))
    known = _known(f"{kind}s")
    if name_or_path not in known:
        more = f", and {NO_STORAGE}" if kind == "storage" else ""
        raise InputError(
            f"unknown {kind} '{name_or_path}'; known {kind}s are {', '.join(known)}{more} "
            "(or give the path of a .toml file)"
        )
    return make(_shipped(kind, name_or_path))


def _shipped(kind: str, name: str) -> TomlFile:
    return TomlFile.read(_HERE / f"{kind}s" / f"{name}.toml", kind)


def _device(file: TomlFile) -> Device:
    table = _completed(file)
    storage = _storage_of(file, table.get("storage"))
    own = file.values(Device, table, others=("storage", "like"))
    device = Device(**own, storage=storage, cycles=_cycles_of(file))
    for key, least in (("alignment_bytes", 1), ("cache_line_bytes", NO_CACHE_LINE_BYTES)):
        value = getattr(device, key)
        if value & (value - 1) or value < least:
            above = f" and at least {least}" if least > 1 else ""
            raise file.error(key, None, f"must be a power of two{above}, got {value}")
    return device


def _completed(file: TomlFile) -> Mapping[str, Any]:
    """The table of a device's file with what it takes from another device and from its core."""
    table = _with_base(file)
    if "like" in table:
        _check_named(file)
    if "core" in table and "clock_hz" in table:
        core = load_core(_name(file, "core", table["core"], known_cores()))
        table = {**core.speeds(file.value("clock_hz", float, table["clock_hz"])), **table}
    return table


def _cycles_of(file: TomlFile) -> Cycles | None:
    """The speeds of a device's core, unless the file says how fast the device is."""
    table = _with_base(file)
    if "flops_per_s" in table or "core" not in table or "clock_hz" not in table:
        return None
    return load_core(table["core"]).cycles


def _core(file: TomlFile) -> Core:
    """A core; one that is `like` another takes from it what its file does not say, with
    `more_cycles` times as many of them."""
    table = file.table
    cycles = table.get("cycles")
    for key, most in (("vector_floats", _MOST_VECTOR_FLOATS), ("load_floats", _MOST_LOAD_FLOATS)):
        value = file.value(key, int, table.get(key, 1))
        if value & (value - 1) or value > most:
            raise file.error(key, None, f"must be a power of two of at most {most}, got {value}")
    if "like" not in table:
        own = file.values(Core, table, others=("cycles",))
        known = None if cycles is None else Cycles(**file.values(Cycles, cycles, "cycles"))
        return Core(**own, cycles=known)
    ratio = file.value("more_cycles", float, table["more_cycles"])
    base = load_core(_name(file, "like", table["like"], known_cores())).slower(ratio)
    taken: dict[str, Any] = {k: v for k, v in vars(base).items() if v and k != "cycles"}
    own = file.values(Core, {"fpu": base.fpu} | taken | table, others=("like", "more_cycles"))
    return Core(**own, cycles=base.cycles)


def _with_base(file: TomlFile) -> Mapping[str, Any]:
    if "like" not in file.table:
        return file.table
    base = _name(file, "like", file.table["like"], known_devices())
    return {**_with_base(_shipped("device", base)), **file.table}


def _name(file: TomlFile, key: str, value: Any, known: tuple[str, ...]) -> str:
    name = file.value(key, str, value)
    if name not in known:
        raise file.error(key, None, f"unknown '{name}'; known are {', '.join(known)}")
    return name


def _storage_of(file: TomlFile, value: Any) -> Storage | None:
    """The storage of a device: the name of a kind, a table, or nothing."""
    match value:
        case None:
            return None
        case str():
            return load_storage(_name(file, "storage", value, known_storages()))
        case dict():
            return _checked(file, value, "storage")
    message = f"must be a table or the name of a kind of storage, got {show(value)}"
    raise file.error("storage", None, message)


def _storage(file: TomlFile) -> Storage:
    _check_named(file)
    return _checked(file, file.table, None)


def _check_named(file: TomlFile) -> None:
    """Raises InputError where what is described has no name of its own."""
    if missing := [key for key in ("name", "description") if key not in file.table]:
        raise InputError(f"{file.path}: missing {', '.join(missing)}")


def _checked(file: TomlFile, table: Mapping[str, Any], section: str | None) -> Storage:
    storage = Storage(**file.values(Storage, table, section))
    unit = storage.write_unit_bytes
    if unit & (unit - 1) or unit < MIN_WRITE_UNIT_BYTES:
        raise file.error(
            "write_unit_bytes",
            section,
            f"must be a power of two and at least {MIN_WRITE_UNIT_BYTES}, got {unit}",
        )
    return storage
