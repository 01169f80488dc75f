"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import more
from example_scripts import differences
from pages import ROOT, run_commands

from poetc.cli import main

README = (ROOT / "README.md").read_text()
DATA = "examples/gesture_mlp.npz"


@pytest.mark.slow
def test_first_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The main job on the example, with the output that the README prints; then its C is run."""
    command = re.search(r"pip install \. && poetc (.*)", README)
    assert command is not None
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert main(command[1].split()) == 0
    solver_seconds = r"auto, [\d.]+ s"  # of the machine that printed them
    printed = re.sub(solver_seconds, "", capsys.readouterr().err)
    assert printed in re.sub(solver_seconds, "", README)
    train = "python examples/run_c.py out examples/gesture_mlp.npz --steps 20"
    for run in ("make -s -C out run", train):
        assert run_commands(run, tmp_path) in README


@pytest.mark.slow
@pytest.mark.parametrize(("ram", "stream"), [("4KB", "auto"), *more(("8KB", "never"))])
def test_the_same_with_parameters_on_storage(tmp_path: Path, ram: str, stream: str) -> None:
    """With kernels in tiles, and whole ones: the results are those of XLA too."""
    out = tmp_path / "out"
    model = str(ROOT / "examples" / "gesture_mlp.mlir")
    words = [model, f"--ram={ram}", f"--stream={stream}", "-q", "--emit=c", "-o", str(out)]
    assert main(words) == 0
    subprocess.run(["make", "-s", "-C", out], check=True)
    errors = differences(run_commands(f"python examples/run_c.py {out} {DATA}", ROOT))
    assert len(errors) == 7 and max(errors) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [["--params=storage"], ["--ram=8KB", "--stream=never"], *more([], ["--io=caller"])]
)
def test_momentum_with_long_names(options: list[str], tmp_path: Path) -> None:
    """Names that do not fit into a line of a comment, and results that update something else than
    the parameter of their number."""
    cases = ROOT / "tests" / "cases"
    text = (cases / "long_names.mlir").read_text()
    model, out = tmp_path / "model.mlir", tmp_path / "out"
    model.write_text(text.replace("opt_state", "a_name_that_is_long_" * 12))
    assert main([str(model), *options, "--emit=c", "-q", "--name=long", "-o", str(out)]) == 0
    subprocess.run(["make", "-s", "-C", out], check=True)
    run = f"python examples/run_c.py {out} {cases / 'long_names.npz'}"
    errors = differences(run_commands(run, ROOT))
    with np.load(cases / "long_names.npz") as arrays:
        count = sum(name.startswith("out") for name in arrays)
    assert len(errors) == count == 9 and max(errors) < 1e-6
    printed = run_commands(f"{run} --steps 3", ROOT)
    assert "out8: " in printed and "after 3 steps" in printed


@pytest.mark.slow
def test_infeasible_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["examples/gesture_mlp.mlir", "--ram=6KB", "--stream=never"]) == 3
    assert " ".join(capsys.readouterr().err.split()) in " ".join(README.split())


@pytest.mark.slow
def test_pipeline_in_python() -> None:
    printed = run_commands("python examples/pipeline.py examples/gesture_mlp.mlir", ROOT)
    assert "poet.pagein at offset" in printed and "gap" in printed


@pytest.mark.slow
def test_xdsl_opt_command() -> None:
    command = re.search(r"^xdsl-opt (.*)$", README, re.MULTILINE)
    assert command is not None
    run = [str(Path(sys.executable).with_name("xdsl-opt")), *command[1].split()]
    done = subprocess.run(run, cwd=ROOT, check=True, capture_output=True, text=True)
    assert "poet.graph @main" in done.stdout


@pytest.mark.slow
def test_pipeline_without_a_model() -> None:
    run = [sys.executable, "examples/pipeline.py"]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "usage: python examples/pipeline.py MODEL.mlir\n"


@pytest.mark.slow
def test_commands_of_the_page_about_storage(tmp_path: Path) -> None:
    commands = re.search(r"```sh\n(.*?)```", (ROOT / "docs/storage.md").read_text(), re.DOTALL)
    assert commands is not None
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    printed = run_commands(commands[1], tmp_path)
    assert (tmp_path / "trained.npz").exists() and "steps: 20" in printed


@pytest.mark.slow
def test_accumulation_gives_what_the_whole_batch_gives(tmp_path: Path) -> None:
    """In the RAM that the documentation says; the numbers differ in their last digits only."""
    pytest.importorskip("jax")
    printed = run_commands("python examples/accumulation.py", ROOT, POETC_CACHE=str(tmp_path))
    *rams, difference = printed.splitlines()
    assert len(rams) == 2 and float(difference.split()[-1]) < 1e-6
    documented = (ROOT / "docs" / "frontends.md").read_text()
    assert all(f"    {line}\n" in documented for line in rams)
