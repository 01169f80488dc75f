"""Every option of every command, with values that nobody means: one line says so, or it works."""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path

import pytest

from poetc.backends.plan.codec import identity_of
from poetc.cli import compile, image, main, profile
from poetc.cli.arguments import MAY_BE_EMPTY, Parser
from poetc.universe import UNIVERSE

ROOT = Path(__file__).parent.parent
SMALL = """\
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<4xf32>)
    -> (tensor<4xf32>) {
  %0 = stablehlo.add %w, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""

EMPTY = ("", "--")
NUMBERS = (
    *("1_0", "1_0KB", "\u0661\u0662", "\u0661\u0662KB", "\u2460", "nan", "inf", "-inf", "1e400"),
    *("-1", "0", "0x10", "4611686018427387905", "9" * 400, "9" * 5000),
)
WORDS = (" ", "-", "..", "a/b", "x" * 300, "x" * 5000, "\x1b[31m", "1KB\n", "\udc80", "\0", "%s{}")

COMMANDS = {
    "compile": (compile.build_parser(), ("step.mlir", "-q", "--time-limit=2")),
    "profile": (profile.build_parser(), ("profile", "step.mlir", "-q")),
    "pack": (image.build_parser("pack"), ("pack", "out", "a.npz", "-q")),
    "unpack": (image.build_parser("unpack"), ("unpack", "out", "a.bin", "-q")),
}
C, TVM = ("--emit=c", "-o", "made"), ("--emit=tvm", "-o", "made.so")
CONTEXT = {
    **dict.fromkeys(("name", "layout", "kernels", "board", "executor", "data"), C),
    **dict.fromkeys(("tuning", "target"), TVM),
    "tune": (*TVM, "--tuning=records"),
    "cc": ("--stack=measure",),
    **dict.fromkeys(("emit", "to"), ("-o", "made")),
}
"""What an option means something with."""


def options(parser: Parser) -> list[tuple[str, str]]:
    """Those that have a value: names as they are in the namespace and on the command line."""
    actions = (a for a in parser._actions if a.option_strings and a.nargs != 0)
    return [(action.dest, action.option_strings[-1]) for action in actions]


OPTIONS = [(c, *option) for c, (parser, _) in COMMANDS.items() for option in options(parser)]
SLOW = (("profile", "output"), ("profile", "cflags"), ("compile", "target"))
"""Options of which many values have something compiled."""


@pytest.mark.parametrize(
    ("command", "dest", "option"),
    [o if o[:2] not in SLOW else pytest.param(*o, marks=pytest.mark.slow) for o in OPTIONS],
    ids=lambda v: v.lstrip("-"),
)
def test_hostile_values(
    command: str, dest: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a traceback, nor an internal error, nor a file that is half written."""
    if CONTEXT.get(dest) is not None and "--emit=tvm" in CONTEXT[dest]:
        pytest.importorskip("tvm")
    monkeypatch.chdir(tmp_path)
    Path("step.mlir").write_text(SMALL)
    _, words = COMMANDS[command]
    context = CONTEXT.get(dest, ()) if command in ("compile", "pack") else ()
    for value in (*EMPTY, *NUMBERS, *WORDS):
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*words, *context, f"{option}={value}"])
        what = f"{option}={value[:40]!r}: {code}, {err.getvalue()[:400]}"
        lines = [line for line in err.getvalue().splitlines() if "poetc: warning: " not in line]
        assert code in (0, 2, 3), what
        if code:
            assert len(lines) == 1 and lines[0].startswith("poetc: error: "), what
            assert lines[0].isprintable() or "\udc80" in value, what
        if value in EMPTY and dest not in MAY_BE_EMPTY:
            assert code == 2 and option in lines[0], what
    assert not list(tmp_path.glob(".poetc.*"))


@pytest.mark.parametrize(
    ("option", "value"),
    [("--time-limit", "1_0"), ("--gap", "0.0_1"), ("--stack", "1_024"), ("--static", "\u0661")],
)
def test_numbers_are_ascii_digits(option: str, value: str, tmp_path: Path) -> None:
    model = tmp_path / "step.mlir"
    model.write_text(SMALL)
    err = io.StringIO()
    with redirect_stderr(err):
        assert main([str(model), f"{option}={value}"]) == 2
    assert f"{option}={value}: not a" in err.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("emit", ["ir", "report", "tvm", "plan"])
def test_a_dash_is_standard_output_wherever_one_file_is_written(emit: str, tmp_path: Path) -> None:
    if emit == "tvm":
        pytest.importorskip("tvm")
    (tmp_path / "step.mlir").write_text(SMALL)
    command = [sys.executable, "-m", "poetc.cli", "step.mlir", f"--emit={emit}", "-q", "-o"]
    done = subprocess.run([*command, "-"], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"") and len(done.stdout) > 10
    assert [path.name for path in tmp_path.iterdir()] == ["step.mlir"]
    if emit == "plan":
        subprocess.run([*command, "plan.bin"], cwd=tmp_path, check=True)
        assert (tmp_path / "plan.bin").read_bytes() == done.stdout
        assert identity_of(done.stdout)


@pytest.mark.parametrize(
    ("script", "lacks"), [("jax_step", "jax"), ("torch_step", "torch"), ("relax_training", "tvm")]
)
def test_examples_without_their_extra(script: str, lacks: str, tmp_path: Path) -> None:
    """One line says what to install."""
    (tmp_path / f"{lacks}.py").write_text(f"raise ModuleNotFoundError('no', name='{lacks}')\n")
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); sys.argv = ['x', 'y']; "
        f"runpy.run_path('examples/{script}.py', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and f"pip install 'poetc[{lacks}" in done.stderr


NUMBERS_OF_PASSES = [
    (name, field.name)
    for name, of in UNIVERSE.all_passes.items()
    for field in fields(of())
    if any(kind in str(field.type).split(" | ") for kind in ("int", "float"))
]
STEP = (
    "stablehlo-simplify,stablehlo-to-poet,poet-fuse,poet-lower-kernels,"
    "poet-annotate{device=nrf52840},poet-order,poet-schedule{ram=4096 device=nrf52840},"
    "poet-plan-transfers{device=nrf52840},poet-plan-memory,poet-read-ahead{device=nrf52840}"
)


@pytest.mark.parametrize(("name", "field"), NUMBERS_OF_PASSES)
def test_hostile_numbers_of_passes(name: str, field: str, tmp_path: Path) -> None:
    """Numbers that are no limit, nor an alignment, nor a time: a line says so, or it works."""
    source = tmp_path / "step.mlir"
    source.write_text(SMALL)
    before = STEP.split(",")
    if name == "poet-pair":
        before = before[:3]
    elif name not in ("poet-plan-memory", "poet-read-ahead"):
        before = before[:6]
    else:
        before = before[: next(n for n, each in enumerate(before) if each.startswith(name))]
    given = {"ram": 4096, "device": "nrf52840"}
    own = {each.name for each in fields(UNIVERSE.all_passes[name]())} & given.keys()
    refused = 0
    for number in ("-1", "0", "3", str(2**62 + 1), str(2**80), str(10**30), "nan", "-1.0"):
        asked = {**{key: given[key] for key in own}, field: number}
        words = " ".join(f"{key}={value}" for key, value in asked.items())
        passes = ",".join([*before, f"{name}{{{words}}}"])
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
            status = main([str(source), f"--passes={passes}"])
        assert status in (0, 2, 3, 4), (words, said.getvalue())
        refused += status == 2
    assert refused, "any number is accepted"


def test_there_are_numbers_of_passes() -> None:
    assert {("poet-pair", "ram"), ("poet-stream", "align")} <= set(NUMBERS_OF_PASSES)
