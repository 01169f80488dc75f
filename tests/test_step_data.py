"""`--data`: a program with the data of one step runs it and compares, and any fault of the data is
one error before anything is written."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import numpy as np
import pytest
from conftest import MODELS, more
from ml_dtypes import bfloat16

from poetc.backends.c.libraries.step import COMPARE
from poetc.backends.c.step_files import compare_sources
from poetc.cli import main
from poetc.compare import difference, floor

pytestmark = pytest.mark.usefixtures("whole")

GESTURE = MODELS / "gesture_mlp"
CASES = Path(__file__).parent / "cases"
QUICK = ("--time-limit=5", "--stream=never", "-q")
Arrays = dict[str, np.ndarray]


def changed(source: Path, target: Path, change: Callable[[Arrays], None]) -> Path:
    with np.load(source) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(target, allow_pickle=False, **arrays)
    return target


def compiled(model: Path, out: Path, *options: str, data: Path | None = None) -> Path:
    words = [str(model.with_suffix(".mlir")), "--emit=c", "-o", str(out), *QUICK, *options]
    given = [f"--data={data or model.with_suffix('.npz')}"]
    assert main([*words, *given]) == 0
    return out


def make_run(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-s", "-C", out, "run", "CFLAGS=-O1", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def found(output: str) -> dict[int, str]:
    """What is said of each result."""
    return {int(k): text for k, text in re.findall(r"^out(\d+): (.*)$", output, re.MULTILINE)}


def worst(output: str) -> float:
    return max(float(n) for n in re.findall(r"relative difference (\S+)", output))


def spoil_expected(out: Path, number: int) -> None:
    """Changes the last element of a result in expected.bin."""
    with np.load(GESTURE.with_suffix(".npz")) as file:
        ends = np.cumsum([file[f"out{k}"].size for k in range(7)])
        size = np.max(np.abs(file[f"out{number}"]))
    path = out / "data" / "expected.bin"
    values = np.fromfile(path, np.float32)
    assert len(values) == ends[-1]
    values[ends[number] - 1] += 0.01 * size
    values.tofile(path)


# Runs


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--ram=4KB", "--stream=auto"),
        ("--io=caller",),
        ("--params=storage", "--executor=plan", "--name=gesture"),
        ("--ram=12KB", "--board=microbit", "--params=storage"),
        *more(
            (("--ram=9600",),),
            (("--ram=8KB",),),
            (("--ram=8KB", "--board=lm3s6965", "--params=storage", "--stack=640"),),
        ),
    ],
    ids=" ".join,
)
def test_make_run_does_one_step_and_compares(options: tuple[str, ...], tmp_path: Path) -> None:
    """In RAM, on storage, in tiles; here and in the emulator; again and again."""
    out = compiled(GESTURE, tmp_path / "out", *options)
    for _ in range(2):
        done = make_run(out)
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(found(done.stdout)) == list(range(7)) and worst(done.stdout) < 1e-6
    # The image stays what it was, and the copy has what the step made of it.
    if (out / "data" / "image.bin").exists():
        images = [(out / "data" / name).read_bytes() for name in ("image.bin", "storage.bin")]
        assert images[0] != images[1][: len(images[0])]
    done = make_run(out, "STEPS=3")
    assert done.returncode == 0 and not found(done.stdout) and "not compared" in done.stdout
    done = make_run(out, "TOLERANCE=1e-12")
    assert done.returncode != 0 and "too much" in done.stdout
    # Each expected result in turn with one element that is off.
    assert make_run(out).returncode == 0
    for number in range(7):
        spoil_expected(out, number)
        (compare,) = out.glob("*_compare")
        done = subprocess.run([compare, out / "data", "1e-4"], capture_output=True, text=True)
        assert done.returncode == 1
        wrong = [k for k, text in found(done.stdout).items() if "too much" in text]
        assert wrong == list(range(number + 1)), done.stdout


@pytest.mark.slow
def test_integers_and_booleans_are_the_same_or_wrong(tmp_path: Path) -> None:
    case = CASES / "misc_bool_int"
    done = make_run(compiled(case, tmp_path / "out"))
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(case.with_suffix(".npz")) as file:
        exact = [
            int(name[3:]) for name in file if name[:3] == "out" and file[name].dtype.kind != "f"
        ]
    assert exact and all(found(done.stdout)[k] == "the same" for k in exact)

    def spoil(arrays: Arrays) -> None:
        array = arrays[f"out{exact[0]}"]
        array.flat[0] = not array.flat[0] if array.dtype == np.bool_ else array.flat[0] + 1

    data = changed(case.with_suffix(".npz"), tmp_path / "wrong.npz", spoil)
    done = make_run(compiled(case, tmp_path / "out", data=data))
    assert done.returncode != 0
    assert found(done.stdout)[exact[0]] == "not the same, but has to be"


@pytest.mark.slow
def test_cmake_runs_it_too(tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("no cmake")
    out = compiled(GESTURE, tmp_path / "out", "--layout=cmake", "--params=storage")
    build = ["cmake", "-S", out, "-B", tmp_path / "build"]
    subprocess.run(build, check=True, capture_output=True)
    for wrong in (False, True):
        if wrong:
            spoil_expected(out, 2)
        run = ["cmake", "--build", tmp_path / "build", "--target", "model_run"]
        done = subprocess.run(run, capture_output=True, text=True)
        assert (done.returncode == 0) is not wrong, done.stdout + done.stderr
        assert len(found(done.stdout)) == 7
        assert not (out / "data" / "storage.bin").exists()


@pytest.mark.slow
def test_without_results_it_only_runs(tmp_path: Path) -> None:
    def forget(arrays: Arrays) -> None:
        for name in [name for name in arrays if name.startswith("out")]:
            del arrays[name]

    data = changed(GESTURE.with_suffix(".npz"), tmp_path / "data.npz", forget)
    out = compiled(GESTURE, tmp_path / "out", data=data)
    done = make_run(out)
    assert done.returncode == 0 and "status: ok" in done.stdout and not found(done.stdout)
    assert not (out / COMPARE).exists()

    def some(arrays: Arrays) -> None:
        del arrays["out1"], arrays["out5"]

    data = changed(GESTURE.with_suffix(".npz"), tmp_path / "data.npz", some)
    done = make_run(compiled(GESTURE, tmp_path / "out", data=data))
    assert done.returncode == 0 and list(found(done.stdout)) == [0, 2, 3, 4, 6]


@pytest.mark.slow
def test_floats_of_16_bits_in_files_images_and_results(tmp_path: Path) -> None:
    """Of bf16, NumPy's files have the bytes only."""
    model = MODELS.parent / "cases" / "bf16_mlp"
    done = make_run(compiled(model, tmp_path / "out", "--params=storage"))
    assert done.returncode == 0 and len(found(done.stdout)) == 7, done.stdout + done.stderr
    assert 1e-4 < worst(done.stdout) < 0.0625
    image, unpacked = tmp_path / "out" / "data" / "image.bin", tmp_path / "parameters.npz"
    assert main(["unpack", "-q", str(tmp_path / "out"), str(image), "-o", str(unpacked)]) == 0
    with np.load(unpacked) as a, np.load(model.with_suffix(".npz")) as b:
        assert len(a) == 6
        assert all(a[k].dtype == "V2" and a[k].tobytes() == b[k].tobytes() for k in a)


# The definition of differences


def test_differences_are_those_of_the_one_definition(tmp_path: Path) -> None:
    """Random results, with what is not finite, denormals and zeros, of all sizes."""
    rng = np.random.default_rng(3)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, 1.0], np.float32)
    expected: list[np.ndarray] = []
    got: list[np.ndarray] = []
    for k in range(240):
        dtype = (np.float32, np.float32, np.float16, bfloat16)[k // 2 % 4]
        size = int(rng.integers(0, 9))
        a = rng.standard_normal(size) * 10.0 ** float(rng.integers(-44, 38))
        with np.errstate(all="ignore"):
            b = a * (1 + rng.standard_normal(size) * 10.0 ** float(rng.integers(-9, 3)))
            a, b, values = (x.astype(np.float32).astype(dtype) for x in (a, b, special))
        for array in (a, b) if k % 2 else (a,):
            where = rng.random(size) < 0.2
            array[where] = rng.choice(values, int(where.sum()))
        expected.append(a)
        got.append(b if k % 7 else a.copy())
    at_least = floor(expected[:40]) * 1e-30
    pieces, data = compare_sources(list(enumerate(expected)), at_least)
    source = tmp_path / COMPARE
    source.write_text(pieces[COMPARE].replace('#include "model_build.h"', ""))
    (tmp_path / "compare_pieces.h").write_text(pieces["compare_pieces.h"])
    (tmp_path / "expected.bin").write_bytes(data)
    for k, array in enumerate(got):
        (tmp_path / f"out{k}.bin").write_bytes(array.tobytes())
    options = (
        "-std=c99",
        "-O2",
        "-Wall",
        "-Wextra",
        "-Wconversion",
        "-Werror",
        "-fsanitize=undefined",
    )
    subprocess.run(["gcc", *options, "-o", tmp_path / "compare", source], check=True)
    done = subprocess.run([tmp_path / "compare", tmp_path, "1e-3"], capture_output=True, text=True)
    wanted = [difference(a, b, at_least) for a, b in zip(got, expected, strict=True)]
    assert sum(np.isinf(wanted)) > 5 and sum(0 < d < 1e-3 for d in wanted) > 20
    assert done.returncode == 1
    for k, d in enumerate(wanted):
        text = found(done.stdout)[k]
        assert text.split()[2].rstrip(",") == f"{d:.1e}", (k, text, d)
        assert ("too much" in text) is (d > 1e-3)


# Faults of the data


def no_arg(arrays: Arrays) -> None:
    del arrays["arg3"]


def reshaped(arrays: Arrays) -> None:
    arrays["arg2"] = arrays["arg2"][..., None]


def double(arrays: Arrays) -> None:
    arrays["arg2"] = arrays["arg2"].astype(np.float64)


def one_more(arrays: Arrays) -> None:
    arrays["arg8"] = arrays["arg0"]


def result_too_many(arrays: Arrays) -> None:
    arrays["out7"] = arrays["out0"]


def huge_number(arrays: Arrays) -> None:
    arrays["out" + "9" * 5000] = arrays["out0"]


def other_result(arrays: Arrays) -> None:
    arrays["out1"] = arrays["out1"][:-1]


def too_large(arrays: Arrays) -> None:
    arrays["out0"] = np.zeros(1 << 20, np.float32)


FAULTS: dict[Callable[[Arrays], None], str] = {
    no_arg: "has no arg3; the model takes 8",
    reshaped: "arg2 must be float32 of shape",
    double: "arg2 must be float32 of shape",
    one_more: "has arg8; the model has 8 arguments",
    result_too_many: "has out7; the model has 7 results",
    huge_number: "; the model has 7 results",
    other_result: "out1 must be float32 of shape (32,), not float32 of shape (31,)",
    too_large: "bytes that any array of the model has",
}


def refused(*words: str) -> str:
    err = io.StringIO()
    with redirect_stderr(err):
        assert main(list(words)) == 2
    (line,) = err.getvalue().splitlines()
    assert line.startswith("poetc: error: ")
    return line


@pytest.fixture(scope="module")
def in_tiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ir = tmp_path_factory.mktemp("ir") / "step.mlir"
    assert main([f"{GESTURE}.mlir", "--ram=4KB", *QUICK, "--stream=auto", "-o", str(ir)]) == 0
    return ir


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_faults_of_data(fault: Callable[[Arrays], None], in_tiles: Path, tmp_path: Path) -> None:
    data = changed(GESTURE.with_suffix(".npz"), tmp_path / "data.npz", fault)
    words = (f"{GESTURE}.mlir", "--emit=c", "-o", str(tmp_path / "out"), f"--data={data}")
    assert FAULTS[fault] in refused(*words)
    # For IR that is scheduled, in tiles, too.
    assert FAULTS[fault] in refused(str(in_tiles), *words[1:])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--emit=c", "--board=generic"), "--data: generic has no emulator"),
        (("--emit=c", "--layout=arduino"), "--data: --layout=arduino has no program"),
        (("--emit=c", "--layout=zephyr"), "--data: --layout=zephyr has no program"),
        (("--emit=plan",), "--data says how C is written"),
        (("--passes=poet-verify",), "--data cannot go with --passes"),
    ],
)
def test_what_data_cannot_go_with(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    assert message in refused(f"{GESTURE}.mlir", *words, "-o", out, f"--data={GESTURE}.npz")
    assert not list(tmp_path.iterdir())


def test_files_that_are_no_data(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    np.save(tmp_path / "one.npy", np.zeros(3))
    out = tmp_path / "out"
    for name in ("missing", "text", "one.npy", "."):
        file = f"--data={tmp_path / name}"
        line = refused(f"{GESTURE}.mlir", "--emit=c", "-o", str(out), file)
        assert str(tmp_path) in line and not out.exists()


# The directory


@pytest.mark.slow
def test_data_that_the_user_has_changed_are_kept(tmp_path: Path) -> None:
    out = compiled(GESTURE, tmp_path / "out", "--params=storage")
    assert make_run(out).returncode == 0
    compiled(GESTURE, out, "--params=storage")  # What is as it was written is written anew.
    data = out / "data"
    mine = data / "arg6.bin"
    mine.write_bytes(mine.read_bytes()[::-1])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    words = (f"{GESTURE}.mlir", "--emit=c", "-o", str(out), *QUICK, f"--data={GESTURE}.npz")
    assert "not generated by poetc, and would be overwritten: data/arg6.bin" in refused(*words)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    # Without data, those go that are as they were written, and nothing else.
    assert main([f"{GESTURE}.mlir", "--emit=c", "-o", str(out), *QUICK]) == 0
    left = {path.name for path in data.iterdir()}
    assert {"arg6.bin", "storage.bin", "out0.bin"} <= left
    assert not left & {"arg7.bin", "image.bin", "expected.bin"}
    assert not (out / COMPARE).exists()
