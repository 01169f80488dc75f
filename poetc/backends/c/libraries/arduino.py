"""An Arduino library (library specification 2.2); its example trains over the serial line."""

from __future__ import annotations

from poetc import __version__
from poetc.backends.c.libraries.library import Library
from poetc.backends.c.libraries.templates import render
from poetc.errors import InputError

STATIC_BYTES = 540
"""What the example's page store keeps: a card and a block of it, with 32-bit pointers."""

_NAME_LENGTH = 63
_CORE_LIBRARIES = {"eeprom", "ethernet", "sd", "servo", "spi", "stepper", "wifi", "wire"}
"""In lower case."""

_BOARD_FILES = ("sd_card.c", "sd_card.h", "store_block.c", "store_block.h")
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
    """`library.properties`, `src/` and `examples/`."""
    core = library.model_files() | library.runtime_files()
    properties = render(
        "arduino/library.properties",
        name=library.name,
        version=__version__,
        ram_bytes=library.ram_bytes,
        storage_bytes=library.storage_bytes,
    )
    return {
        **{f"src/{file}": text for file, text in core.items()},
        **{f"src/{file}": library.source(f"../boards/common/{file}") for file in _BOARD_FILES},
        **library.described_files(),
        f"{_EXAMPLE}/train_over_serial.ino": library.source("arduino/train_over_serial.ino"),
        f"{_EXAMPLE}/serial_steps.h": library.source("common/serial_steps.h"),
        f"{_EXAMPLE}/serial_steps.c": library.source("common/serial_steps.c"),
        "library.properties": properties,
    }
