"""The directory as it comes, with a Makefile that builds the example for a host."""

from __future__ import annotations

from poetc.backends.c.libraries.library import MARK, OPTIONS, Library, headers, sources
from poetc.backends.c.libraries.step import StepFiles


def check_name(name: str) -> None:
    """Any name will do."""
    del name


def arrange(library: Library) -> dict[str, str]:
    """All files side by side, and `Makefile`."""
    name = library.name
    thread = sources(library.unit("store_thread"))
    assembly = [file for file in library.files if file.endswith(".s")]
    objects = " ".join(["$(SOURCES:.c=.o)", *(f"{file[:-2]}.o" for file in assembly)])
    assemble = "%.o: %.s\n\t$(CC) $(CFLAGS) -c -o $@ $<\n\n" if assembly else ""
    others = [file for file in sources(library.files) if file not in thread]
    run, more = "", {}
    if library.step is not None:
        run, more = _run_rule(library, library.step), library.step.sources
    programs = " ".join(f"{name}_{suffix}" for suffix in ("example", "threads", "compare"))
    makefile = f"""\
# {MARK} Builds the example; CC and CFLAGS may be given.
CC ?= cc
CFLAGS ?= -O2

# Expressions that are changed, and multiplications and additions that are fused, give other bits.
# Bytes of the arena hold floats and integers by turns, which link-time optimisation must know.
REQUIRED = -std=c99 {" ".join(OPTIONS)}
WARNINGS = -Wall -Wextra -Wconversion

SOURCES = {" ".join(others)}
THREAD_SOURCES = {" ".join(thread)}
HEADERS = {" ".join(headers(library.files))}

OBJECTS = {objects}

{name}_example: $(OBJECTS)
\t$(CC) $(CFLAGS) $(REQUIRED) $(LDFLAGS) -o $@ $(OBJECTS)

# The same with POSIX threads: one of its own moves the pages, as a DMA controller would.
THREAD_OBJECTS = main_threads.o $(THREAD_SOURCES:.c=.o) $(filter-out main.o,$(OBJECTS))

{name}_threads: $(THREAD_OBJECTS)
\t$(CC) $(CFLAGS) $(REQUIRED) $(LDFLAGS) -pthread -o $@ $(THREAD_OBJECTS)

main_threads.o: main.c $(HEADERS)
\t$(CC) $(CFLAGS) $(REQUIRED) $(WARNINGS) -DPOETC_STORE_THREAD -c -o $@ main.c

%.o: %.c $(HEADERS)
\t$(CC) $(CFLAGS) $(REQUIRED) $(WARNINGS) -c -o $@ $<

{assemble}{run}clean:
\trm -f $(OBJECTS) $(THREAD_OBJECTS) {programs}

.PHONY: {"run " if run else ""}clean
"""
    return {**library.files, **more, "Makefile": makefile}


def _run_rule(library: Library, step: StepFiles) -> str:
    """Runs a step on the data that come with the program."""
    name = library.name
    compiled = step.make_rule(name, "$(CC) $(CFLAGS) $(REQUIRED) $(WARNINGS) $(LDFLAGS)")
    store = " $(DATA)/storage.bin" if step.stored else ""
    compare = f" {name}_compare" if step.sources else ""
    return f"""\
# Data are in files of the directory DATA: argN.bin, outN.bin.
DATA ?= data
STEPS ?= 1
{compiled}
run: {name}_example{compare}
{step.make_copy()}\t./{name}_example $(DATA) $(STEPS){store}
{step.make_compare(name)}
"""
