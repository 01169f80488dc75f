"""A CMake project whose target is the library; the example is built if asked for.

The runtime is a project of its own in runtime/, and a target that several models share.
"""

from __future__ import annotations

from poetc import __version__
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
    """`CMakeLists.txt`, `include/`, `src/`, `runtime/`, and the example in `example/`."""
    model, core = include_and_src(library.model_files()), include_and_src(library.runtime_files())
    file, thread = (include_and_src(library.unit(u)) for u in ("store_file", "store_thread"))
    text = render(
        "cmake/CMakeLists.txt",
        name=library.name,
        macro=library.macro,
        runtime_id=library.runtime_id,
        sources=sources(model),
        runtime=[f"runtime/{file}" for file in sources(core)],
        step=library.step,
    )
    runtime = render(
        "cmake/runtime_CMakeLists.txt",
        runtime_id=library.runtime_id,
        version=__version__,
        sources=sources(core),
        file_store=sources(file),
        thread_store=sources(thread),
    )
    compares = {} if library.step is None else library.step.sources
    return {
        **model,
        **{f"runtime/{name}": text for name, text in {**core, **file, **thread}.items()},
        **library.described_files(),
        "example/main.c": library.files["main.c"],
        **{f"example/{file}": text for file, text in compares.items()},
        "runtime/CMakeLists.txt": runtime,
        "idf_component.yml": render(
            "cmake/idf_component.yml", version=__version__, ram_bytes=library.ram_bytes
        ),
        "CMakeLists.txt": text,
    }
