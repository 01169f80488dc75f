"""Modules with several entry points: a step, and what reads its parameters between steps."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import SANITIZE
from conftest import MODELS, more, reported
from firmware import run, sections, write_data

import poetc
from poetc import entries
from poetc.cli import main
from poetc.entries import separate
from poetc.errors import InputError
from poetc.frontends.jax import export
from poetc.image import pack
from poetc.image_files import read_layout
from poetc.interpreter import run_func
from poetc.ir.text import make_context, read_module
from poetc.passes.stablehlo_simplify import StableHLOSimplifyPass
from poetc.tensors import read_tensors

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.usefixtures("whole", "near")
jnp = jax.numpy

DRIVER = Path(__file__).parent / "entries_driver.c"
DATA = np.load(MODELS / "gesture_mlp.npz")
WEIGHTS = {f"l{k + 1}": {"b": DATA[f"arg{2 * k}"], "w": DATA[f"arg{2 * k + 1}"]} for k in range(3)}
X, Y = DATA["arg6"], DATA["arg7"]
NEW = np.random.default_rng(7).normal(size=(1, 36)).astype(np.float32)
STEPS = 3


@jax.jit
def predict(p: Any, x: Any) -> Any:
    h = jnp.tanh(x @ p["l1"]["w"] + p["l1"]["b"])
    h = jax.nn.relu(h @ p["l2"]["w"] + p["l2"]["b"])
    return jax.nn.log_softmax(h @ p["l3"]["w"] + p["l3"]["b"])


def loss_of(p: Any, x: Any, y: Any) -> Any:
    return -jnp.mean(jnp.sum(predict(p, x) * y, -1))


def step(p: Any, x: Any, y: Any) -> Any:
    loss, gradient = jax.value_and_grad(loss_of)(p, x, y)
    return jax.tree.map(lambda a, b: a - 0.3 * b, p, gradient), loss


def evaluate(weights: Any, x: Any, y: Any) -> Any:
    right = jnp.argmax(predict(weights, x), -1) == jnp.argmax(y, -1)
    return jnp.mean(right.astype(jnp.float32)), loss_of(weights, x, y)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Predictions are of one sample; evaluation calls the parameters otherwise."""
    path = tmp_path_factory.mktemp("entries") / "gesture"
    export(
        step,
        (WEIGHTS, X, Y),
        path,
        predict=(predict, (WEIGHTS, NEW)),
        evaluate=(evaluate, (WEIGHTS, X, Y)),
    )
    return path


@pytest.fixture(scope="module")
def expected(model: Path) -> list[list[np.ndarray]]:
    """What predictions and evaluations give, before each step and after the last, by the
    interpreter; JAX agrees."""
    module = read_module(Path(f"{model}.mlir").read_bytes(), "gesture")
    entries = separate(module)
    for each in (module, *entries.values()):
        StableHLOSimplifyPass().apply(make_context(), each)
    tensors = [np.asarray(leaf) for leaf in jax.tree.leaves(WEIGHTS)]
    found: list[list[np.ndarray]] = []
    for _ in range(STEPS + 1):
        tree = jax.tree.unflatten(jax.tree.structure(WEIGHTS), tensors)
        now = run_func(entries["predict"], [*tensors, NEW])
        now += run_func(entries["evaluate"], [*tensors, X, Y])[:1]
        np.testing.assert_allclose(now[0], predict(tree, NEW), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(now[1], evaluate(tree, X, Y)[0])
        found.append(now)
        tensors = run_func(module, [*tensors, X, Y])[:6]
    assert not np.array_equal(found[0][0], found[-1][0])
    return found


def compiled(model: Path, out: Path, *options: str) -> dict[str, Any]:
    """The report of a program."""
    return reported(f"{model}.mlir", "--emit=c", *options, "-o", str(out))


def write_inputs(folder: Path, program: Path) -> list[str]:
    """The files that the driver reads; its arguments."""
    described = read_tensors(program)
    leaves = jax.tree_util.tree_flatten_with_path(WEIGHTS)[0]
    known = {".".join(k.key for k in path): np.asarray(leaf) for path, leaf in leaves}
    # The head alone is an argument, too.
    known |= {"b": WEIGHTS["l3"]["b"], "w": WEIGHTS["l3"]["w"], "x": X, "y": Y}
    values = [
        known[t.name if t.name in known else t.name.partition(".")[2]] for t in described.arguments
    ]
    for i, (tensor, array) in enumerate(zip(described.arguments, values, strict=True)):
        for name in ("arg", "predict_arg", "evaluate_arg"):
            data = NEW if name == "predict_arg" and array is X else array
            (folder / f"{name}{i}.bin").write_bytes(data.astype(tensor.dtype).tobytes())
    if described.image is None:
        return [str(folder), str(STEPS)]
    layout = read_layout(program / "model_image.json")
    arrays = [values[parameter.argument] for parameter in layout.tensors]
    (folder / "image.bin").write_bytes(pack(layout, arrays))
    return [str(folder), str(STEPS), str(folder / "image.bin")]


def by_turns(model: Path, tmp_path: Path, *options: str) -> None:
    """Compiles a model, and trains and predicts by turns under sanitizers; the driver leaves its
    files in the folder. It has no more RAM than is reported."""
    out = tmp_path / "out"
    report = compiled(model, out, *options)
    assert report["entries"].keys() == {"predict", "evaluate"}
    flags = ["-std=c99", "-O1", "-Wall", "-Wextra", "-Wconversion", "-Werror", *SANITIZE]
    sources = [str(path) for path in out.glob("*.c") if path.name not in ("main.c", "compare.c")]
    driver = tmp_path / "driver"
    command = ["gcc", *flags, "-ffp-contract=off", "-D_POSIX_C_SOURCE=200809L", f"-I{out}"]
    subprocess.run([*command, *sources, str(DRIVER), "-o", str(driver)], check=True)
    done = subprocess.run(
        [driver, *write_inputs(tmp_path, out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rams = [each["ram"]["total_bytes"] for each in (report, *report["entries"].values())]
    assert int(done.stdout) == max(rams) == report["ram_of_all_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--ram=9600B"],
        ["--ram=9600B", "--params=ram", "--device=stm32h743"],  # with lines of a cache
        ["--ram=3KB", "--stream=auto"],
        *more(
            ["--params=ram"],
            ["--ram=7500B"],
            ["--ram=10100B", "--params=ram", "--storage=none"],
        ),
    ],
    ids=" ".join,
)
def test_training_and_predicting_by_turns(
    model: Path, expected: list[list[np.ndarray]], tmp_path: Path, options: list[str]
) -> None:
    """The bits of the interpreter, in one arena."""
    by_turns(model, tmp_path, *options)
    for k, (predicted, evaluated) in enumerate(expected):
        for name, array in (("predicted", predicted), ("evaluated", evaluated)):
            assert (tmp_path / f"{name}{k}.bin").read_bytes() == array.tobytes(), (name, k)


def head_step(head: Any, body: Any, x: Any, y: Any) -> Any:
    loss, gradient = jax.value_and_grad(lambda h: loss_of({**body, "l3": h}, x, y))(head)
    return jax.tree.map(lambda a, b: a - 0.3 * b, head, gradient), loss


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ["--ram=4KB"],
        *more(
            ["--ram=7KB", "--params=storage"],
            ["--ram=4KB", "--frozen=storage", "--params=storage", "--stream=auto"],
        ),
    ],
    ids=" ".join,
)
def test_frozen_weights_are_read_where_they_are(tmp_path: Path, options: list[str]) -> None:
    """In flash or on storage, beside trained ones in RAM or on storage: as JAX predicts."""
    head, body = WEIGHTS["l3"], {name: WEIGHTS[name] for name in ("l1", "l2")}

    def joined(function: Any) -> Any:
        return lambda head, body, *rest: function({**body, "l3": head}, *rest)

    export(
        head_step,
        (head, body, X, Y),
        tmp_path / "m",
        donate_argnums=0,
        frozen="body",
        results=True,
        predict=(joined(predict), (head, body, NEW)),
        evaluate=(joined(evaluate), (head, body, X, Y)),
    )
    by_turns(tmp_path / "m", tmp_path, f"--data={tmp_path / 'm.npz'}", *options)
    for k in range(STEPS + 1):
        found = np.fromfile(tmp_path / f"predicted{k}.bin", np.float32)
        now = predict({**body, "l3": head}, NEW)[0]
        np.testing.assert_allclose(found, now, rtol=1e-5, atol=1e-6)
        head, _ = head_step(head, body, X, Y)


@pytest.mark.slow
def test_weights_in_16_bits_are_widened(model: Path, tmp_path: Path) -> None:
    """As they are held, which is rounded."""
    out = tmp_path / "out"
    by_turns(model, tmp_path, "--pages=bf16", "--ram=6KB", "--params=storage", "--stream=never")
    assert read_tensors(out).entries["predict"].arguments[1].dtype == "bfloat16"
    held = jax.tree.map(lambda a: a.astype(jnp.bfloat16).astype(jnp.float32), WEIGHTS)
    found = np.fromfile(tmp_path / "predicted0.bin", np.float32)
    np.testing.assert_allclose(found, predict(held, NEW)[0], rtol=1e-5, atol=1e-6)
    assert np.abs(found - np.asarray(predict(WEIGHTS, NEW)[0])).max() > 1e-4


@pytest.mark.slow
def test_predicting_writes_no_parameter(model: Path, tmp_path: Path) -> None:
    """No call of an entry point touches the image: a loss of power during it loses nothing."""
    out = tmp_path / "out"
    report = compiled(model, out, "--ram=7500B", "--params=storage")
    assert report["page_outs"] > 0
    assert [entry["page_outs"] for entry in report["entries"].values()] == [0, 0]
    text = (out / "model.c").read_text()
    body = text.partition("poetc_status model_predict(")[2].partition("\n}\n")[0]
    assert "poetc_image_open(" in body and "old_bank" in body
    assert "_out(" not in body and "_out_start(" not in body and "commit" not in body


@pytest.mark.slow
def test_kernels_that_are_equal_are_shared(model: Path, tmp_path: Path) -> None:
    """Of evaluation and step, which begin alike."""
    out = tmp_path / "out"
    compiled(model, out, "--params=ram")
    entry = read_tensors(out).entries["evaluate"]
    assert entry.function == "model_evaluate" and entry.parameters == (*range(6), None, None)
    assert [t.parameter for t in entry.arguments] == [True] * 6 + [False] * 2
    text = (out / "model.c").read_text()
    body = text.partition("poetc_status model_evaluate(")[2].partition("\n}\n")[0]
    assert "model_kernel_" in body


SCALE = """
func.func public @step(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32, poet.name = "w"},
    %x: tensor<4xf32> {poet.name = "x"}) -> tensor<4xf32> {
  %y = stablehlo.multiply %w, %x : tensor<4xf32>
  return %y : tensor<4xf32>
}
"""


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            '@predict(%a: tensor<4xf32> {poet.parameter = "v"})',
            'poet.parameter of argument 0 is "v": no parameter has that name; there are w',
        ),
        (
            '@predict(%a: tensor<4xf32> {poet.parameter = "x"})',
            "no parameter has that name; there are w",
        ),
        (
            '@predict(%b: tensor<5xf32> {poet.name = "w"}, %a: tensor<4xf32>)',
            "argument 0 is the parameter w of the step, by its name, but is tensor<5xf32>",
        ),
        (
            '@predict(%a: tensor<4xf32> {poet.name = "w", tf.aliasing_output = 0 : i32})',
            "@predict: argument 0 is to be updated by result 0; only the step updates parameters",
        ),
        ('@result(%a: tensor<4xf32> {poet.name = "w"})', "@result cannot be an entry point"),
        ('@arg_max(%a: tensor<4xf32> {poet.name = "w"})', "@arg_max cannot be an entry point"),
        ('@Predict(%a: tensor<4xf32> {poet.name = "w"})', "@Predict cannot be an entry point"),
        ('@save(%a: tensor<4xf32> {poet.name = "w"})', "that begin with save are others"),
        ('@open(%a: tensor<4xf32> {poet.name = "w"})', "that begin with open are others"),
    ],
)
def test_faults_of_entry_points(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], entry: str, said: str
) -> None:
    source = tmp_path / "m.mlir"
    text = f"func.func public {entry} -> tensor<4xf32> {{\n  return %a : tensor<4xf32>\n}}\n"
    source.write_text(SCALE + text)
    assert main([str(source), "--emit=c", "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error and str(source) in error
    assert not (tmp_path / "out").exists()


def test_names_that_begin_with_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "m.mlir"
    entry = 'func.func public @{}(%a: tensor<4xf32> {{poet.name = "w"}}) -> tensor<4xf32> {{\n'
    entry += "  return %a : tensor<4xf32>\n}}\n"
    source.write_text(SCALE + entry.format("predict") + entry.format("predict_result"))
    assert main([str(source), "--emit=c", "-o", str(tmp_path / "out")]) == 2
    assert "functions of @predict begin like that" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--emit=ir"], ["--emit=plan"], ["--emit=c", "--executor=plan"]]
)
def test_what_has_no_entry_points_says_so(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    assert main([f"{model}.mlir", *options, "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "@predict, @evaluate: other entry points than the step are for --emit=c" in error


@pytest.mark.slow
def test_too_little_ram_for_an_entry_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the step fits and another does not, it says which; where that is because of parameters
    in RAM, and nothing says that they have to be there, they are on storage."""
    many = np.repeat(NEW, 12, 0)
    export(step, (WEIGHTS, X, Y), tmp_path / "m", predict=(predict, (WEIGHTS, many)))
    words = [str(tmp_path / "m.mlir"), "--ram=9600B", "--emit=report", "-q"]
    output = tmp_path / "report.json"
    assert main([*words, "-o", str(output)]) == 0
    assert json.loads(output.read_text())["params"] == "storage"
    assert main([*words, "--params=ram"]) in (3, 4)
    said = capsys.readouterr().err
    assert "poetc: error: @predict, beside parameters of 7,256 B: no schedule fits into" in said


@pytest.mark.slow
def test_an_entry_point_in_tiles_beside_a_step_that_fits_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pages of the step are in blocks then, too; where tiles are not allowed, it says so."""
    w, x = np.random.default_rng(3).normal(size=(2, 64)).astype(np.float32)

    def halved(w: Any, x: Any) -> Any:
        return w * 0.5 + x, jnp.sum(w)

    def squared(w: Any, x: Any) -> Any:
        return jnp.tanh(jnp.outer(w, x) @ jnp.outer(x, w)) @ x

    predicts: dict[str, Any] = {"predict": (squared, (w, x))}
    export(halved, (w, x), tmp_path / "m", donate_argnums=0, **predicts)
    words = [str(tmp_path / "m.mlir"), "--ram=12KB", "-q"]
    out = tmp_path / "out"
    assert main([*words, "--stream=auto", "--emit=c", "-o", str(out)]) == 0
    (page,) = read_layout(out / "model_image.json").tensors
    assert page.block_bytes is not None
    text = (out / "model.c").read_text()
    step_text, _, predict_text = text.partition("poetc_block_page model_predict_page(")
    assert "poetc_slice_" not in step_text and "poetc_blocks_in(" in step_text
    assert "poetc_slice_in(" in predict_text
    asked: dict[str, Any] = {"ram": "12KB", "stream": "auto"}
    program = poetc.compile(halved, (w, x), donate_argnums=0, **predicts, **asked)
    for _ in range(2):
        np.testing.assert_allclose(program.predict(x), squared(w, x), rtol=2e-5, atol=1e-5)
        program.step(x)
        w = w * np.float32(0.5) + x
    assert main([*words, "--emit=report"]) in (3, 4)
    said = capsys.readouterr().err
    assert "error: @predict" in said and "no schedule fits" in said and "--stream=never" in said


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"resuls": True}, "resuls is no option, and no entry point"),
        ({"predict": (predict, ({"l1": X}, NEW))}, "predict reads no parameter of the step"),
    ],
)
def test_faults_of_exported_entries(tmp_path: Path, entry: dict[str, Any], said: str) -> None:
    def forward(weights: Any, x: Any) -> Any:
        return weights["l1"] @ x.T

    if "predict" in entry:
        entry = {"predict": (forward, ({"l1": X}, NEW))}
    with pytest.raises(InputError, match=said):
        export(step, (WEIGHTS, X, Y), tmp_path / "m", **entry)
    assert not (tmp_path / "m.mlir").exists()


@pytest.mark.slow
def test_a_module_of_pytorch_predicts_as_it_does_in_eval(tmp_path: Path) -> None:
    """With running statistics in place of those of the batch, and without dropout's numbers; of one
    sample, where the step takes five."""
    torch = pytest.importorskip("torch")
    from poetc.frontends.torch import export as export_torch

    torch.manual_seed(3)
    module = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    )
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    x, labels, new = torch.randn(5, 6), torch.tensor([0, 1, 2, 0, 1]), torch.randn(1, 6)
    for _ in range(3):  # so that the statistics are not those that they begin with
        module(x)
    loss = torch.nn.functional.cross_entropy
    export_torch(module, loss, optimiser, x, labels, tmp_path / "m", predict=new)
    assert module.training
    module_ = read_module((tmp_path / "m.mlir").read_bytes(), "m")
    entry = separate(module_)["predict"]
    StableHLOSimplifyPass().apply(make_context(), entry)
    kept = [*module.parameters(), *module.buffers()]
    (found,) = run_func(entry, [t.detach().numpy() for t in (*kept, new)])
    np.testing.assert_allclose(found, module.eval()(new).detach().numpy(), rtol=1e-5, atol=1e-6)
    report = tmp_path / "report.json"
    options = [
        "--ram=4KB",
        "--params=storage",
        "--stream=never",
        "--emit=report",
        "-q",
        "-o",
        str(report),
    ]
    assert main([str(tmp_path / "m.mlir"), *options]) == 0
    assert json.loads(report.read_text())["entries"]["predict"]["page_ins"] > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ram", "tiles"), [(9600, []), (3072, ["--stream=auto"])], ids=["whole", "tiles"]
)
def test_firmware_trains_and_predicts(tmp_path: Path, ram: int, tiles: list[str]) -> None:
    """In an emulated board: with parameters in RAM, and with kernels in tiles of the image on
    storage. All of its RAM is what is reported."""
    export(step, (WEIGHTS, X, Y), tmp_path / "m", predict=(predict, (WEIGHTS, X)))
    out = tmp_path / "out"
    options = ["--board=mps2-an386", f"--ram={ram}", *tiles, "--emit=c", "-q"]
    assert main([str(tmp_path / "m.mlir"), *options, "-o", str(out)]) == 0
    write_data("gesture_mlp", out)
    text = (out / "firmware.c").read_text()
    trained = "    return save();"
    assert text.count(trained) == 1
    # Argument 6 is the input of both; what is predicted is written as result 7.
    (out / "firmware.c").write_text(
        text.replace(
            trained,
            """\
    if (!save() || !board_read_argument(6, model_predict_argument(6),
                                        model_predict_argument_bytes(6))) {
        return false;
    }
    const poetc_status status = model_predict(store);
    return (status == POETC_OK || failed("predict ", 0, poetc_status_text(status)))
           && board_write_result(7, model_predict_result(0), model_predict_result_bytes(0));""",
        )
    )
    done = run(out, 2)
    assert done.ram <= ram and done.stack_used <= done.stack
    assert done.ram == read_tensors(out).ram_bytes
    linked = sections(out)
    assert linked[".data"] + linked[".bss"] + linked[".stack"] <= done.ram
    weights = WEIGHTS
    for _ in range(2):
        weights, _ = step(weights, X, Y)
    found = np.fromfile(out / "data" / "out7.bin", np.float32).reshape(4, 6)
    np.testing.assert_allclose(found, predict(weights, X), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"params": "ram"},
        {"ram": "7500B", "params": "storage", "io": "caller"},
        {"ram": "3KB", "stream": "auto"},
    ],
    ids=["ram", "storage", "tiles"],
)
def test_a_program_in_this_process_predicts(options: dict[str, Any]) -> None:
    """With new values of what is trained, with what is frozen, and after parameters were set."""
    head, body = WEIGHTS["l3"], {name: WEIGHTS[name] for name in ("l1", "l2")}

    def whole(head: Any, body: Any, x: Any) -> Any:
        return {"scores": predict({**body, "l3": head}, x)}

    def trained(head: Any, body: Any, x: Any, y: Any) -> Any:
        head, loss = head_step(head, body, x, y)
        return head, body, loss

    program = poetc.compile(
        trained,
        (head, body, X, Y),
        donate_argnums={0: 0, 1: 1},
        predict=(whole, (head, body, NEW)),
        **options,
    )
    assert program.entries["predict"].inputs == ("x",)
    for _ in range(2):
        assert program.parameters  # so that they are there
        stored = program._shared.storage.copy()
        found = program.predict(NEW)["scores"]
        np.testing.assert_array_equal(program._shared.storage, stored)
        np.testing.assert_allclose(found, whole(head, body, NEW)["scores"], rtol=1e-5, atol=1e-6)
        program.step(X, Y)
        head, _ = head_step(head, body, X, Y)
    program.load(head=WEIGHTS["l3"])
    again = program.predict(x=NEW)["scores"]
    np.testing.assert_allclose(again, predict(WEIGHTS, NEW), rtol=1e-5, atol=1e-6)
    assert program.ram_bytes == program.report.ram_of_all_bytes
    with pytest.raises(InputError, match=r"not float32 of shape \(2, 36\)"):
        program.predict(X[:2])


@pytest.mark.slow
def test_a_program_without_entry_points_says_so(tmp_path: Path) -> None:
    program = poetc.compile(step, (WEIGHTS, X, Y))
    with pytest.raises(InputError, match="has no entry point predict"):
        program.predict(X)
    both = poetc.compile(step, (WEIGHTS, X, Y), predict=(predict, (WEIGHTS, X)))
    with pytest.raises(InputError, match="--emit=ir has none"):
        both.save(tmp_path / "m.mlir", "ir")
    with pytest.raises(InputError, match="runs plans, and a plan, have no other entry points"):
        poetc.compile(step, (WEIGHTS, X, Y), predict=(predict, (WEIGHTS, X)), executor="plan")


@pytest.mark.slow
def test_a_module_of_pytorch_predicts_in_this_process() -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    x, y, new = torch.randn(5, 6), torch.randn(5, 8), torch.randn(2, 6)
    loss = torch.nn.functional.mse_loss
    program = poetc.compile(module, (x, y), loss=loss, optimiser=optimiser, predict=new)
    program.step(x, y)
    loss(module(x), y).backward()
    optimiser.step()
    expected = module.eval()(new).detach().numpy()
    np.testing.assert_allclose(program.predict(new), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_what_holds_the_ram_is_explained(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", f"{model}.mlir", "--ram=5KB", "--params=ram", "--time-limit=1"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "There is no schedule as asked" in said and "needs at once" in said


@pytest.mark.parametrize(
    "options",
    [
        ("--params=ram",),
        ("--params=ram", "--arena=caller"),
        ("--params=storage", "--ram=9600"),
        ("--params=storage", "--ram=9600", "--io=caller"),
        ("--params=ram", "--executor=plan"),
    ],
)
def test_no_entry_point_is_called_like_another_function(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    """Whatever a header declares, no entry point may have the name that follows the model's."""
    words = [str(MODELS / "gesture_mlp.mlir"), *options, "--emit=c", "-q", "--time-limit=5"]
    assert main([*words, "-o", str(tmp_path / "out")]) == 0
    header = (tmp_path / "out" / "model.h").read_text()
    declared = set(
        re.findall(r"\bmodel_([a-z0-9_]+)\b", re.sub(r"/\*.*?\*/", "", header, flags=re.S))
    )
    assert len(declared) > 8
    assert not [name for name in declared if entries._TAKEN.fullmatch(name) is None]
