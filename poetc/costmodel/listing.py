"""The devices and kinds of storage that come with poetc, as tables of text."""

from __future__ import annotations

from poetc.costmodel.device import (
    known_devices,
    known_storages,
    load_core,
    load_device,
    load_storage,
)
from poetc.units import format_time

DEVICE_HEAD = ("device", "RAM", "flash", "core", "clock", "FPU", "storage", "description")
STORAGE_HEAD = (
    "storage",
    "latency",
    "read",
    "write",
    "power",
    "block",
    "writes",
    "description",
)


def device_rows() -> list[tuple[str, ...]]:
    """A row for each device, as `DEVICE_HEAD`. What a file does not say is empty."""
    return [_device_row(name) for name in known_devices()]


def storage_rows() -> list[tuple[str, ...]]:
    """A row for each kind of storage, as `STORAGE_HEAD`; its latency is that of reading."""
    return [_storage_row(name) for name in known_storages()]


def _device_row(name: str) -> tuple[str, ...]:
    device = load_device(name)
    return (
        name,
        _size(device.ram_bytes),
        _size(device.flash_bytes),
        device.core,
        f"{device.clock_hz / 1e6:g} MHz" if device.clock_hz else "",
        ("yes" if load_core(device.core).fpu else "no") if device.core else "",
        device.storage.name if device.storage is not None else "none",
        device.description,
    )


def _storage_row(name: str) -> tuple[str, ...]:
    storage = load_storage(name)
    return (
        name,
        format_time(round(storage.read_latency_s * 1e9)),
        _rate(storage.read_bytes_per_s),
        _rate(storage.write_bytes_per_s),
        f"{storage.power_w * 1e3:.3g} mW",
        _size(storage.block_bytes),
        f"{storage.endurance_writes:.0e}" if storage.endurance_writes else "",
        storage.description,
    )


def _size(count: int) -> str:
    for unit, bytes in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if count >= bytes:
            return f"{count / bytes:.3g} {unit}" if count % bytes else f"{count // bytes} {unit}"
    return f"{count} B" if count else ""


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.3g} MB/s"
