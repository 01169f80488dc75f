"""The directory as it comes, with a Makefile that builds the example for a host."""

from __future__ import annotations

from poetc.backends.c.libraries.library import Library, headers, sources
from poetc.backends.c.libraries.templates import render


def arrange(library: Library) -> dict[str, str]:
    """All files side by side, and `Makefile`."""
    files = {**library.files, **library.runtime}
    thread = sources(library.unit("store_thread"))
    assembly = [file for file in files if file.endswith(".s")]
    makefile = render(
        "make/Makefile",
        name=library.name,
        sources=[file for file in sources(files) if file not in thread],
        thread_sources=thread,
        headers=headers(files),
        assembled=[f"{file[:-2]}.o" for file in assembly],
        step=library.step,
    )
    run = {} if library.step is None else library.step.sources
    return {**files, **run, "Makefile": makefile}
