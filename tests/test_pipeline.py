"""The passes that the driver says it ran make the same module when they run alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import MODELS, more
from xdsl.utils.arg_spec import parse_pipeline

from poetc.cli import main
from poetc.ir.text import make_context, module_text, parse_module
from poetc.pipeline import run_passes
from poetc.universe import UNIVERSE

LARGE = ("mlp_mnist", "ae_mnist", "lenet5", "bert_micro", "dscnn", "resnet8")

CASES = [
    ("kws_conv", ()),
    ("gesture_mlp", ("--ram=80KB", "--io=caller")),
    ("gesture_mlp", ("--ram=8KB", "--stream=never")),
    ("gesture_mlp", ("--ram=9600", "--deadline=2x", "--stream=never")),
    *more(
        (
            "gesture_mlp",
            ("--ram=9KB", "--params=storage", "--deadline=6x", "--stream=never"),
        )
    ),
    (
        "gesture_mlp",
        ("--ram=9800", "--strategy=checkmate", "--device=mkr1000", "--stream=never"),
    ),
    ("kws_conv", ("--ram=9KB", "--paging=off", "--device=host", "--stop=work")),
    *more(*((name, ()) for name in LARGE)),
    *more(*((name, ("--ram=700KB", "--gap=10%")) for name in ("mlp_mnist", "lenet5", "dscnn"))),
]


def driven(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    """What the driver writes, and the pipeline that it says it ran."""
    assert main([*words, "--emit=ir", "--print-ir-after-all", "-q"]) == 0
    out, err = capsys.readouterr()
    (line,) = (line for line in err.splitlines() if line.startswith("// ----- pipeline: "))
    return out, line.removeprefix("// ----- pipeline: ")


def alone(path: Path, pipeline: str) -> str:
    """What those passes make of a file, one after the other."""
    context, known = make_context(), UNIVERSE.all_passes
    module = parse_module(path.read_text(), str(path))
    passes = tuple(known[spec.name]().from_spec(spec) for spec in parse_pipeline(pipeline))
    run_passes(context, module, passes, lambda *_: None)
    return module_text(module)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "words"), CASES)
def test_the_printed_pipeline_makes_the_same_module(
    name: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    path = MODELS / f"{name}.mlir"
    wanted, pipeline = driven(capsys, str(path), *words)
    names = [spec.name for spec in parse_pipeline(pipeline)]
    assert names[-5:-1] == [
        "poet-schedule",
        "poet-plan-transfers",
        "poet-plan-memory",
        "poet-read-ahead",
    ]
    assert names[-1] == "poet-verify"
    assert alone(path, pipeline) == wanted


@pytest.mark.slow
def test_xdsl_opt_takes_it(capsys: pytest.CaptureFixture[str]) -> None:
    path = MODELS / "gesture_mlp.mlir"
    wanted, pipeline = driven(capsys, str(path), "--ram=8KB", "--stream=never")
    command = [str(Path(sys.executable).with_name("xdsl-opt")), "-p", pipeline, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    # xDSL's printer writes no locations, as ours does.
    again = parse_module(done.stdout, str(path))
    assert module_text(again) == module_text(parse_module(wanted, str(path)))


@pytest.mark.slow
def test_of_tiles_all_but_what_was_tried_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """A pass knows the step that it is given, not the ones that were tried before it."""
    path = MODELS / "gesture_mlp.mlir"
    wanted, pipeline = driven(capsys, str(path), "--ram=3KB", "--block=64")
    assert "poet-pair{" in pipeline
    found = alone(path, pipeline)

    def rest(text: str) -> str:
        before, after = text.split(", schedule = {", 1)
        return before + after.split("}]}", 1)[1]

    assert rest(found) == rest(wanted)


ALONE = {"poet-variants", "poet-pair", "poet-stream"}
"""Passes that the driver does not run where kernels are whole."""


@pytest.mark.slow
def test_every_documented_pass_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(MODELS / "gesture_mlp.mlir"), "--ram=8KB", "--emit=ir", "-q"]
    assert main([*words, "--train=*", "--pages=f16", "--stream=never", "--print-ir-after-all"]) == 0
    err = capsys.readouterr().err
    for name in UNIVERSE.all_passes.keys() - ALONE:
        assert f"// ----- IR after {name}" in err


@pytest.mark.slow
def test_json_has_the_diagnosis(capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(MODELS / "gesture_mlp.mlir"), "--ram=6656", "--json"]
    words.append("--stream=never")
    assert main(words) == 3
    err = capsys.readouterr().err
    text, message = err[: err.index("\npoetc: error:")], err[err.index("\npoetc: error:") :]
    found = json.loads(text)["diagnosis"]
    assert found["reason"] == "ram" and found["proven"] is True
    assert found["ram_bytes"] == 6656 and found["needed_bytes"] == 6880
    assert found["kernel"]["label"] == "dot_add_tanh" and ":3:5" in found["kernel"]["source"]
    least = {"known_bytes": 6880, "bound_bytes": 6880, "tiles": False, "kernel": None}
    assert found["least_ram"] == least
    assert found["message"] in message
