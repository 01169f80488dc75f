"""Arguments that no step changes: three ways to write them give the same RAM and bits."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MODELS, reported
from pages import ROOT, run_commands
from power import Machine

from poetc.cli import main
from poetc.errors import InputError
from poetc.frontends.jax import export
from poetc.image import pack
from poetc.ir.text import read_module

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.usefixtures("whole")
jnp = jax.numpy

RNG = np.random.default_rng(3)
HIDDEN = (RNG.normal(size=(64, 48)) / 8).astype(np.float32)
HEAD = (RNG.normal(size=(48, 10)) / 7).astype(np.float32)
X = RNG.normal(size=(4, 64)).astype(np.float32)
Y = np.eye(10, dtype=np.float32)[[1, 3, 5, 7]]
FLASH_BYTES = HIDDEN.nbytes


def loss_of(head: Any, hidden: Any, x: Any, y: Any) -> Any:
    logits = jnp.tanh(x @ hidden) @ head
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, axis=-1))


def returned(params: Any, x: Any, y: Any) -> Any:
    loss, gradient = jax.value_and_grad(loss_of)(params["head"], params["hidden"], x, y)
    return {"head": params["head"] - 0.1 * gradient, "hidden": params["hidden"]}, loss


def passed(head: Any, hidden: Any, x: Any, y: Any) -> Any:
    loss, gradient = jax.value_and_grad(loss_of)(head, hidden, x, y)
    return head - 0.1 * gradient, loss


def closed(head: Any, x: Any, y: Any) -> Any:
    return passed(head, HIDDEN, x, y)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The step written in three ways, with what JAX computes."""
    folder = tmp_path_factory.mktemp("frozen")
    ways: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
        "returned": (returned, ({"head": HEAD, "hidden": HIDDEN}, X, Y), {}),
        "passed": (passed, (HEAD, HIDDEN, X, Y), {"donate_argnums": 0, "frozen": "hidden"}),
        "closed": (closed, (HEAD, X, Y), {"donate_argnums": 0}),
    }
    for name, (step, args, options) in ways.items():
        export(step, args, folder / name, results=True, **options)
    return folder


def compiled(models: Path, way: str, out: Path, *options: str) -> dict[str, Any]:
    """The report of a program with its data in `out`."""
    data = f"--data={models / way}.npz"
    return reported(str(models / f"{way}.mlir"), "--emit=c", data, *options, "-o", str(out))


def make_run(out: Path) -> None:
    """`make run`, which compares with JAX's results. No compiler warns."""
    done = subprocess.run(["make", "-s", "run"], cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning:" not in done.stderr, done.stderr
    assert "out0: relative difference" in done.stdout


@pytest.mark.slow
def test_three_ways_take_the_same_ram_and_give_the_same_bits(models: Path, tmp_path: Path) -> None:
    ram: dict[str, int] = {}
    heads: set[bytes] = set()
    for way in ("returned", "passed", "closed"):
        out = tmp_path / way
        report = compiled(models, way, out)
        ram[way] = report["ram"]["total_bytes"]
        assert report["ram"]["caller_bytes"]["frozen"] == (0 if way == "closed" else FLASH_BYTES)
        make_run(out)
        heads.add((out / "data" / "out0.bin").read_bytes())
    assert len(heads) == 1 and len(set(ram.values())) == 1, ram
    off = compiled(models, "returned", tmp_path / "off", "--frozen=off")
    assert off["ram"]["total_bytes"] == ram["returned"] + FLASH_BYTES
    make_run(tmp_path / "off")
    assert (tmp_path / "off" / "data" / "out0.bin").read_bytes() in heads


@pytest.fixture(scope="module")
def flash(models: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, bytes]:
    """With what is frozen in flash: the RAM of the step, the head that it leaves."""
    out = tmp_path_factory.mktemp("flash")
    report = compiled(models, "returned", out, "--params=ram")
    make_run(out)
    return report["ram"]["total_bytes"], (out / "data" / "out0.bin").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "other", "way"),
    [
        ("ram", [], "passed"),
        ("ram", ["--ram=18KB"], "returned"),
        ("storage", [], "returned"),
        ("storage", ["--executor=plan"], "passed"),
    ],
)
def test_on_storage_they_are_read_and_never_written(
    models: Path,
    flash: tuple[int, bytes],
    tmp_path: Path,
    way: str,
    params: str,
    other: list[str],
) -> None:
    flash_ram_bytes, head = flash
    options = ["--frozen=storage", f"--params={params}", *other]
    out = tmp_path / "out"
    report = compiled(models, way, out, *options)
    assert report["ram"]["caller_bytes"]["frozen"] == 0
    assert report["params"] == params and report["page_in_bytes"] >= FLASH_BYTES
    make_run(out)
    if params == "ram":
        assert (out / "data" / "out0.bin").read_bytes() == head
    image = json.loads((out / "model_image.json").read_text())
    updated = {t["name"].split(".")[-1]: t["updated"] for t in image["tensors"]}
    assert updated == {"hidden": False} | ({"head": True} if params == "storage" else {})
    assert report["frozen_on_storage_bytes"] == FLASH_BYTES
    assert image["bank_bytes"] > 0 if params == "storage" else image["bank_bytes"] == 0
    ram = report["ram"]["total_bytes"]
    if not other:
        assert ram <= flash_ram_bytes + FLASH_BYTES


@pytest.mark.slow
def test_writes_of_a_step_with_nothing_but_frozen_pages(models: Path, tmp_path: Path) -> None:
    ir = tmp_path / "step.mlir"
    options = ["--frozen=storage", "--params=ram", "--emit=ir", "-q"]
    assert main([str(models / "returned.mlir"), *options, "-o", str(ir)]) == 0
    inputs = {0: HEAD, 2: X, 3: Y}
    machine = Machine(read_module(ir.read_bytes(), str(ir)), tmp_path / "out", inputs)
    machine.run(pack(machine.layout, [HIDDEN]), 2)
    assert machine.events == []


@pytest.mark.slow
def test_weights_of_8_and_16_bits_are_decoded_where_they_are_read(tmp_path: Path) -> None:
    """Of a table, a convolution and dense layers, forward and backward: never whole in RAM."""

    def weights(*shape: int) -> dict[str, Any]:
        return {
            "q": RNG.integers(-127, 128, shape).astype(np.int8),
            "scale": (RNG.random(shape[-1]) / 500).astype(np.float32),
        }

    def decoded(w: dict[str, Any]) -> Any:
        return w["q"].astype(jnp.float32) * w["scale"]

    def loss_of(head: Any, fixed: Any, tokens: Any, y: Any) -> Any:
        x = jnp.take(decoded(fixed["table"]), tokens, axis=0) + head["shift"]
        x = jax.lax.conv_general_dilated(
            x, decoded(fixed["conv"]), (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        x = jnp.tanh(x) @ fixed["half"].astype(jnp.float32)
        return jnp.mean((jnp.tanh(x) @ decoded(fixed["dense"]) - y) ** 2)

    def step(head: Any, fixed: Any, tokens: Any, y: Any) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(head, fixed, tokens, y)
        return {"shift": head["shift"] - 0.1 * gradient["shift"]}, loss

    fixed = {
        "table": weights(500, 16),
        "conv": weights(3, 16, 32),
        "half": RNG.normal(size=(32, 64)).astype(np.float16),
        "dense": weights(64, 8),
    }
    tokens = RNG.integers(0, 500, (1, 6)).astype(np.int32)
    args = ({"shift": np.zeros(16, np.float32)}, fixed, tokens, np.ones((1, 6, 8), np.float32))
    export(step, args, tmp_path / "q", results=True, donate_argnums=0, frozen="fixed")
    report = compiled(tmp_path, "q", tmp_path / "on")
    in_flash = sum(leaf.nbytes for leaf in jax.tree.leaves(fixed))
    assert report["ram"]["caller_bytes"]["frozen"] == in_flash
    assert report["ram"]["total_bytes"] < 4 * fixed["conv"]["q"].size
    off = compiled(tmp_path, "q", tmp_path / "off", "--frozen=off")
    assert off["ram"]["total_bytes"] > in_flash + 4 * fixed["table"]["q"].size
    for out in ("on", "off"):
        make_run(tmp_path / out)
    for name in ("out0", "out1"):
        bits = [(tmp_path / out / "data" / f"{name}.bin").read_bytes() for out in ("on", "off")]
        assert bits[0] == bits[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--params=storage", "--ram=4600B", "--stream=never"],
        ["--io=caller"],
        ["--board=mps2-an386"],
    ],
)
def test_with_storage_buffers_of_the_caller_and_on_a_board(
    models: Path, tmp_path: Path, options: list[str]
) -> None:
    out = tmp_path / "out"
    report = compiled(models, "returned", out, *options)
    assert report["ram"]["caller_bytes"]["frozen"] == FLASH_BYTES
    make_run(out)


def test_unsigned_numbers(tmp_path: Path) -> None:
    """They are constants of the program without a warning of the compiler, and come back as they
    were."""

    def step(w: Any, table: Any, x: Any) -> Any:
        scale = table["bytes"].astype(jnp.float32).sum() + (table["words"] >> 31).sum()
        return w - 0.01 * scale * x, table

    table = {"bytes": np.array([3, 200], np.uint8), "words": np.array([2**32 - 1, 1], np.uint32)}
    args = (np.ones(3, np.float32), table, X[0, :3])
    export(step, args, tmp_path / "step", results=True, donate_argnums=0)
    out = tmp_path / "out"
    compiled(tmp_path, "step", out)
    make_run(out)


@pytest.mark.slow
def test_what_train_leaves_is_compared_with_what_it_was(tmp_path: Path) -> None:
    """The file has what the whole step makes of it. The weights of the program have 16 bits."""
    model, out = MODELS / "gesture_mlp", tmp_path / "out"
    options = [
        "--train=*['l3']*",
        "--frozen=storage",
        "--pages=bf16",
        "--ram=6KB",
        "--stream=never",
    ]
    data = f"--data={model}.npz"
    assert main([f"{model}.mlir", *options, "--emit=c", data, "-q", "-o", str(out)]) == 0
    make_run(out)
    printed = run_commands(f"python examples/run_c.py {out} {model}.npz", ROOT)
    differences = {line.split(":")[0]: float(line.split()[-1]) for line in printed.splitlines()[1:]}
    assert max(differences[name] for name in ("out0", "out5", "out6")) < 2**-7


@pytest.mark.slow
def test_without_data_a_step_takes_a_pointer(models: Path, tmp_path: Path) -> None:
    """The example program reads all arguments from files, under the sanitizers."""
    out, step = tmp_path / "out", np.load(models / "returned.npz")
    assert main([str(models / "returned.mlir"), "--emit=c", "-q", "-o", str(out)]) == 0
    header = " ".join((out / "model.h").read_text().replace("*", "").split())
    assert "const float argument1" in header and "inputs are written before each call" in header
    assert "buffers of the caller, aligned to 4 bytes, that overlap neither" in header
    assert "else: frozen arguments, which are left as they are. " in header
    for i in range(4):
        (tmp_path / f"arg{i}.bin").write_bytes(step[f"arg{i}"].tobytes())
    flags = "-O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all"
    subprocess.run(["make", "-s", f"CFLAGS={flags}"], cwd=out, check=True)
    subprocess.run([out / "model_example", tmp_path, "3"], check=True, capture_output=True)
    assert (tmp_path / "arg1.bin").read_bytes() == HIDDEN.tobytes()
    assert not (tmp_path / "out1.bin").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--frozen=head"], "--frozen=head: the step gives head a new value"),
        (["--frozen=x,body"], "--frozen: no argument 'body'; there are head, hidden, x, y"),
        (["--frozen=storage", "--storage=none"], "--frozen=storage cannot go with --storage=none"),
        (["--frozen=storage", "--ram-scope=activations"], "cannot go with --ram-scope=activations"),
        (["--emit=c", "--board=microbit"], "--data with the arguments, or --frozen=off"),
        (["--emit=c", "--executor=plan"], "--frozen=storage --params=storage"),
        (["--emit=c", "--executor=plan", "--frozen=storage", "--params=ram"], "--params=storage"),
    ],
)
def test_refusals(
    models: Path, tmp_path: Path, capsys: pytest.CaptureFixture, options: list[str], said: str
) -> None:
    assert main([str(models / "passed.mlir"), *options, "-o", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_export_knows_the_names(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"frozen: no argument hiden; there are head, hidden, x, y"
    ):
        export(passed, (HEAD, HIDDEN, X, Y), tmp_path / "m", donate_argnums=0, frozen="hiden")


@pytest.mark.slow
@pytest.mark.more
def test_fine_tuning_takes_what_the_documentation_says(tmp_path: Path) -> None:
    lines = run_commands(f"python examples/fine_tuning.py {tmp_path}", ROOT).splitlines()
    assert len(lines) == 9
    documented = (ROOT / "docs" / "frozen.md").read_text().splitlines()
    assert [f"    {line}" for line in lines] == [line for line in documented if line[4:] in lines]


@pytest.mark.parametrize(
    ("frozen", "ram"),
    [("auto", 1500), ("auto", 2000), ("auto", 2600), ("auto", 4000), ("storage", 14000)],
)
def test_too_little_ram_beside_frozen_weights(
    models: Path, frozen: str, ram: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is frozen is in flash, or on storage as a whole; without a schedule that is said."""
    limits = [f"--frozen={frozen}", f"--ram={ram}", "--time-limit=20"]
    status = main([str(models / "returned.mlir"), *limits, "-q"])
    error = capsys.readouterr().err
    assert status in (0, 3, 4), error
    assert status == 0 or ram != 4000, error
