"""A Zephyr module with a page store on disks, and a sample that trains over the serial line."""

from __future__ import annotations

from poetc.backends.c.libraries.library import Library, include_and_src, sources
from poetc.backends.c.libraries.templates import render

STATIC_BYTES = 536
"""Bytes of RAM of a page store on a disk: a sector and its number, with 32-bit pointers."""

_SAMPLE = "samples/train_over_serial"
_STACK_ABOVE_BYTES = 1024
"""In the sample, for what calls a step, and what interrupts it."""


def arrange(library: Library) -> dict[str, str]:
    """`zephyr/module.yml`, `CMakeLists.txt`, `Kconfig`, C in `include/`, `src/` and `runtime/`, and
    `samples/`."""
    model, core = include_and_src(library.model_files()), include_and_src(library.runtime_files())
    disk = include_and_src(
        {
            **{f: library.source(f"zephyr/{f}") for f in ("store_disk.c", "store_disk.h")},
            **{
                f: library.source(f"../boards/common/{f}")
                for f in ("store_block.c", "store_block.h")
            },
        }
    )
    values = {
        "name": library.name,
        "config": f"POETC_{library.macro}",
        "sources": sources(model),
        "runtime": [f"runtime/{file}" for file in sources(core)],
        "disk": [f"runtime/{file}" for file in sources(disk)],
        "runtime_id": library.runtime_id,
        "ram_bytes": library.ram_bytes,
        "stack_bytes": library.stack_bytes + _STACK_ABOVE_BYTES,
        "storage_bytes": library.storage_bytes,
    }
    return {
        **model,
        **{f"runtime/{file}": text for file, text in {**core, **disk}.items()},
        **library.described_files(),
        "zephyr/module.yml": render("zephyr/module.yml", **values),
        "CMakeLists.txt": render("zephyr/CMakeLists.txt", **values),
        "Kconfig": render("zephyr/Kconfig", **values),
        f"{_SAMPLE}/CMakeLists.txt": render("zephyr/sample_CMakeLists.txt", **values),
        f"{_SAMPLE}/sample.yaml": render("zephyr/sample.yaml", **values),
        f"{_SAMPLE}/prj.conf": render("zephyr/prj.conf", **values),
        f"{_SAMPLE}/src/main.c": library.source("zephyr/main.c"),
        f"{_SAMPLE}/src/serial_steps.h": library.source("common/serial_steps.h"),
        f"{_SAMPLE}/src/serial_steps.c": library.source("common/serial_steps.c"),
    }
