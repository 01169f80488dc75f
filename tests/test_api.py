"""poetc from Python: programs in this process, against JAX, the C program and each other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled import build, run
from conftest import MODELS, load_arrays, more, read_model
from xdsl.dialects import builtin

import poetc
from poetc.diagnosis import Reason
from poetc.options import OPTIONS

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.usefixtures("whole", "near")
jnp = jax.numpy

ROOT = Path(__file__).parent.parent
MODEL = MODELS / "gesture_mlp.mlir"
RNG = np.random.default_rng(7)


def normal(*shape: int, scale: float = 1.0) -> Any:
    return jnp.asarray(RNG.normal(0, scale, shape), jnp.float32)


PARAMS = {
    "hidden": {"w": normal(24, 32, scale=0.3), "b": jnp.zeros(32)},
    "out": normal(32, 5, scale=0.3),
}
X = normal(8, 24)
LABELS = jnp.asarray(RNG.integers(0, 5, 8, np.int32))


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are kept for this run alone."""
    monkeypatch.setenv("POETC_CACHE", str(tmp_path_factory.getbasetemp() / "poetc-cache"))


def loss_of(params: Any, x: Any, labels: Any) -> Any:
    hidden = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    picked = jnp.take_along_axis(jax.nn.log_softmax(hidden @ params["out"]), labels[:, None], 1)
    return -picked.mean()


def step(params: Any, velocity: Any, x: Any, labels: Any) -> Any:
    value, gradients = jax.value_and_grad(loss_of)(params, x, labels)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradients)
    return jax.tree.map(lambda p, v: p - 0.1 * v, params, velocity), velocity, value


def start() -> tuple[Any, ...]:
    return PARAMS, jax.tree.map(jnp.zeros_like, PARAMS), X, LABELS


def compiled(source: Any, args: Any = (), **options: Any) -> poetc.Program:
    return poetc.compile(source, args, **options)


def bits(arrays: Any) -> list[bytes]:
    return [np.asarray(a).tobytes() for a in jax.tree.leaves(arrays)]


def of_jax(steps: int) -> tuple[Any, list[float]]:
    """What XLA computes: the last parameters, and all losses."""
    params, velocity, x, labels = start()
    losses = []
    for _ in range(steps):
        params, velocity, value = jax.jit(step)(params, velocity, x, labels)
        losses.append(float(value))
    return params, losses


@pytest.mark.slow
def test_a_function_of_jax_at_any_budget() -> None:
    """As XLA has it, and with the same bits whatever the budget and wherever parameters are."""
    expected, losses = of_jax(4)
    seen = []
    for options in ({}, {"ram": 13 * 1024}, {"ram": "9KB"}, {"ram": 5000, "stream": "auto"}):
        program = compiled(step, start(), **options)
        found = [program.step(X, LABELS) for _ in range(4)]
        assert all(isinstance(loss, np.ndarray) and loss.shape == () for loss in found)
        np.testing.assert_allclose(found, losses, rtol=1e-5)
        params = program.tree("params")
        assert jax.tree.structure(params) == jax.tree.structure(PARAMS)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), params, expected
        )
        assert program.ram_bytes <= program.report.ram.total_bytes
        seen.append((program.report.params, *bits(found), *bits(params)))
    assert {place for place, *_ in seen} == {"ram", "storage"}
    assert len({tuple(rest) for _, *rest in seen}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{"io": "caller"}, {"ram": "4KB", "stream": "auto"}, *more({}, {"ram": 7 * 1024})]
)
def test_the_same_bits_as_the_program_of_its_own(options: Any, tmp_path: Path) -> None:
    """A file, its arguments beside it, against the C program that reads them from files; with
    parameters in RAM and on storage, and kernels in tiles."""
    arguments, expected = load_arrays(MODEL.with_suffix(".npz"))
    program = compiled(MODEL, data=MODEL.with_suffix(".npz"), **options)
    inputs = dict(zip(program.inputs, arguments[-len(program.inputs) :], strict=True))
    found = [program.step(**inputs) for _ in range(3)]
    module = program._step.compiled.module
    made = run(build(module, tmp_path / "c"), arguments, expected, steps=3)
    new = list(program.parameters.values())
    assert bits(made) == bits([found[-1], *new]) or bits(made) == bits([*new, found[-1]])
    assert bool(program.report.streams) == (options.get("ram") == "4KB")
    assert program.report.params == ("storage" if "ram" in options else "ram")


@pytest.mark.slow
def test_text_and_modules_of_xdsl() -> None:
    """Arguments may come with them or later, by name."""
    arguments, _ = load_arrays(MODEL.with_suffix(".npz"))
    programs = [
        compiled(MODEL.read_text(), arguments),
        compiled(str(MODEL), arguments),
        compiled(read_model("gesture_mlp")),
    ]
    names = list(programs[0].parameters)
    with pytest.raises(poetc.InputError, match=f"no values are known of {re.escape(names[0])}, "):
        programs[2].step(*arguments[-2:])
    programs[2].parameters = dict(zip(names, arguments, strict=False))
    steps = [bits(program.step(*arguments[-2:])) for program in programs]
    assert steps[0] == steps[1] == steps[2]


@pytest.mark.slow
def test_programs_do_not_disturb_each_other() -> None:
    """Two of the same C in turns, and four in threads, each step by several."""
    one, two = (compiled(step, start()) for _ in range(2))
    alone = compiled(step, start())
    expected = [bits(alone.step(X, LABELS)) for _ in range(6)]
    other = compiled(step, start(), ram="9KB")
    assert [bits(one.step(X, LABELS)) for _ in range(2)] == expected[:2]
    assert [bits(two.step(X, LABELS)) for _ in range(4)] == expected[:4]
    seen: list[bytes] = []

    def work(program: poetc.Program, steps: int) -> None:
        for _ in range(steps):
            seen.extend(bits(program.step(X, LABELS)))

    threads = [
        threading.Thread(target=work, args=arguments)
        for arguments in ((one, 2), (one, 2), (two, 1), (two, 1), (other, 3), (other, 3))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    flat = [value for each in expected for value in each]
    assert sorted(seen) == sorted([*flat[2:], *flat[4:], *flat])


@pytest.mark.slow
def test_what_does_not_fit_the_step() -> None:
    program = compiled(step, start())
    assert program.inputs == ("x", "labels")
    for inputs, message in (
        ((X[:4], LABELS), r"x is float32 of shape \(8, 24\), not float32 of shape \(4, 24\)"),
        ((np.float64(X), LABELS), r"not float64 of shape \(8, 24\); .* astype\('float32'\)"),
        ((X, np.int64(LABELS)), "labels is int32"),
        (([[1.0] * 24] * 7, LABELS), "x is float32"),
        ((X, [0.5] * 8), "labels: these numbers are not of int32"),
        ((X, "labels"), "labels is not made of numbers|labels: these"),
        (({"x": X}, LABELS), "x"),
    ):
        with pytest.raises(poetc.InputError, match=message):
            program.step(*inputs)
    for inputs, named, message in (
        ((X,), {}, "no value for labels"),
        ((X, LABELS, X), {}, r"there are 2 inputs \(x, labels\), not 3"),
        ((X, LABELS), {"x": X}, "x: given by position and by name"),
        ((X, LABELS), {"y": X}, "no input y; there are x, labels"),
    ):
        with pytest.raises(TypeError, match=message):
            program.step(*inputs, **named)
    assert bits(program.step(labels=LABELS, x=X.tolist())) == bits(
        compiled(step, start()).step(X, LABELS)
    )
    for name in ("w", "params", "x"):
        with pytest.raises(poetc.InputError, match=f"no parameter {name}; there are params.hidden"):
            program.parameters = {name: X}
    with pytest.raises(poetc.InputError, match="by a mapping of names to arrays, not by NoneType"):
        program.parameters = None  # pyright: ignore
    with pytest.raises(poetc.InputError, match="keeps no argument 'x', but params, velocity"):
        program.tree("x")
    with pytest.raises(poetc.InputError, match="params is PyTreeDef"):
        program.load(params={"out": 1.0})


@pytest.mark.slow
def test_a_budget_that_cannot_be_met() -> None:
    """The exception has what the message says as data."""
    with pytest.raises(poetc.InfeasibleError) as caught:
        compiled(step, start(), ram="2KB", stream="never")
    diagnosis = caught.value.diagnosis
    assert isinstance(diagnosis, poetc.Diagnosis) and diagnosis.reason is Reason.RAM
    assert diagnosis.ram_bytes == 2048 and diagnosis.least_ram is not None
    least = diagnosis.least_ram.known_bytes
    assert least is not None
    assert compiled(step, start(), ram=least).ram_bytes <= least


@pytest.mark.slow
def test_options_are_those_of_the_command_line() -> None:
    assert poetc.CompileOptions.__annotations__.keys() == OPTIONS.keys()
    for options, error, message in (
        ({"rma": 1}, TypeError, "no option rma; there are ram, "),
        ({"params": "flash"}, poetc.InputError, "params='flash': one of auto, ram, storage"),
        ({"ram": "much"}, poetc.InputError, "--ram"),
        ({"ram": X}, TypeError, "ram is text, a number, or a list of names"),
        ({"device": "abacus"}, poetc.InputError, "abacus"),
        ({"device": ""}, poetc.InputError, "device is given without a value"),
        ({"ram": np.int64(-1)}, poetc.InputError, "--ram=-1: must be more than zero"),
        ({"executor": "plan", "train": "params.out"}, poetc.InputError, "plans .* --frozen=off"),
    ):
        with pytest.raises(error, match=message):
            compiled(step, start(), **options)
    with (
        pytest.warns(UserWarning, match="did you mean 900KB") as caught,
        pytest.raises(poetc.InfeasibleError),
    ):
        poetc.compile(step, start(), ram=900)
    assert {Path(each.filename) for each in caught} == {Path(__file__)}
    program = compiled(step, start(), ram="9KB", paging=False, train=["params.out"])
    assert program.report.page_ins == 0
    before = program.tree("params")
    program.step(X, LABELS)
    after = program.tree("params")
    assert bits(before["hidden"]) == bits(after["hidden"])
    assert bits(before["out"]) != bits(after["out"])


def test_sources_that_are_none() -> None:
    invalid = read_model("gesture_mlp")
    main = next(op for op in invalid.walk() if op.name == "func.func")
    main.properties["sym_name"] = builtin.IntegerAttr(1, 32)
    for source, args, message in (
        (3, (), "not of the type int"),
        (builtin.ModuleOp([]), (), "no function"),
        (invalid, (), "<module> is not valid"),
        ("nowhere.mlir", (), "cannot read nowhere.mlir"),
        ("module {\n  nonsense\n}", (), "<string>:2"),
        (MODEL, (X,), "takes 6 arguments, not 1|takes 8 arguments, not 1|arguments, not 1"),
    ):
        with pytest.raises(poetc.InputError, match=message):
            compiled(source, args)

    def unsupported(params: Any, x: Any) -> Any:
        return {"w": jnp.sort(params["w"]) + jnp.linalg.eigvals(x).real.astype(jnp.float32)}

    with pytest.raises(poetc.InputError, match=r"test_api\.py"):
        compiled(unsupported, ({"w": jnp.ones(3)}, jnp.ones((3, 3))))


@pytest.mark.slow
def test_parameters_are_read_and_set() -> None:
    """What was read is a copy; set on another program, it goes on with the same bits."""
    for options in ({}, {"params": "storage"}):
        one, two = (compiled(step, start(), **options) for _ in range(2))
        one.step(X, LABELS)
        saved, tree = one.parameters, one.tree("velocity")
        expected = bits(one.step(X, LABELS))
        two.parameters = {name: saved[name] for name in saved if name.startswith("params")}
        two.load(velocity=tree)
        assert bits(two.step(X, LABELS)) == expected
        saved["params.out"][:] = 0
        assert bits(two.tree("params")) == bits(one.tree("params"))


def test_a_damaged_page_is_an_exception() -> None:
    program = compiled(step, start(), params="storage", ram="9KB")
    expected, losses = program.parameters, program.step(X, LABELS)
    program.parameters = expected
    storage = program._shared.storage
    flipped = storage.copy()
    flipped[len(flipped) // 2] ^= 1
    good = storage.copy()
    for place in range(0, len(storage), 97):
        storage[:] = good
        storage[place] ^= 1
        try:
            assert bits(program.step(X, LABELS)) == bits(losses)
        except poetc.StepError as error:
            assert error.status in ("CORRUPT", "NO_IMAGE")
            break
    else:
        raise AssertionError("no damage was found")
    storage[:] = good
    assert bits(program.parameters) == bits(expected)
    assert bits(program.step(X, LABELS)) == bits(losses)


def test_a_processor_that_flushes_denormals() -> None:
    """A step does nothing where it would compute something else."""
    torch = pytest.importorskip("torch")
    program = compiled(step, start())
    before = program.parameters
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor has no such mode")
    try:
        with pytest.raises(poetc.StepError, match="denormal") as caught:
            program.step(X, LABELS)
    finally:
        torch.set_flush_denormal(False)
    assert caught.value.status == "FLOAT_DENORMALS"
    assert bits(program.parameters) == bits(before)
    program.step(X, LABELS)


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A C compiler that writes down that it was run, and an empty cache."""
    log, script = tmp_path / "log", tmp_path / "compiler"
    script.write_text(f'#!/bin/sh\ncase "$1" in --version) ;; *) echo run >> {log} ;; esac\n')
    with script.open("a") as file:
        file.write('exec cc "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    monkeypatch.setenv("POETC_CACHE", str(tmp_path / "cache"))
    log.write_text("")
    yield log


@pytest.mark.slow
def test_what_was_compiled_is_kept(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = normal(4), normal(4)

    def program(**options: Any) -> poetc.Program:
        return compiled(lambda w, x: (w - x, w @ x), (w, x), donate_argnums=0, **options)

    def runs() -> int:
        return len(compiler.read_text().splitlines())

    first = program()
    assert runs() == 0, "the report needs no C compiler"
    first.step(x)
    program().step(x)
    assert runs() == 1
    program(params="storage").step(x)
    assert runs() == 2
    monkeypatch.setenv("CFLAGS", "-O1")
    program().step(x)
    assert runs() == 3
    cache = Path(os.environ["POETC_CACHE"])
    assert len(list(cache.iterdir())) == 3
    monkeypatch.setenv("CFLAGS", "-ffast-math -Dno_such")
    assert bits(program().step(x)) == bits(program().step(x))
    monkeypatch.setenv("CFLAGS", "-DMODEL_ARENA_BYTES=1 -Werror")
    with pytest.raises(poetc.InputError, match="does not compile the program"):
        program().step(x)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(poetc.InputError, match="CC=no-such-compiler"):
        program().step(x)
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setenv("POETC_CACHE", "/proc/nowhere")
    with pytest.raises(poetc.InputError, match="POETC_CACHE names another directory"):
        program().step(x)


@pytest.mark.slow
def test_a_jitted_step_returns_what_the_function_does() -> None:
    """Pytrees in, pytrees out, as jax.jit has them; also for arguments that were changed."""
    jitted = poetc.jit(ram="64KB", donate_argnums=(0, 1))(step)
    mine, theirs = start()[:2], start()[:2]
    for _ in range(3):
        *mine, loss = jitted(*mine, X, LABELS)
        *theirs, expected = jax.jit(step)(*theirs, X, LABELS)
        assert jax.tree.structure(mine) == jax.tree.structure(theirs)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), mine, theirs)
    mine = jax.tree.map(lambda a: 0.5 * a, mine)
    again = compiled(step, (*mine, X, LABELS))
    assert bits(jitted(*mine, X, LABELS)[-1]) == bits(again.step(X, LABELS))
    program = jitted.program(*mine, X, LABELS)
    assert program.report.ram.budget_bytes == 64 * 1024
    assert program is jitted.program(*start())
    assert jitted.program(*start()[:2], X[:4], LABELS[:4]) is not program
    leaf = jax.tree.leaves(jitted(*mine, X, LABELS))[0]
    with pytest.raises(ValueError, match="read-only"):
        leaf[:] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        leaf.flags.writeable = True


@pytest.mark.slow
def test_a_jitted_step_whose_weights_are_held_in_16_bits() -> None:
    """What it returns are arguments of the next call, in the types of the function."""

    def rounded(tree: Any) -> Any:
        return jax.tree.map(lambda a: np.asarray(a).astype(np.float16).astype(np.float32), tree)

    jitted = poetc.jit(pages="f16", donate_argnums=(0, 1))(step)
    mine = theirs = start()[:2]
    for _ in range(3):
        *mine, loss = jitted(*mine, X, LABELS)
        params, velocity, expected = jax.jit(step)(rounded(theirs[0]), theirs[1], X, LABELS)
        theirs = (params, velocity)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert {leaf.dtype for leaf in jax.tree.leaves(mine)} == {np.dtype(np.float32)}
    again = jitted(*jax.tree.map(np.array, mine), X, LABELS)
    assert bits(again[-1]) == bits(jitted(*mine, X, LABELS)[-1])


def test_jit_of_one_result_and_numbers() -> None:
    @poetc.jit
    def scale(state: Any, factor: Any) -> Any:
        return {"w": state["w"] * factor}

    assert vars(scale)["__name__"] == "scale"
    state = {"w": np.arange(4, dtype=np.float64)}
    for _ in range(2):
        state = scale(state, 2.0)
    assert state["w"].dtype == np.float32 and state["w"].tolist() == [0, 4, 8, 12]


def test_results_that_are_pytrees() -> None:
    def metrics(params: Any, x: Any) -> Any:
        return {"w": params["w"] + 1}, {"sum": x["a"].sum(), "more": (x["b"] * 2, x["a"])}

    x = {"a": jnp.arange(3.0), "b": jnp.ones(2)}
    program = compiled(metrics, ({"w": jnp.zeros(2)}, x))
    found = program.step(x)
    assert found["sum"] == 3 and found["more"][0].tolist() == [2, 2]
    assert found["more"][1].tolist() == [0, 1, 2]
    for change in ({"a": x["a"]}, x["a"]):
        with pytest.raises(poetc.InputError, match="x is PyTreeDef"):
            program.step(change)


@pytest.mark.slow
def test_random_keys_are_inputs() -> None:
    def noisy(params: Any, key: Any, x: Any) -> Any:
        noise = jax.random.normal(key, x.shape)
        return {"w": params["w"] + (x * noise).sum()}, (x * noise).sum()

    x, params = jnp.arange(4.0), {"w": jnp.zeros(())}
    program = compiled(noisy, (params, jax.random.key(0), x))
    jitted = poetc.jit(noisy)
    for seed in (0, 1):
        _, expected = noisy(params, jax.random.key(seed), x)
        np.testing.assert_allclose(program.step(jax.random.key(seed), x), expected, rtol=1e-5)
        np.testing.assert_allclose(jitted(params, jax.random.key(seed), x)[1], expected, rtol=1e-5)
    assert len(jitted._programs) == 1


def test_arrays_of_other_libraries_are_not_copied() -> None:
    from poetc.arrays import as_numpy

    torch = pytest.importorskip("torch")
    tensor = torch.ones(3, 2, requires_grad=True)
    array = as_numpy(tensor, "x", (3, 2), np.dtype(np.float32))
    assert array.ctypes.data == tensor.data_ptr()
    half = torch.ones(2, dtype=torch.bfloat16)
    import ml_dtypes

    bf16 = np.dtype(ml_dtypes.bfloat16)
    assert as_numpy(half, "x", (2,), bf16).tolist() == [1, 1]
    assert as_numpy(jnp.ones(2, jnp.bfloat16), "x", (2,), bf16).tolist() == [1, 1]
    assert as_numpy(jnp.array([True]), "x", (1,), np.dtype(bool)).tolist() == [True]
    x = jnp.ones(5)
    assert as_numpy(x, "x", (5,), np.dtype(np.float32)).ctypes.data == x.unsafe_buffer_pointer()


@pytest.mark.slow
def test_saved_programs_do_the_same_step(tmp_path: Path) -> None:
    """`make run` compares with the results of the program in this process, and finds no
    difference; the step that is saved is not done here."""
    program = compiled(step, start(), ram="9KB")
    with pytest.raises(poetc.InputError, match="no form 'elf'; there are ir, c"):
        program.save(tmp_path / "c", "elf")
    with pytest.raises(TypeError, match="no option nmae"):
        program.save(tmp_path / "c", nmae="net")
    with pytest.raises(poetc.InputError, match="ram do not say how 'c' is written"):
        program.save(tmp_path / "c", ram=1)
    with pytest.raises(poetc.InputError, match="executor='plan'"):
        program.save(tmp_path / "plan", "plan")
    program.step(X, LABELS)
    before = program.parameters
    program.save(tmp_path / "c", data=True, name="net")
    program.save(tmp_path / "net.mlir", "ir")
    program.save(tmp_path / "report.json", "report")
    program.draw("plot", tmp_path / "memory.svg")
    assert "<svg" in (tmp_path / "memory.svg").read_text()
    with pytest.raises(poetc.InputError, match="no picture 'sound'; there are report, trace"):
        program.draw("sound", tmp_path / "memory.wav")
    assert bits(program.parameters) == bits(before)
    done = subprocess.run(["make", "-s", "-C", tmp_path / "c", "run"], capture_output=True)
    assert done.returncode == 0, done.stderr
    differences = [line for line in done.stdout.decode().splitlines() if "difference" in line]
    assert differences and all(line.endswith(" 0.0e+00") for line in differences), differences
    again = compiled(tmp_path / "net.mlir")
    again.parameters = before
    assert bits(again.step(X, LABELS)) == bits(program.step(X, LABELS))


def test_the_report_of_notebooks() -> None:
    program = compiled(step, start(), ram="9KB")
    assert repr(program) == f"<Program step: {program.ram_bytes:,} bytes of RAM on nrf52840>"
    html = program.report._repr_html_()
    assert html.count("<table>") == 1 and "RAM budget" in html and "9,216 B" in html
    for line in program.report.to_text().splitlines():
        assert not line or line.split("  ")[0].split("&")[0] in html


@pytest.mark.slow
def test_plans_in_this_process() -> None:
    code, plan = (compiled(step, start(), ram="10KB", executor=e) for e in ("code", "plan"))
    assert bits([code.step(X, LABELS) for _ in range(2)]) == bits(
        [plan.step(X, LABELS) for _ in range(2)]
    )


@pytest.mark.slow
def test_importing_is_cheap() -> None:
    """Neither frameworks nor the compiler itself, before they are used."""
    code = "import sys, poetc; dir(poetc); print(*sys.modules)"
    run = [sys.executable, "-c", code]
    loaded = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "jax", "torch", "xdsl", "highspy"} & set(loaded)
    code = (
        "import sys, poetc\n"
        "text = 'func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> '\n"
        "text += 'tensor<4xf32> {\\n%0 = stablehlo.add %w, %w : tensor<4xf32>\\n"
        "return %0 : tensor<4xf32>\\n}\\n'\n"
        "p = poetc.compile(text, ([1., 2., 3., 4.],))\n"
        "p.step()\n"
        "(w,) = p.call([5.0, 6.0, 7.0, 8.0])\n"
        "print(w.tolist(), {'jax', 'torch'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[10.0, 12.0, 14.0, 16.0] set()\n", done.stderr


def test_no_warnings_without_cause() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(step, start(), ram="16KB").step(X, LABELS)


@pytest.mark.slow
def test_the_readme_and_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their Python runs as it stands there."""
    monkeypatch.chdir(tmp_path)
    given = {"parameters": PARAMS, "params": PARAMS, "x": X, "labels": LABELS, "y": LABELS}

    def sgd(params: Any, x: Any, labels: Any) -> Any:
        value, gradients = jax.value_and_grad(loss_of)(params, x, labels)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value

    names: dict[str, Any] = given | {"train_step": sgd, "step": sgd, "batches": [(X, LABELS)] * 2}
    readme = (ROOT / "README.md").read_text().partition("## From Python")[2]
    page = (ROOT / "docs" / "api.md").read_text()
    blocks = [text.partition("```python\n")[2].partition("```")[0] for text in (readme, page)]
    for block in blocks:
        assert "poetc.compile" in block
        exec(block, names)
    assert (tmp_path / "board" / "Makefile").exists()
    assert jax.tree.structure(names["trained"]) == jax.tree.structure(PARAMS)
    (tried,) = re.findall(r"^try:\n.*?```", page, re.MULTILINE | re.DOTALL)
    exec(
        tried.removesuffix("```").replace('"6KB"', '"1100"'), names | {"args": (PARAMS, X, LABELS)}
    )
