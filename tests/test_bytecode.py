"""Files of MLIR bytecode: what is read from them is what jaxlib reads."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from conftest import more
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_harness import same_bits
from xdsl.dialects.builtin import ModuleOp

from poetc.errors import InputError
from poetc.interpreter import run_func
from poetc.ir.text import parse_module, read_module
from poetc.ir.vhlo import text_of

CASES = Path(__file__).parent / "cases"
MODELS = Path(__file__).parent / "models"
EXPORTED = (CASES / "exported_step.mlirbc").read_bytes()
"""What jax.export gives for a step with convolution, pooling, gather, loop, sorting and acosh."""


@pytest.fixture(scope="module")
def mlir():
    """The modules of JAX that know MLIR."""
    pytest.importorskip("jax", reason="JAX is optional: pip install 'poetc[jax]'")
    from jax._src.interpreters import mlir  # pyright: ignore[reportMissingImports]
    from jax._src.lib import _jax  # pyright: ignore
    from jax._src.lib.mlir import ir  # pyright: ignore

    class Mlir:
        def artifact(self, text: str, version: str) -> bytes:
            """A portable artifact."""
            with mlir.make_ir_context():
                return _jax.mlir.serialize_portable_artifact(ir.Module.parse(text), version, True)

        def text(self, artifact: bytes) -> str:
            """What is in it."""
            with mlir.make_ir_context():
                return str(_jax.mlir.deserialize_portable_artifact(artifact))

        def bytecode(self, text: str) -> bytes:
            """The operations of StableHLO themselves."""
            with mlir.make_ir_context():
                file = BytesIO()
                ir.Module.parse(text).operation.write_bytecode(file)
                return file.getvalue()

    return Mlir()


def normal(module: ModuleOp) -> ModuleOp:
    """Without properties that may be left out, and without attributes of the module."""
    default = re.compile(
        r"false|array<i(64: 1(, 1)*|1: false(, false)*)>|dense<0> : tensor<\dx2xi64>"
        r"|\[(#stablehlo<precision DEFAULT>(, )?)*\]"
    )
    module.attributes.clear()
    for op in module.walk():
        for name, value in [*op.properties.items()]:
            if name != "dimensions" and default.fullmatch(str(value)):
                del op.properties[name]
    module.properties.clear()
    return module


@pytest.mark.parametrize("version", ["1.0.0", "1.15.0"])
@pytest.mark.parametrize(
    "path",
    [
        MODELS / "bert_micro.mlir",
        *more(MODELS / "lenet5.mlir", MODELS / "dscnn.mlir"),
        *(CASES / f"{name}.mlir" for name in ("bitcast", "cummax_i32_args", "i64_index_only")),
        *(CASES / f"{name}.mlir" for name in ("rng_in_closure", "scatter_window_sticks_out")),
        *(
            CASES / f"{name}.mlir"
            for name in ("while_loop_fwd", "bf16_matmul", "top_k", "lax_acosh")
        ),
    ],
    ids=lambda path: getattr(path, "stem", path),
)
def test_artifacts_are_read_as_jaxlib_reads_them(path: Path, version: str, mlir):
    artifact = mlir.artifact(path.read_text(), version)
    found = parse_module(text_of(artifact, "step.mlirbc"))
    expected = parse_module(mlir.text(artifact))
    assert normal(found).is_structurally_equivalent(normal(expected))


def test_an_exported_step_does_what_its_text_does(mlir):
    found = read_module(EXPORTED, "step.mlirbc")
    rng = np.random.default_rng(0)
    shapes = ((2, 2, 1, 4), (16, 3), (2, 4, 4, 1))
    arguments: list[np.ndarray] = [rng.standard_normal(n).astype(np.float32) for n in shapes]
    arguments.append(np.array([2, 0], np.int32))
    results = run_func(found, arguments)
    expected = run_func(parse_module(mlir.text(EXPORTED)), arguments)
    assert len(results) == len(expected) == 6
    assert all(same_bits(a, b) for a, b in zip(results, expected, strict=True))


def test_faults_name_the_line_of_the_program():
    artifact = EXPORTED.replace(b"tanh_v2", b"tanh_v9")
    with pytest.raises(InputError, match=r"vhlo.tanh_v9 is not supported") as caught:
        read_module(artifact, "step.mlirbc")
    assert re.search(r"step\.mlirbc:\d+:\d+ \(step\.py:16\): vhlo", str(caught.value))


def test_what_is_not_known_is_refused(mlir):
    plain = mlir.bytecode((CASES / "bitcast.mlir").read_text())
    with pytest.raises(InputError, match=r"operations such as func.func .* portable artifact"):
        read_module(plain, "step.mlirbc")
    version = bytes([*EXPORTED[:4], 2 * 7 + 1, *EXPORTED[5:]])
    with pytest.raises(InputError, match=r"version 7 of the format \(known is 6\) is not"):
        read_module(version, "step.mlirbc")
    with pytest.raises(InputError, match=r"step.mlirbc:1:1: .* damaged or truncated"):
        read_module(EXPORTED[:1000], "step.mlirbc")


_PLACES = st.integers(5, len(EXPORTED) - 1)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.one_of(_PLACES, st.lists(st.tuples(_PLACES, st.integers(0, 255)), min_size=1)))
def test_cut_and_changed_bytes_are_errors_or_other_modules(change: int | list[tuple[int, int]]):
    data = bytearray(EXPORTED)
    if isinstance(change, int):
        del data[change:]
    else:
        for place, byte in change:
            data[place] = byte
    try:
        read_module(bytes(data), "step.mlirbc")
    except InputError:
        return
    assert not isinstance(change, int)
