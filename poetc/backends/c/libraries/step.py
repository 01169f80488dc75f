"""The files of a program for one run on known data.

    data/argN.bin                    the arguments that are not on storage
    data/image.bin                   the storage image, if parameters are on storage
    data/expected.bin                the results that are expected
    compare.c, compare_pieces.h      compares those with what the program gave

A run works on a copy of the image, data/storage.bin, so that each does the same step.
"""

from __future__ import annotations

from dataclasses import dataclass

DIRECTORY = "data"
IMAGE, STORAGE = "image.bin", "storage.bin"
COMPARE = "compare.c"


@dataclass(frozen=True)
class StepFiles:
    """`data` are files in the directory of the program, `sources` those of what compares results,
    if any are known. `stored`: there is an image. A result may differ by `tolerance`, relative to
    its largest element."""

    data: dict[str, bytes]
    sources: dict[str, str]
    stored: bool
    tolerance: float
