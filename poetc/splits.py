"""The parameters to split, with their numbers of shards, as `--split` says it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from poetc.errors import InputError


@dataclass(frozen=True)
class Split:
    """A request to split `parameter`, an index or a name, into `shards`, at least 2. `axis` None is
    that of `best_axis`."""

    parameter: int | str
    shards: int
    axis: int | None = None

    def __str__(self) -> str:
        axis = "" if self.axis is None else f"@{self.axis}"
        return f"{self.parameter}{axis}:{self.shards}"


def splits_text(splits: Iterable[Split]) -> str:
    """The text that `parse_splits` reads."""
    return ",".join(map(str, splits))


def parse_splits(text: str) -> tuple[Split, ...]:
    """The splits that `NAME:K,NAME@AXIS:K,...` asks for."""
    return tuple(_parse_split(word) for word in text.split(","))


def _parse_split(word: str) -> Split:
    found = re.fullmatch(r"(.+?)(?:@(\d+))?:(\d+)", word.strip(), re.ASCII)
    if found is None or int(found[3]) < 2:
        raise InputError(
            f"--split: {word!r} is no split: NAME:SHARDS or NAME@AXIS:SHARDS, with 2 or more shards"
        )
    number = re.fullmatch(r"(?:arg)?(\d+)", found[1], re.ASCII)
    parameter = found[1] if number is None else int(number[1])
    return Split(parameter, int(found[3]), None if found[2] is None else int(found[2]))
