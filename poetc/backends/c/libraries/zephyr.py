"""A Zephyr module with a page store on disks, and a sample that trains over the serial line."""

from __future__ import annotations

from poetc.backends.c.libraries.library import (
    MARK,
    OPTIONS,
    Library,
    include_and_src,
    sources,
    wrapped_list,
)

STATIC_BYTES = 536
"""What a page store on a disk keeps: a sector and where it is from, with 32-bit pointers."""

_SAMPLE = "samples/train_over_serial"
_STACK_ABOVE_BYTES = 1024
"""In the sample, for what calls a step, and what interrupts it."""


def check_name(name: str) -> None:
    """Any name will do."""
    del name


def arrange(library: Library) -> dict[str, str]:
    """`zephyr/module.yml`, `CMakeLists.txt`, `Kconfig`, `include/`, `src/` and `samples/`."""
    name, config = library.name, f"POETC_{library.macro}"
    core = include_and_src(library.core_files())
    disk = include_and_src(
        {
            **{f: library.source(f"zephyr/{f}") for f in ("store_disk.c", "store_disk.h")},
            **{
                f: library.source(f"../boards/common/{f}")
                for f in ("store_block.c", "store_block.h")
            },
        }
    )
    module = f"""\
# {MARK} The training step of {name} as a Zephyr module.
name: {name}
build:
  cmake: .
  kconfig: Kconfig
"""
    cmake = f"""\
# {MARK} For a Zephyr application, before find_package(Zephyr):
#
#     list(APPEND ZEPHYR_EXTRA_MODULES DIRECTORY)       and in prj.conf       CONFIG_{config}=y
if(CONFIG_{config})
    zephyr_include_directories(include)
    zephyr_library_named(poetc_{name})
    zephyr_library_sources(
{wrapped_list([f"    {file}" for file in sources(core)])}
    )
    zephyr_library_sources_ifdef(CONFIG_{config}_DISK {" ".join(sources(disk))})
    # Expressions that are changed, and multiplications and additions that are fused, give other
    # bits. Bytes of the arena hold floats and integers by turns, which link-time optimisation must
    # know.
    zephyr_library_compile_options({" ".join(OPTIONS)})
endif()
"""
    kconfig = f"""\
# {MARK} Options of the training step of {name}.
config {config}
\tbool "Training step of {name}"
\thelp
\t  One step of training of a neural network, with all of its data in
\t  {library.ram_bytes} bytes of RAM. Call {name}_step ({name}.h).

if {config}

config {config}_DISK
\tbool "Page store on a disk"
\tdepends on DISK_ACCESS
\tdefault y
\thelp
\t  Keep what a step moves out of RAM on a disk, such as a memory card,
\t  from its sector 0 on (store_disk.h). Everything on it is lost.

config {config}_DISK_NAME
\tstring "Name of the disk"
\tdepends on {config}_DISK
\tdefault "SD"

endif
"""
    sample = f"""\
# {MARK} Trains {name} over the serial line.
cmake_minimum_required(VERSION 3.20.0)

# This module; one above the other in the source tree.
list(APPEND ZEPHYR_EXTRA_MODULES ${{CMAKE_CURRENT_SOURCE_DIR}}/../..)
find_package(Zephyr REQUIRED HINTS $ENV{{ZEPHYR_BASE}})
project({name}_train_over_serial LANGUAGES C)

target_sources(app PRIVATE src/main.c src/serial_steps.c)
"""
    settings = f"""\
# {MARK} Settings of the sample.
CONFIG_{config}=y
CONFIG_SERIAL=y
CONFIG_UART_CONSOLE=y
CONFIG_BOOT_BANNER=n
CONFIG_MAIN_STACK_SIZE={library.stack_bytes + _STACK_ABOVE_BYTES}
"""
    if library.storage_bytes:
        settings += "CONFIG_DISK_ACCESS=y\n"
    return {
        **core,
        **disk,
        **library.described_files(),
        "zephyr/module.yml": module,
        "CMakeLists.txt": cmake,
        "Kconfig": kconfig,
        f"{_SAMPLE}/CMakeLists.txt": sample,
        f"{_SAMPLE}/prj.conf": settings,
        f"{_SAMPLE}/src/main.c": library.source("zephyr/main.c"),
        f"{_SAMPLE}/src/serial_steps.h": library.source("common/serial_steps.h"),
        f"{_SAMPLE}/src/serial_steps.c": library.source("common/serial_steps.c"),
    }
