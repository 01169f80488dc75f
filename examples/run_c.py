"""Feed a generated C program from an .npz file and compare its results with those in the file.

    python examples/run_c.py OUT_DIRECTORY ARRAYS.npz [--steps N]

The file holds the arguments (`arg0`, ...) and the expected results of one step (`out0`, ...).
Parameters on storage are packed into an image first, and their new values unpacked from it. Which
those are, and all types and shapes, is in model_tensors.json.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from poetc import cli
from poetc.compare import difference, floor
from poetc.errors import InputError
from poetc.tensors import read_tensors


def poetc(*arguments: str | Path) -> None:
    if status := cli.main([*map(str, arguments), "-q"]):
        sys.exit(status)  # It has said why.


def held(array: np.ndarray, name: str) -> np.ndarray:
    """As the program has it: with --pages=f16, weights of f32 in the file have 16 bits there."""
    dtype = np.dtype(name)
    if array.dtype.itemsize == dtype.itemsize:  # NumPy does not know the type of bf16 again.
        return np.asarray(array, order="C").view(dtype)
    return array.astype(dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("arrays", type=Path)
    parser.add_argument("--steps", type=int, default=1)
    options = parser.parse_args()

    try:
        model = read_tensors(options.directory)
    except InputError as error:
        sys.exit(f"run_c.py: error: {error}")
    arrays = np.load(options.arrays)
    data = options.directory / "data"
    data.mkdir(exist_ok=True)
    for i, place in enumerate(model.arguments):
        if place.where != "storage":
            held(arrays[f"arg{i}"], place.dtype).tofile(data / f"arg{i}.bin")
    example = options.directory / f"{model.name}_example"
    program: list[str | Path] = [example, data, str(options.steps)]
    image, trained = data / "storage.bin", options.directory / "trained.npz"
    if model.image is not None:
        poetc("pack", options.directory, options.arrays, "-o", image)
        program.append(image)
    status = subprocess.run(program, check=False).returncode
    if status != 0:
        sys.exit(status)  # It has said why.
    if model.image is not None:
        poetc("unpack", options.directory, image, "-o", trained)
    stored = np.load(trained) if model.image is not None else {}

    results = {i: p for i, p in enumerate(model.results) if f"out{i}" in arrays}
    at_least = floor(held(arrays[f"out{i}"], place.dtype) for i, place in results.items())
    for i, place in results.items():
        name = f"out{i}"
        expected = held(arrays[name], place.dtype)
        if place.where == "storage":
            got = held(stored[f"arg{place.updates}"], place.dtype)
        elif place.where == "frozen":  # the argument, which no step changes
            got = held(arrays[f"arg{place.updates}"], place.dtype)
        else:
            got = np.fromfile(data / f"{name}.bin", place.dtype).reshape(place.shape)
        if options.steps == 1:
            error = difference(got, expected, at_least)
            print(f"{name}: {expected.shape!s:<10} relative difference {error:.1e}")
        elif expected.size == 1:
            first = expected.item()
            print(f"{name}: {got.item():.6f} after {options.steps} steps, {first:.6f} first")


if __name__ == "__main__":
    main()
