"""The machine that the loops of kernels are arranged for."""

from __future__ import annotations

from poetc.costmodel.device import Core, Device, known_devices, load_core, load_device
from poetc.kernels.arrange import Machine

DEFAULT_DEVICE = "host"
"""The machine that kernels are arranged for where none is asked for, or known."""

_SOFT_FLOP_INSTRUCTIONS = 60
"""Instructions of an operation on floats that a library does."""
_SOFT_REGISTERS = 8
"""Registers for floats of a core that has them in the registers for integers."""


def measured_for(device_name: str) -> str:
    """The device that kernels are arranged for when they are measured on this one: one with the
    same core, if it is not known itself."""
    known = known_devices()
    if device_name in known:
        return device_name
    # Of boards, cores are called the same with floating point and without.
    cores = {name: load_device(name).core.removesuffix("f") for name in known}
    alike = (name for name, core in cores.items() if core and device_name.endswith(f"-{core}"))
    return next(alike, DEFAULT_DEVICE)


def _with_vectors(core: Core) -> Machine:
    """A core that begins operations before others end, and whose memory has room for code."""
    return Machine(
        registers=core.float_registers,
        lanes=core.vector_floats,
        cache_bytes=core.cache_bytes,
        waiting=2,
        latency_instructions=10,
        reach=1 << 20,
        growth=8.0,
        least_worth=1e-6,
    )


def machine_of(device: Device) -> Machine:
    """The machine of a device; where its core is not known, one with floats in hardware."""
    if device.profile is not None:
        device = load_device(measured_for(device.profile.device_name))
    if not device.core:
        return Machine()
    core = load_core(device.core)
    if core.vector_floats > 1:
        return _with_vectors(core)
    if core.fpu:
        return Machine(
            registers=core.float_registers,
            load_floats=core.load_floats,
            growth=1.08,
            least_worth=5e-6,
        )
    return Machine(
        registers=_SOFT_REGISTERS,
        flop_instructions=_SOFT_FLOP_INSTRUCTIONS,
    )
