"""What a program comes with for one run on known data.

    data/argN.bin                    the arguments that are not on storage
    data/image.bin                   the storage image, if parameters are on storage
    data/expected.bin                the results that are expected
    compare.c, compare_pieces.h      compares those with what the program gave

A run works on a copy of the image, data/storage.bin, so that each does the same step.
"""

from __future__ import annotations

from dataclasses import dataclass

from poetc.compare import TOLERANCE

DIRECTORY = "data"
IMAGE, STORAGE = "image.bin", "storage.bin"
COMPARE = "compare.c"


@dataclass(frozen=True)
class StepFiles:
    """`data` are files in the directory of the program, `sources` those of what compares results,
    if any are known. `stored`: there is an image."""

    data: dict[str, bytes]
    sources: dict[str, str]
    stored: bool

    def make_rule(self, name: str, compiler: str) -> str:
        """For a Makefile: how what compares is built; `compiler` is the command."""
        if not self.sources:
            return ""
        return f"""
# TOLERANCE is what results may differ by, relative to the largest element that is expected.
TOLERANCE ?= {TOLERANCE:g}

{name}_compare: {" ".join(sorted(self.sources))} Makefile
\t{compiler} -o $@ {COMPARE}
"""

    def make_copy(self) -> str:
        """For a recipe: each run begins with the same image."""
        return f"\tcp $(DATA)/{IMAGE} $(DATA)/{STORAGE}\n" if self.stored else ""

    def make_compare(self, name: str) -> str:
        """For a recipe: what is done after a run."""
        if not self.sources:
            return ""
        note = "@echo 'not compared: the results that are expected are those of one step'"
        run = f"./{name}_compare $(DATA) $(TOLERANCE)"
        return f"\t$(if $(filter 1,$(STEPS)),{run},{note})\n"
