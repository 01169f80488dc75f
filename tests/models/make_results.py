"""Remakes the expected results in `*.npz` from their arguments, with XLA on the CPU.

    pip install 'poetc[jax]'
    python tests/models/make_results.py [--folder tests/cases] [NAME ...]

The `.mlir` files are training steps written in JAX, lowered by
`jax.jit(step, donate_argnums=0).lower(...).as_text()` with JAX 0.10.2. Each `.npz` holds the
arguments of one step (`arg0`, ...; parameters as initialised, a batch of random data) and what XLA
returns for them (`out0`, ...). With `--check` nothing is written and differences are printed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

MODELS = Path(__file__).parent


def xla_program(
    text: str, optimised: bool = True
) -> Callable[[list[np.ndarray]], Callable[[], list]]:
    """StableHLO text compiled with XLA for the CPU: binds arguments, then does a step and gives its
    results, which are JAX's arrays. Arguments are kept. If not `optimised`, it is compiled sooner.
    """
    import jax  # pyright: ignore[reportMissingImports]
    from jax._src.interpreters import mlir as jax_mlir  # pyright: ignore[reportMissingImports]
    from jax._src.lib import xla_client  # pyright: ignore
    from jax._src.lib.mlir import ir  # pyright: ignore

    text = re.sub(r" \{tf\.aliasing_output = \d+ : i32\}", "", text)
    client = jax.devices("cpu")[0].client
    with jax_mlir.make_ir_context():
        module = ir.Module.parse(text)
        devices = xla_client.DeviceList(tuple(jax.devices("cpu")[:1]))
        options = xla_client.CompileOptions()
        if not optimised:
            debug = options.executable_build_options.debug_options
            debug.xla_backend_optimization_level = 0
            debug.xla_llvm_disable_expensive_passes = True
        program = client.compile_and_load(module, devices, options)

    def bind(arguments: list[np.ndarray]) -> Callable[[], list]:
        with jax.enable_x64(True):
            buffers = [jax.device_put(array) for array in arguments]

        def step() -> list:
            results = program.execute_sharded(buffers).disassemble_into_single_device_arrays()
            return [shards[0].block_until_ready() for shards in results]

        return step

    return bind


def xla_results(text: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The results of one step with XLA on the CPU, compiled as soon as it can."""
    return [np.asarray(result) for result in xla_program(text, optimised=False)(arguments)()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--folder", type=Path, default=MODELS)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    names = options.names or sorted(p.stem for p in options.folder.glob("*.npz"))
    for name in names:
        path = options.folder / f"{name}.npz"
        with np.load(path) as old:
            arrays = {k: old[k] for k in old}
        count = sum(k.startswith("arg") for k in arrays)
        arguments = [arrays[f"arg{i}"] for i in range(count)]
        program = xla_program((options.folder / f"{name}.mlir").read_text())
        results = [np.asarray(result) for result in program(arguments)()]
        for i, result in enumerate(results):
            if options.check:
                expected = arrays[f"out{i}"]
                scale = max(float(np.max(np.abs(expected))), 1e-12)
                worst = float(np.max(np.abs(result.astype(float) - expected)))
                print(f"{name} out{i}: {worst / scale:.1e}")
            arrays[f"out{i}"] = result
        if not options.check:
            np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main()
