"""Feed a generated C program from an .npz file and compare its results with those in the file.

    python examples/run_c.py OUT_DIRECTORY ARRAYS.npz [--steps N]

The file holds the arguments (`arg0`, ...) and the expected results of one step (`out0`, ...).
Parameters on storage are packed into an image first, and their new values unpacked from it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

import numpy as np


def poetc(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "poetc.cli", *map(str, arguments), "-q"], check=True)


def new_values(directory: Path, image: Path) -> dict[str, np.ndarray]:
    """The results that are new values of parameters on storage."""
    poetc("unpack", directory, image, "-o", directory / "trained.npz")
    trained = np.load(directory / "trained.npz")
    header = (directory / "model.h").read_text()
    updates = re.findall(r"Result (\d+): [^*]*?new value of argument (\d+), on storage", header)
    return {f"out{result}": trained[f"arg{argument}"] for result, argument in updates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("arrays", type=Path)
    parser.add_argument("--steps", type=int, default=1)
    options = parser.parse_args()

    arrays = np.load(options.arrays)
    data = options.directory / "data"
    data.mkdir(exist_ok=True)
    for name in arrays:
        if name.startswith("arg"):
            np.ascontiguousarray(arrays[name]).tofile(data / f"{name}.bin")
    program: list[str | Path] = [options.directory / "model_example", data, str(options.steps)]
    image, stored = data / "image.bin", (options.directory / "model_image.json").exists()
    if stored:
        poetc("pack", options.directory, options.arrays, "-o", image)
        program.append(image)
    status = subprocess.run(program, check=False).returncode
    if status != 0:
        sys.exit(status)  # It has said why.
    updated = new_values(options.directory, image) if stored else {}

    results = sorted((n for n in arrays if n.startswith("out")), key=lambda n: int(n[3:]))
    for name in results:
        expected = arrays[name]
        got = updated.get(name)
        if got is None:
            got = np.fromfile(data / f"{name}.bin", expected.dtype).reshape(expected.shape)
        if options.steps == 1:
            scale = max(float(np.max(np.abs(expected), initial=0.0)), 1e-30)
            error = float(np.max(np.abs(got - expected), initial=0.0)) / scale
            print(f"{name}: {expected.shape!s:<10} relative difference {error:.1e}")
        elif expected.size == 1:
            print(
                f"{name}: {float(got):.6f} after {options.steps} steps, {float(expected):.6f} first"
            )


if __name__ == "__main__":
    main()
