"""Feed a generated C program from an .npz file and compare its results with those in the file.

    python examples/run_c.py OUT_DIRECTORY ARRAYS.npz [--steps N]

The file holds the arguments (`arg0`, ...) and the expected results of one step (`out0`, ...).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np


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
    program = options.directory / "model_example"
    status = subprocess.run([program, data, str(options.steps)], check=False).returncode
    if status != 0:
        # It has said why. With parameters on storage it needs that: see examples/storage.py.
        sys.exit(status)

    results = sorted((n for n in arrays if n.startswith("out")), key=lambda n: int(n[3:]))
    for name in results:
        expected = arrays[name]
        got = np.fromfile(data / f"{name}.bin", expected.dtype).reshape(expected.shape)
        if options.steps == 1:
            scale = max(float(np.max(np.abs(expected))), 1e-30)
            error = float(np.max(np.abs(got - expected))) / scale
            print(f"{name}: {expected.shape!s:<10} relative difference {error:.1e}")
        elif expected.size == 1:
            print(
                f"{name}: {float(got):.6f} after {options.steps} steps, {float(expected):.6f} first"
            )


if __name__ == "__main__":
    main()
