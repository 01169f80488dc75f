"""An Arduino library (library specification 2.2); its example trains over the serial line."""

from __future__ import annotations

import re

from poetc import __version__
from poetc.backends.c.libraries.library import Library
from poetc.backends.c.libraries.templates import render
from poetc.errors import InputError

STATIC_BYTES = 540
"""Bytes of RAM of the example's page store: a card and a block of it, with 32-bit pointers."""

_NAME_LENGTH = 63
_CORE_LIBRARIES = {"eeprom", "ethernet", "sd", "servo", "spi", "stepper", "wifi", "wire"}
"""In lower case."""

_BOARD_FILES = ("sd_card.c", "sd_card.h", "store_block.c", "store_block.h")
_ARCHITECTURES = (
    *("samd", "sam", "nrf52", "mbed", "mbed_nano", "mbed_rp2040", "mbed_portenta", "mbed_giga"),
    *("mbed_nicla", "mbed_opta", "rp2040", "esp32", "esp8266", "stm32", "teensy", "renesas_uno"),
    *("renesas_portenta", "zephyr"),
)
"""The architectures with 32 bits."""

_DESCRIPTIONS = ("library.properties", "library.json", "keywords.txt", "README.md", "LICENSE.txt")
_EXAMPLE = "examples/train_over_serial"


def check_name(name: str) -> None:
    """The rules of the specification that C identifiers may break."""
    if len(name) > _NAME_LENGTH or name.lower().startswith("arduino"):
        raise InputError(
            f"{name!r} cannot be the name of an Arduino library: it must not begin with 'arduino', "
            f"nor be longer than {_NAME_LENGTH} letters"
        )
    if name.lower() in _CORE_LIBRARIES:
        raise InputError(
            f"{name!r} cannot be the name of an Arduino library: {name}.h would take the place of "
            "the header of one that comes with Arduino"
        )


def arrange(library: Library) -> dict[str, str]:
    """`library.properties` and other descriptions, `src/` and `examples/`."""
    core = library.model_files() | library.runtime_files()
    header = library.files[f"{library.name}.h"]
    values = {
        "name": library.name,
        "version": __version__,
        "ram_bytes": library.ram_bytes,
        "storage_bytes": library.storage_bytes,
        "architectures": _ARCHITECTURES,
        "instances": f"{library.macro}_CALLER_ARENA" in header,
        "functions": sorted({*re.findall(rf"\b({library.name}_\w+)\(", header)}),
        "constants": sorted({*re.findall(rf"^#define ({library.macro}_\w+) ", header, re.M)}),
    }
    return {
        **{f"src/{file}": text for file, text in core.items()},
        **{f"src/{file}": library.source(f"../boards/common/{file}") for file in _BOARD_FILES},
        **library.described_files(),
        f"{_EXAMPLE}/train_over_serial.ino": library.source("arduino/train_over_serial.ino"),
        f"{_EXAMPLE}/serial_steps.h": library.source("common/serial_steps.h"),
        f"{_EXAMPLE}/serial_steps.c": library.source("common/serial_steps.c"),
        **{file: render(f"arduino/{file}", **values) for file in _DESCRIPTIONS},
    }
