"""What commands write to the terminal: no control characters, whatever the model calls things."""

import ast
import json
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import poetc
from poetc.cli import main
from poetc.costmodel.profile import KEY_DIGITS, Profile, Transfers
from poetc.ir.text import parse_module
from poetc.terminal import say, warn

pytestmark = pytest.mark.usefixtures("whole")

NASTY = "w\x1b[31m\x00\x07\x7f\x9b2J\u202e\u2066\u200b\u2028\ufeff\U000e0001\u00f6\u5bc6"
"""Of most kinds that terminals and editors obey or hide."""
FILE = "\u202estep\u200b\x85.mlir"
"""The same without what the command line refuses."""


def literal(text: str) -> str:
    return "".join(f"\\{byte:02X}" for byte in text.encode())


STEP = f"""\
func.func public @main(
    %w: tensor<64xf32> {{tf.aliasing_output = 1 : i32, poet.name = "{literal(NASTY)}"}},
    %x: tensor<64xf32> {{poet.name = "{literal("x" + NASTY)}"}})
    -> (tensor<f32> {{jax.result_info = "{literal("loss" + NASTY)}"}}, tensor<64xf32>) {{
  %0 = stablehlo.exponential %x : tensor<64xf32>
  %1 = stablehlo.multiply %w, %0 : tensor<64xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
  return %2, %1 : tensor<f32>, tensor<64xf32>
}}
"""
KERNEL = f"""\
poet.graph @main(%x: tensor<4xf32>) -> tensor<4xf32> {{
  %y = poet.compute "abs{literal(NASTY)}" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {{
    %0 = stablehlo.abs %a : tensor<4xf32>
    poet.yield %0 : tensor<4xf32>
  }}
  poet.return %y : tensor<4xf32>
}}
"""
FAULTY = STEP.replace("i32, poet", "f32, poet")
UNKNOWN = f'func.func public @main() {{\n  "{literal(NASTY)}"() : () -> ()\n  return\n}}\n'
STORED = ("--params=storage", "--ram=4KB", "--stream=never", "--time-limit=2")

KERNEL_NAME = "reduce_exponential_multiply"

COMMANDS: dict[str, tuple[str, ...]] = {
    "summary, IR": (FILE, "--ram=4KB", "--time-limit=2"),
    "summary as JSON": (FILE, "--json", "--time-limit=2"),
    "each pass": (FILE, "--print-ir-after-all", "--time-passes", "--time-limit=2"),
    "summary, report": (FILE, "--emit=report", "--time-limit=2"),
    "infeasible": (FILE, "--ram=1200", "--time-limit=2"),
    "plan": (FILE, "--emit=plan", "-o", f"{FILE}.plan", "--time-limit=2"),
    "single passes": (FILE, "--passes=stablehlo-simplify,stablehlo-to-poet"),
    "warning": (f"kernel{FILE}", "--ram=900", "--time-limit=2"),
    "scheduled for another device": (f"device{FILE}",),
    "faults": (f"faulty{FILE}",),
    "unknown operation": (f"unknown{FILE}",),
    "no such file": (f"no{FILE}",),
    "no such device": (FILE, f"--device=d{FILE}"),
    "no such pass": (FILE, f"--passes=p{FILE}"),
    "no such parameter": (FILE, f"--train={FILE}"),
    "no such option": (FILE, f"--{NASTY}"),
    "program": (FILE, "--emit=c", "-o", f"out{FILE}", *STORED),
    "pack": ("pack", f"out{FILE}", f"{FILE}.npz", "-o", f"{FILE}.bin"),
    "unpack": ("unpack", f"out{FILE}", f"{FILE}.bin", "-o", f"back{FILE}.npz"),
    "pack without parameters": ("pack", f"out{FILE}", f"{FILE}.npy", "-o", f"{FILE}.bin"),
    "profile": ("profile", f"kernel{FILE}", "-o", f"{FILE}.toml"),
    "profile again": ("profile", f"kernel{FILE}", "-o", f"{FILE}.toml"),
    "profile to standard output": ("profile", f"device{FILE}"),
    "log that is none": ("profile", "--from", FILE),
}
"""In this order, in one directory."""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    texts = {"": STEP, "kernel": KERNEL, "faulty": FAULTY, "unknown": UNKNOWN}
    for begin, text in texts.items():
        Path(begin + FILE).write_text(text, encoding="utf-8")
    np.savez(f"{FILE}.npz", arg0=np.ones(64, np.float32))
    np.savez(f"{FILE}.npy", allow_pickle=False, **{NASTY: np.ones(3, np.float32)})
    Path(f"{FILE}.npy.npz").rename(f"{FILE}.npy")
    yield tmp_path


def raw(text: str) -> set[str]:
    """The characters that terminals may obey."""
    return {c for c in text if c != "\n" and not c.isprintable()}


@pytest.mark.slow
def test_no_command_shows_control_characters(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([FILE, "-q", "--time-limit=2"]) == 0
    scheduled = capfd.readouterr().out
    for begin, name in (("device = ", "nrf52840"), ("poet.compute ", KERNEL_NAME)):
        assert f'{begin}"{name}' in scheduled
        scheduled = scheduled.replace(f'{begin}"{name}', f'{begin}"{literal(NASTY)}')
    Path(f"device{FILE}").write_text(scheduled, encoding="utf-8")
    escaped: set[str] = set()
    for what, words in COMMANDS.items():
        if words[0] == "profile" and shutil.which("cc") is None:
            continue
        code = main(list(words))
        shown = capfd.readouterr()
        assert code != 5 and (shown.err or "--passes" in words[1]), what
        assert not raw(shown.out + shown.err), (what, raw(shown.out + shown.err))
        if "\\x1b" in shown.err or "\\u202e" in shown.err:
            escaped.add(what)
        if what in ("summary, IR", "single passes"):
            parse_module(shown.out)
    assert len(escaped) > len(COMMANDS) / 2, "the outputs have names to escape"


def test_messages_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say(NASTY)
    warn(json.dumps(NASTY, ensure_ascii=False))
    shown = capsys.readouterr()
    assert not raw(shown.err) and not shown.out
    assert (
        shown.err.startswith("w\\x1b[31m\\x00\\x07\\x7f\\x9b2J\\u202e")
        and "\u00f6\u5bc6" in shown.err
    )


@given(st.text(st.characters(codec="utf-8") | st.sampled_from(NASTY + '\n\r"\\#')))
def test_profiles_hold_any_name(name: str) -> None:
    transfers = Transfers(**dict.fromkeys((field.name for field in fields(Transfers)), 0))
    key = "0" * KEY_DIGITS
    profile = Profile(Path("-"), name, "c", name, name, "ns", transfers, {key: 1.0}, {key: name})
    text = profile.to_toml()
    assert not raw(text)
    found = tomllib.loads(text)
    assert (found["board"], found["compiler"], found["flags"]) == (name, name, name)
    assert found["kernels"] == {key: 1}


@pytest.mark.slow
def test_one_module_writes_to_the_terminal() -> None:
    """No other prints, or has the streams; the one that writes files tells what they are."""
    package = Path(poetc.__file__).parent
    found: set[str] = set()
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            prints = isinstance(node, ast.Name) and node.id == "print"
            streams = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if prints or streams in ("sys.stdout", "sys.stderr"):
                found.add(path.relative_to(package).as_posix())
    assert found == {"terminal.py", "files.py"}
