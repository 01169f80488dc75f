"""Train with the parameters on storage: compile, pack, run, unpack.

    python examples/storage.py DIRECTORY [--steps N]

The model is `gesture_mlp` in 8 KB of RAM, of which its parameters alone would take 7. They live in
a file, as on a memory card. Each step is a run of its own, as if the power went after each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np

from poetc import cli

HERE = Path(__file__).parent


def poetc(*arguments: str | Path) -> None:
    if status := cli.main([*map(str, arguments)]):
        sys.exit(status)  # It has said why.


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    out, data = options.directory / "out", options.directory / "data"
    image, trained = options.directory / "image.bin", options.directory / "trained.npz"
    data.mkdir(parents=True, exist_ok=True)

    model, arrays = HERE / "gesture_mlp.mlir", HERE / "gesture_mlp.npz"
    poetc(model, "--ram=8KB", "--params=storage", "--emit=c", "-q", "-o", out)
    subprocess.run(["make", "-s", "-C", out], check=True)
    poetc("pack", out, arrays, "-o", image)

    given = np.load(arrays)
    for name in ("arg6", "arg7"):  # the batch; arguments 0 to 5 are the parameters
        given[name].tofile(data / f"{name}.bin")
    program = [out / "model_example", data, "1", image]
    for step in range(1, options.steps + 1):
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
        if step in (1, options.steps):
            loss = np.fromfile(data / "out0.bin", np.float32)[0]
            print(f"step {step}: loss {loss:.6f}", flush=True)

    poetc("unpack", out, image, "-o", trained)
    for name, values in np.load(trained).items():
        change = np.max(np.abs(values - given[name]))
        print(f"{name}: {values.shape!s:<10} changed by up to {change:.4f}")


if __name__ == "__main__":
    main()
