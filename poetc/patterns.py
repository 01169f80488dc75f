"""Names of arguments, and patterns that stand for several."""

from __future__ import annotations

import re
from collections.abc import Sequence


def chosen(names: Sequence[str], pattern: str) -> list[int]:
    """The numbers of the names that `pattern` stands for: a name, the names in a tree
    (`params.encoder` for `params.encoder.w`, `[0]['encoder']` for `[0]['encoder']['w']`), or with
    `*` (anything) and `?` (one character)."""
    wanted = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    expression = re.compile(rf"{wanted}([.\[].*)?", re.DOTALL)
    return [i for i, name in enumerate(names) if expression.fullmatch(name)]
