"""The directory as it comes, with a Makefile that builds the example for a host."""

from __future__ import annotations

from poetc.backends.c.libraries.library import MARK, OPTIONS, Library, headers, sources


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

{assemble}clean:
\trm -f $(OBJECTS) $(THREAD_OBJECTS) {name}_example {name}_threads

.PHONY: clean
"""
    return {**library.files, "Makefile": makefile}
