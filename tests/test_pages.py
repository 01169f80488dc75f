"""Parameters held in 16 bits: what is computed in float32 is rounded at the end of each step."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import reported
from power import OK, Machine
from xdsl.dialects.func import FuncOp

import poetc
from poetc.cli import main
from poetc.costmodel.profile import kernel_key
from poetc.frontends.jax import export
from poetc.image import pack
from poetc.ir.text import make_context, read_module
from poetc.profile import entries_of

jax = pytest.importorskip("jax")
jnp = jax.numpy

TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
MODELS = Path(__file__).parent / "models"
RNG = np.random.default_rng(7)
W = (RNG.normal(size=(32, 24)) / 6).astype(np.float32)
FIXED = (RNG.normal(size=(24, 24)) / 5).astype(np.float32)
X = RNG.normal(size=(3, 32)).astype(np.float32)


def decay(w: Any, x: Any) -> Any:
    """Each element by itself, so that NumPy computes the same bits; a loss that reads `w`."""
    return w - x * w, jnp.max(w)


def momentum(params: Any, state: Any, fixed: Any, x: Any) -> Any:
    """A layer that is trained with momentum, on top of one that is not."""

    def loss_of(w: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w) @ fixed - 1.0) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(params)
    state = 0.9 * state + gradient
    return params - 0.1 * state, state, loss


def corners(dtype: np.dtype) -> np.ndarray:
    """Ties to both sides, what is too large, subnormals, zeros, infinities and NaN, as float32."""
    info = ml_dtypes.finfo(dtype)
    eps, tiny, top = float(info.eps), float(info.smallest_subnormal), float(info.max)
    near = [1 + eps / 2, 1 + 3 * eps / 2, 1 + eps / 2 + 2**-20, -1 - eps / 2]
    small = [tiny / 2, 1.5 * tiny, 0.51 * tiny, 2.5 * tiny, float(info.smallest_normal) * 0.75]
    large = [top, top * (1 + eps / 8), min(top * (1 + eps), 3e38), -top]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan]
    values = np.array([*near, *small, *large, *special], np.float32)
    return np.concatenate([values, RNG.normal(size=64 - values.size)]).astype(np.float32)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Which NaN it is makes no difference."""
    nan = np.isnan(a.astype(np.float32))
    words = (a.view(np.uint16), b.view(np.uint16))
    return bool(np.all((nan & np.isnan(b.astype(np.float32))) | (words[0] == words[1])))


@pytest.mark.parametrize("pages", TYPES)
@pytest.mark.parametrize("params", ["ram", "storage"])
@pytest.mark.parametrize("executor", ["code", "plan"])
def test_five_steps_are_those_of_numpy(pages: str, params: str, executor: str) -> None:
    dtype, factors = TYPES[pages], (0.37, -1.9, 0.001, -3.0, 0.9)
    w = corners(dtype)
    program = poetc.compile(
        decay,
        (w, np.ones_like(w)),
        donate_argnums=0,
        pages=pages,
        params=params,
        executor=executor,
    )
    assert program.parameters["w"].dtype == dtype
    with np.errstate(all="ignore"):
        expected = w.astype(dtype)
        for factor in factors:
            assert same_bits(program.parameters["w"], expected)
            x = np.full_like(w, factor)
            wide = expected.astype(np.float32)
            expected = (wide - x * wide).astype(dtype)
            program.step(x)
    assert same_bits(program.parameters["w"], expected)


def compiled(model: Path, out: Path, *options: str) -> dict[str, Any]:
    data = f"--data={model}.npz"
    return reported(f"{model}.mlir", "--emit=c", data, *options, "-o", str(out))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "step"
    args = (W, np.zeros_like(W), FIXED, X)
    export(momentum, args, path, results=True, donate_argnums=(0, 1), frozen="fixed")
    return path


@pytest.mark.slow
def test_half_the_bytes_for_weights_but_not_for_state(model: Path, tmp_path: Path) -> None:
    exact = compiled(model, tmp_path / "exact", "--params=storage")
    half = compiled(model, tmp_path / "half", "--params=storage", "--pages=f16")
    assert half["ram"]["caller_bytes"]["frozen"] == FIXED.nbytes // 2
    assert half["pages"] == "f16" and exact["pages"] == "exact"
    image = json.loads((tmp_path / "half" / "model_image.json").read_text())
    assert {t["name"]: t["dtype"] for t in image["tensors"]} == {
        "params": "float16",
        "state": "float32",
    }
    for name in ("exact", "half"):
        done = subprocess.run(
            ["make", "-s", "run"], cwd=tmp_path / name, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_no_copy_in_float32_is_in_ram(model: Path, tmp_path: Path) -> None:
    exact = compiled(model, tmp_path / "exact", "--params=ram")
    half = compiled(model, tmp_path / "half", "--params=ram", "--pages=bf16")
    assert half["ram"]["total_bytes"] <= exact["ram"]["total_bytes"] - W.nbytes // 2


@pytest.mark.slow
def test_power_may_go_at_any_write(model: Path, tmp_path: Path) -> None:
    """Weights are all old or all new, as they are in float32."""
    ir = tmp_path / "step.mlir"
    options = ["--pages=f16", "--params=storage", "--frozen=off", "-q"]
    assert main([f"{model}.mlir", "--emit=ir", *options, "-o", str(ir)]) == 0
    machine = Machine(read_module(ir.read_bytes(), str(ir)), tmp_path / "out", {2: FIXED, 3: X})
    before = pack(machine.layout, [W, np.zeros_like(W)])
    images = machine.run(before, 1)
    old, new = map(machine.state, images)
    assert old != new
    for event, size in enumerate(machine.events):
        machine.power_on(before)
        machine.cut(event, size // 2, True)
        assert machine.step() != OK
        assert machine.state(machine.image) in (old, new)
        machine.power_on(machine.image)
        assert machine.step() == OK


def test_packing_rounds(model: Path, tmp_path: Path) -> None:
    compiled(model, tmp_path / "out", "--params=storage", "--pages=bf16")
    image, values = tmp_path / "image.bin", tmp_path / "values.npz"
    assert main(["pack", str(tmp_path / "out"), f"{model}.npz", "-o", str(image)]) == 0
    assert main(["unpack", str(tmp_path / "out"), str(image), "-o", str(values)]) == 0
    with np.load(values) as arrays:
        w = arrays["arg0"].view(ml_dtypes.bfloat16)
        assert np.array_equal(w, W.astype(ml_dtypes.bfloat16))
        assert np.array_equal(arrays["arg1"], np.zeros_like(W))


def test_an_image_of_nothing_but_rounded_weights(model: Path, tmp_path: Path) -> None:
    """The file has twice the bytes that the image holds."""
    options = ["--params=ram", "--frozen=storage", "--pages=f16"]
    compiled(model, tmp_path / "out", *options)
    image, values = tmp_path / "image.bin", tmp_path / "values.npz"
    assert main(["pack", str(tmp_path / "out"), f"{model}.npz", "-o", str(image)]) == 0
    assert main(["unpack", str(tmp_path / "out"), str(image), "-o", str(values)]) == 0
    with np.load(values) as arrays:
        assert np.array_equal(arrays["arg2"], FIXED.astype(np.float16))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{"pages": "bf16"}, {"train": "*['w']"}, {"train": "[1]['l3']*", "frozen": "storage"}],
)
def test_profiles_have_the_kernels_that_are_compiled(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    path = MODELS / "gesture_mlp.mlir"
    ir = tmp_path / "step.mlir"
    flags = [f"--{name}={value}" for name, value in options.items()]
    assert main([str(path), *flags, "--emit=ir", "-q", "-o", str(ir)]) == 0
    module = read_module(ir.read_bytes(), str(ir))
    kernels = {kernel_key(op) for op in module.ops if isinstance(op, FuncOp)}
    entries = entries_of(
        make_context(),
        read_module(path.read_bytes(), str(path)),
        data=str(path.with_suffix(".npz")),
        device_name="nrf52840",
        **options,
    )
    assert {entry.key for entry in entries} == kernels


def test_needs_stablehlo_and_a_weight(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ir = tmp_path / "step.ir"
    assert main([f"{model}.mlir", "--emit=ir", "-q", "-o", str(ir)]) == 0
    assert main([str(ir), "--pages=f16", "-q"]) == 2
    assert "--pages" in capsys.readouterr().err
    export(
        lambda n, x: (n + 1, n * x), (np.int32(1), np.int32(2)), tmp_path / "n", donate_argnums=0
    )
    assert main([str(tmp_path / "n.mlir"), "--pages=f16", "-q"]) == 2
    assert "no weight of f32" in capsys.readouterr().err
