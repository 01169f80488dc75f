"""Small steps that people write, each with something special, against XLA's results.

`cases/*.mlir` are JAX's lowering of such steps, or written by hand; `tests/models/make_results.py
--folder tests/cases` makes the results in `*.npz` from the arguments there. Those without `.npz`
are compared with the interpreter.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiled import SANITIZE, bring, build, run
from conftest import load_arrays

from poetc.compare import ROUNDING, rounding_of
from poetc.interpreter import run_func, run_graph
from poetc.ir.dense import dtype_of
from poetc.ir.stablehlo import element_type_of, shape_of
from poetc.ir.text import parse_module
from poetc.ir.types import is_float

CASES = Path(__file__).parent / "cases"
FLOOR = 1e-6
"""What a value that is zero on paper may be."""


def numbers_for(types: list) -> list[np.ndarray]:
    """Arguments for a case without any."""
    rng = np.random.default_rng(0)
    return [rng.integers(-5, 5, shape_of(t)).astype(dtype_of(element_type_of(t))) for t in types]


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(CASES.glob("*.mlir")), ids=lambda path: path.stem)
def test_case(path: Path, tmp_path: Path):
    module = parse_module(path.read_text(), path.name)
    main = next(op for op in module.ops if op.sym_name.data == "main")  # pyright: ignore
    if path.with_suffix(".npz").exists():
        arguments, expected = load_arrays(path.with_suffix(".npz"))
    else:
        arguments = numbers_for(main.function_type.inputs.data)  # pyright: ignore
        expected = run_func(module, arguments)
    rounding = rounding_of(module)
    assert_close(run_func(module, arguments), expected, rounding)
    model = bring(path.stem, module, arguments, expected)
    unlimited = run_graph(model.module.clone(), arguments).results
    assert_close(unlimited, expected, rounding)
    least, _ = model.schedule(max(model.least_ram_bytes(), 4))
    program = build(least, tmp_path / "least", *SANITIZE)
    found = run(program, arguments, expected)
    for a, b in zip(found, unlimited, strict=True):
        assert a.tobytes() == b.tobytes()


def assert_close(
    found: list[np.ndarray], expected: list[np.ndarray], rounding: float = ROUNDING
) -> None:
    """Within a few roundings, or for those of 16 bits one, relative to the largest element of each
    tensor."""
    for a, b in zip(found, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        if is_float(b.dtype):
            a, b = (x.astype(np.float32) for x in (a, b))
            scale = float(np.max(np.abs(b), initial=0, where=np.isfinite(b)))
            atol = (1e-5 if rounding == ROUNDING else rounding) * scale
            np.testing.assert_allclose(a, b, rtol=0, atol=max(atol, FLOOR))
        else:
            np.testing.assert_array_equal(a, b)
