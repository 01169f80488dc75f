"""A CMake project whose target is the library; the example is built if asked for."""

from __future__ import annotations

from poetc.backends.c.libraries.library import Library, include_and_src, sources
from poetc.backends.c.libraries.templates import render
from poetc.errors import InputError

_RESERVED = {"all", "clean", "edit_cache", "help", "install", "package", "rebuild_cache", "test"}
"""Targets that CMake has by itself."""


def check_name(name: str) -> None:
    """Raises InputError for the name of a target that exists already."""
    if name in _RESERVED:
        raise InputError(f"{name!r} cannot be the name of a CMake target: CMake has one of its own")


def arrange(library: Library) -> dict[str, str]:
    """`CMakeLists.txt`, `include/`, `src/`, and the example in `example/`."""
    core = include_and_src(library.core_files())
    file, thread = (include_and_src(library.unit(u)) for u in ("store_file", "store_thread"))
    text = render(
        "cmake/CMakeLists.txt",
        name=library.name,
        macro=library.macro,
        sources=sources(core),
        file_store=sources(file),
        thread_store=sources(thread),
        step=library.step,
    )
    compares = {} if library.step is None else library.step.sources
    return {
        **core,
        **file,
        **thread,
        **library.described_files(),
        "example/main.c": library.files["main.c"],
        **{f"example/{file}": text for file, text in compares.items()},
        "CMakeLists.txt": text,
    }
