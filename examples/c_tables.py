"""The arguments of a step as tables in C, for a program that has no files: parameters to begin
with, and inputs to try it on.

    python examples/c_tables.py MODEL.npz -o tables.h

`tables[i]` are the bytes of argument `i` (`arg0`, ... in the file), row-major and little-endian.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np


def table(name: str, data: bytes) -> str:
    """A constant array of bytes."""
    values = [f"{byte}," for byte in data]
    lines = ["".join(values[i : i + 24]) for i in range(0, len(values), 24)]
    return f"static const uint8_t {name}[] = {{\n" + "\n".join(lines) + "\n};\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arrays", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    with np.load(options.arrays) as arrays:
        names = [f"arg{i}" for i in range(sum(name.startswith("arg") for name in arrays))]
        tables = [table(f"table_{name}", arrays[name].tobytes()) for name in names]
    entries = ", ".join(f"table_{name}" for name in names)
    pointers = f"static const uint8_t *const tables[] = {{{entries}}};\n"
    options.output.write_text("#include <stdint.h>\n\n" + "\n".join([*tables, pointers]))


if __name__ == "__main__":
    main()
