"""The driver: exit codes, messages, nothing written on failure."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from compiled import prepare
from conftest import MODELS

from poetc.cli import main
from poetc.costmodel.device import load_device
from poetc.diagnosis import Diagnosis, Reason
from poetc.driver import compile_module
from poetc.errors import TimeLimitError
from poetc.interpreter import run_graph
from poetc.ir.graph import graphs
from poetc.ir.text import make_context
from poetc.planning import attempts, fit
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions
from poetc.request import Options
from poetc.schedule import strategies
from poetc.schedule.arena.memory import MemoryPlan, plan_memory
from poetc.schedule.search.state import Progress

pytestmark = pytest.mark.usefixtures("whole")

GESTURE = str(MODELS / "gesture_mlp.mlir")

SMALL = """\
func.func public @main(%w: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %x: tensor<4xf32>)
    -> tensor<4xf32> {
  %0 = stablehlo.multiply %w, %x : tensor<4xf32>
  %1 = stablehlo.subtract %w, %0 : tensor<4xf32>
  return %1 : tensor<4xf32>
}
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Run the driver in process: exit code, stdout, stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else 1
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of scheduled IR, which nobody writes to."""
    path = tmp_path_factory.mktemp("scheduled") / "scheduled.mlir"
    assert main([GESTURE, "--ram=32KB", "-q", "-o", str(path)]) == 0
    return path


@pytest.mark.slow
def test_scheduled_ir_on_stdout_and_summary_on_stderr(run) -> None:
    code, out, err = run(GESTURE, "--ram=32KB")
    assert code == 0
    assert "poet.graph @main" in out and "schedule = {" in out
    for line in ("RAM budget", "RAM used", "Peak of live bytes", "Page-ins", "Energy", "gap"):
        assert line in err


@pytest.mark.slow
def test_output_is_deterministic(run) -> None:
    first = run(GESTURE, "--ram=11KB", "-q")
    assert first == run(GESTURE, "--ram=11KB", "-q")
    assert first[0] == 0


@pytest.mark.slow
def test_scheduled_ir_reads_back(run, tmp_path: Path) -> None:
    target = tmp_path / "scheduled.mlir"
    assert run(GESTURE, "--ram=32KB", "-q", "-o", str(target))[0] == 0
    code, out, _ = run(str(target), "-q")
    assert code == 0
    assert out == target.read_text()


def test_json_is_data(run) -> None:
    code, _, err = run(GESTURE, "--ram=32KB", "--json")
    data = json.loads(err)
    assert code == 0
    assert data["ram"]["total_bytes"] <= 32 * 1024
    assert data["ram"]["budget_bytes"] == 32 * 1024
    assert data["bound_nj"] <= data["energy_nj"]
    assert set(data) >= {"page_ins", "page_outs", "recomputes", "gap", "solver_seconds"}


def test_quiet_says_nothing(run) -> None:
    code, out, err = run(GESTURE, "--ram=32KB", "--quiet")
    assert (code, err) == (0, "")
    assert out


@pytest.mark.slow
def test_reads_standard_input() -> None:
    command = [sys.executable, "-m", "poetc.cli", "-", "--ram=32KB", "-q"]
    done = subprocess.run(command, input=SMALL, capture_output=True, text=True)
    assert done.returncode == 0 and "poet.graph" in done.stdout, done.stderr


def test_passes_alone(run, tmp_path: Path) -> None:
    source = tmp_path / "small.mlir"
    source.write_text(SMALL)
    code, out, err = run(
        str(source),
        "--passes=stablehlo-simplify,stablehlo-to-poet",
        "--print-ir-after-all",
        "--time-passes",
    )
    assert code == 0 and "poet.graph" in out
    assert "IR after stablehlo-simplify" in err and "s  stablehlo-to-poet" in err


BAD_TEXT = {
    "empty": ("", "empty"),
    "not-mlir": ("hello, world\n", "bad.mlir:1:"),
    "truncated": (Path(GESTURE).read_text()[:5000], "bad.mlir:"),
    "unknown-dialect": ('%0 = "foo.bar"() : () -> tensor<f32>\n', "foo"),
    "dynamic": (SMALL.replace("4xf32", "?xf32"), "dynamic"),
    "two-public": (SMALL + SMALL.replace("@main", "@other"), "@other"),
    "no-main": (SMALL.replace("@main", "@other"), "main"),
    "recursion": (
        SMALL.replace("%1 = stablehlo.subtract %w, %0", "%1 = func.call @f(%0)").replace(
            ": tensor<4xf32>\n  return", ": (tensor<4xf32>) -> tensor<4xf32>\n  return"
        )
        + "func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
        "  %0 = func.call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>\n"
        "  return %0 : tensor<4xf32>\n}\n",
        "recurs",
    ),
    "wrong-types": (
        SMALL.replace(
            "stablehlo.multiply %w, %x : tensor<4xf32>", "stablehlo.multiply %w, %x : tensor<5xf32>"
        ),
        "bad.mlir:3:",
    ),
}


@pytest.mark.parametrize("case", BAD_TEXT)
def test_bad_input(case: str, run, tmp_path: Path) -> None:
    text, expected = BAD_TEXT[case]
    source, target = tmp_path / "bad.mlir", tmp_path / "out.mlir"
    source.write_text(text)
    code, out, err = run(str(source), "--ram=32KB", "-o", str(target))
    assert (code, out) == (2, "")
    assert err.startswith("poetc: error: ") and err.count("poetc: error") == 1
    assert "Traceback" not in err
    assert expected in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.mlir"]


def test_unsupported_ops_are_all_listed(run, tmp_path: Path) -> None:
    source = tmp_path / "bad.mlir"
    source.write_text(
        SMALL.replace(
            "  return %1",
            '  %2 = "stablehlo.all_reduce"(%1) : (tensor<4xf32>) -> tensor<4xf32>\n'
            "  %3 = stablehlo.nonsense %2 : tensor<4xf32>\n  return %3",
        )
    )
    code, _, err = run(str(source))
    assert code == 2
    assert "stablehlo.all_reduce" in err and "stablehlo.nonsense" in err
    assert f"{source}:5:9: " in err and f"{source}:6:8: " in err


def test_binary_file(run, tmp_path: Path) -> None:
    source = tmp_path / "bad.mlir"
    source.write_bytes(bytes(range(256)) * 10)
    code, _, err = run(str(source))
    assert code == 2 and err.startswith("poetc: error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["missing.mlir"], "cannot read missing.mlir"),
        ([], "no input"),
        ([GESTURE, "--ram=0"], "--ram=0"),
        ([GESTURE, "--ram=abc"], "--ram=abc"),
        ([GESTURE, "--ram=-1KB"], "--ram=-1KB"),
        ([GESTURE, "--ram=32QB"], "--ram=32QB"),
        ([GESTURE, "--ram=" + "9" * 400], "too large"),
        ([GESTURE, "--ram=17179869184GB"], "too large"),
        ([GESTURE, "--deadline=" + "9" * 400 + "s"], "too large"),
        ([GESTURE, "--passes=mlir-opt"], "mlir-opt"),
        ([GESTURE, "--passes=poet-order"], "there is none"),
        ([GESTURE, "--passes=stablehlo-simplify", "--ram=8KB"], "--ram cannot go with --passes"),
        ([GESTURE, "--passes=poet-order", "--gap=0", "--io=arena"], "--io --gap cannot go with"),
        ([GESTURE, "--passes=poet-order", "--device=nrf52840"], "--device cannot go with"),
        ([GESTURE, "--passes=poet-schedule{"], "--passes: column 15: Expected argument name"),
        ([GESTURE, "--passes=a,,b"], "--passes: column 3: Expected pass name"),
        ([GESTURE, "--passes=poet-plan-memory{align=[2,"], "--passes: column"),
        ([GESTURE, "--deadline=5"], "--deadline=5"),
        ([GESTURE, "--gap=150%"], "--gap=150%"),
        ([GESTURE, "--time-limit=no"], "--time-limit=no"),
        ([GESTURE, "--device=toaster"], "nrf52840"),
        ([GESTURE, "--device=no/such.toml"], "no/such.toml"),
        ([GESTURE, "--passes=poet-frobnicate"], "poet-frobnicate"),
        ([GESTURE, "--passes=poet-schedule{rum=5}"], "rum"),
        ([GESTURE, "--emit=c"], "-o DIRECTORY"),
        ([GESTURE, "-o", "/no/such/dir/x.mlir"], "/no/such/dir"),
        ([GESTURE, "--emit=c", "-o", "/proc/nope/out"], "/proc/nope"),
    ],
)
def test_bad_usage(arguments: list[str], expected: str, run) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("poetc: error: ") and expected in err
    assert err.count("\n") == 1


def test_small_number_is_questioned(run) -> None:
    code, _, err = run(GESTURE, "--ram=32")
    assert code == 3
    assert "did you mean 32KB" in err


@pytest.mark.slow
def test_infeasible_ram_says_what_would_do(run, tmp_path: Path) -> None:
    target = tmp_path / "out.mlir"
    code, out, err = run(GESTURE, "--ram=4KB", "--stream=never", "-o", str(target))
    assert (code, out) == (3, "")
    assert "kernel" in err and "are needed" in err
    assert not list(tmp_path.iterdir())
    least = int(err.split("least RAM known to work: ")[1].split(" B")[0].replace(",", ""))
    assert run(GESTURE, f"--ram={least}", "-q")[0] == 0


@pytest.mark.slow
def test_a_dash_is_standard_output(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(GESTURE, "-o", "-", "-q")
    assert (code, out) == (0, run(GESTURE, "-q")[1])
    code, out, err = run(GESTURE, "--emit=c", "-o", "-")
    assert (code, out) == (2, "") and "needs -o DIRECTORY" in err
    assert not list(tmp_path.iterdir())


def test_impossible_deadline_says_the_fastest(run) -> None:
    code, _, err = run(GESTURE, "--ram=32KB", "--deadline=1us")
    assert code == 3
    assert "at least" in err and "ms" in err


def test_broken_device_file(run, tmp_path: Path) -> None:
    device = tmp_path / "mine.toml"
    device.write_text("name = ")
    code, _, err = run(GESTURE, f"--device={device}")
    assert code == 2 and "mine.toml:1" in err


def test_starting_imports_nothing_heavy() -> None:
    code = (
        "import sys, poetc.cli\n"
        "try: poetc.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'tvm', 'jax', 'torch', 'highspy', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.slow
def test_interrupt_exits_130(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "poetc.cli", str(MODELS / "resnet8.mlir"), "--ram=520KB"]
    command += ["--gap=0", "--time-limit=600", "--print-ir-after-all", "-o", str(tmp_path / "out")]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stderr=stderr)
        # The search begins after poet-order, and takes longer than it takes to press the keys.
        while "IR after poet-order" not in log.read_text() and process.poll() is None:
            time.sleep(0.1)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    assert process.returncode == 130, log.read_text()[-1000:]
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_ctrl_c_at_the_end_says_nothing() -> None:
    """It comes while Python ends, with a solver that does not stop."""
    code = (
        "import atexit, signal, sys, threading\n"
        "from poetc import cli\n"
        "from poetc.schedule.exact import highs\n"
        "thread = threading.Thread(target=threading.Event().wait, daemon=True)\n"
        "thread.start()\n"
        "if sys.argv.pop() == 'busy': highs._at_work.add(thread)\n"
        "atexit.register(signal.raise_signal, signal.SIGINT)\n"
        "sys.exit(cli.main())"
    )
    for solver in ("idle", "busy"):
        command = [sys.executable, "-c", code, "devices", solver]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stderr == ""
        assert "nrf52840" in done.stdout


def test_interrupted_search_keeps_the_best_schedule() -> None:
    def press_ctrl_c(progress: Progress) -> None:
        if math.isfinite(progress.energy_nj):
            raise KeyboardInterrupt

    model = prepare("gesture_mlp")
    least = model.least_ram_bytes()
    graph = graphs(model.module)[0]
    report = schedule_and_plan(graph, model.options(least, gap=0.0), press_ctrl_c)
    assert report.interrupted
    assert run_graph(graph, model.arguments, least, arena=True).peak_bytes <= least


@pytest.mark.slow
def test_ctrl_c_while_buffers_are_packed_keeps_the_schedule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pressed: list[str] = []

    def packed_once_interrupted(*args: Any, **options: Any) -> MemoryPlan:
        if not pressed:
            pressed.append("Ctrl-C")
            raise KeyboardInterrupt
        return plan_memory(*args, **options)

    monkeypatch.setattr(fit, "plan_memory", packed_once_interrupted)
    model = prepare("gesture_mlp")
    least = model.least_ram_bytes()
    graph = graphs(model.module)[0]
    report = schedule_and_plan(graph, model.options(least, gap=0.0))
    assert pressed and report.interrupted
    assert run_graph(graph, model.arguments, least, arena=True).peak_bytes <= least


@pytest.mark.slow
def test_scheduled_input_must_fit_too(run, scheduled: Path) -> None:
    code, out, err = run(str(scheduled), "--ram=9600")
    assert (code, out) == (2, "") and "scheduled already" in err
    code, out, err = run(str(scheduled), "--deadline=1ms")
    assert (code, out) == (2, "") and "longer than the deadline" in err
    assert run(str(scheduled), "--deadline=1.5x", "-q")[0] == 0
    assert run(str(scheduled), "--device=nrf52840", "--params=ram", "--io=arena", "-q")[0] == 0
    code, _, err = run(str(scheduled), "--ram=32KB", "--json")
    assert code == 0 and json.loads(err)["ram"]["total_bytes"] <= 32 * 1024


@pytest.mark.slow
def test_a_broken_schedule_of_the_user_is_bad_input(run, scheduled: Path, tmp_path: Path) -> None:
    lines = scheduled.read_text().splitlines(keepends=True)
    freed = next(i for i, line in enumerate(lines) if "poet.free" in line)
    broken = tmp_path / "broken.mlir"
    broken.write_text("".join(lines[:freed] + lines[freed + 1 :]))
    code, out, err = run(str(broken))
    assert (code, out) == (2, "") and "overlaps %arg7" in err


@pytest.mark.slow
def test_costs_of_another_device_are_made_again(run, tmp_path: Path) -> None:
    annotated = tmp_path / "annotated.mlir"
    passes = "stablehlo-simplify,stablehlo-to-poet,poet-fuse,poet-lower-kernels"
    passes += ',poet-arrange-kernels{device="nrf52840"}'
    device = 'poet-annotate{device="mkr1000"}'
    assert run(GESTURE, f"--passes={passes},{device}", "-o", str(annotated))[0] == 0
    assert "mkr1000" in annotated.read_text()
    expected = run(GESTURE, "--device=nrf52840", "-q")[1]
    assert run(str(annotated), "--device=nrf52840", "-q")[1] == expected


def test_standard_output_that_cannot_be_written() -> None:
    command = [sys.executable, "-m", "poetc.cli", "devices"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == "poetc: error: cannot write standard output: No space left on device\n"


def test_warnings(run, tmp_path: Path) -> None:
    code, _, err = run(GESTURE, "--device=mkr1000", "--ram=1MB", "-q")
    assert code == 0 and "more than the 32,768 bytes of mkr1000" in err
    source = tmp_path / "inference.mlir"
    source.write_text(SMALL.replace(" {tf.aliasing_output = 0 : i32}", ""))
    code, _, err = run(str(source), "-q")
    assert code == 0 and "donate_argnums" in err


def test_the_command_line_knows_every_strategy(run) -> None:
    # `milp` is `auto` without other orders of the operations.
    for name in strategies.names():
        assert strategies.load(name).name == name
        assert run(f"--strategy={name}")[2].startswith(
            "poetc: error: argument --strategy" if name == "milp" else "poetc: error: no input"
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("--strategy=keep-all", "--strategy would change nothing"),
        ("--gap=0", "--gap would"),
        ("--time-limit=3", "--time-limit would"),
        ("--paging=off", "--paging would"),
        ("--remat=off", "--remat would"),
        ("--ram-scope=activations", "--ram-scope would"),
        ("--device=mkr1000", "for device nrf52840, but --device=mkr1000"),
        ("--params=storage", "in RAM, but --params=storage"),
        ("--io=caller", "but --io=caller"),
        ("--block=64", "--block would"),
        ("--stream=never", "--stream would"),
    ],
)
def test_scheduled_input_is_not_searched(option: str, expected: str, run, scheduled: Path) -> None:
    code, out, err = run(str(scheduled), option)
    assert (code, out) == (2, "") and err.count("\n") == 1
    assert "scheduled already" in err and expected in err


@pytest.mark.slow
def test_options_for_stablehlo_are_refused_for_poet_ir(run, scheduled: Path) -> None:
    for option in ("--train=x", "--frozen=storage", "--pages=f16"):
        code, out, err = run(str(scheduled), option)
        assert (code, out) == (2, "") and f"{option} needs StableHLO" in err


@pytest.mark.slow
def test_scheduled_input_is_reported_for_its_device(run, tmp_path: Path) -> None:
    scheduled = tmp_path / "scheduled.mlir"
    assert run(GESTURE, "--device=mkr1000", "-q", "-o", str(scheduled))[0] == 0
    code, _, err = run(str(scheduled), "--json")
    assert code == 0 and json.loads(err)["device"] == "mkr1000"
    scheduled.write_text(scheduled.read_text().replace('device = "mkr1000"', 'device = "mine"'))
    code, _, err = run(str(scheduled), "-q")
    assert code == 0 and "scheduled for device mine" in err


@pytest.mark.slow
def test_memory_plans_that_nothing_could_run(run, scheduled: Path) -> None:
    for option in ("align=2", "align=3", "align=6", "align=-4", "unit=3"):
        code, out, err = run(str(scheduled), f"--passes=poet-plan-memory{{{option}}}")
        assert (code, out) == (2, "") and "must be" in err and err.count("\n") == 1, option
    assert run(str(scheduled), "--passes=poet-plan-memory{align=8 unit=16}")[0] == 0


def test_a_step_that_takes_no_time_meets_any_deadline(run, tmp_path: Path) -> None:
    source = tmp_path / "step.mlir"
    source.write_text(
        "func.func public @main(%w: tensor<8xf32> {tf.aliasing_output = 0 : i32})\n"
        "    -> tensor<8xf32> {\n  return %w : tensor<8xf32>\n}\n"
    )
    code, _, err = run(str(source), "--deadline=3x", "--json")
    assert code == 0 and json.loads(err)["time_ns"] == 0
    code, _, err = run(GESTURE, "--deadline=0.000000001x")
    assert code == 3 and "no schedule meets the deadline" in err


def test_a_byte_order_mark_is_skipped(run, tmp_path: Path) -> None:
    source = tmp_path / "small.mlir"
    source.write_text(SMALL, encoding="utf-8-sig")
    assert run(str(source), "-q")[0] == 0


@pytest.mark.parametrize(("seconds", "longer"), [(0.0, False), (9.0, True)])
def test_a_longer_search_is_proposed_if_it_was_cut_off(
    seconds: float, longer: bool, run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(_graph: object, asked: ScheduleOptions, _progress: object) -> None:
        assert asked.clock is not None
        asked.clock.work += seconds * asked.clock.pace
        raise TimeLimitError(Diagnosis(Reason.SEARCH))

    module = prepare("gesture_mlp").module
    monkeypatch.setattr(attempts, "plan_graph", plan)
    device = load_device("nrf52840")
    options = Options(device, "nrf52840", ram_bytes=9000, time_limit_s=10.0, stop="work")
    with pytest.raises(TimeLimitError) as error:
        compile_module(make_context(), module, options)
    assert ("a longer --time-limit" in error.value.message) is longer
    assert "more --ram" in error.value.message and "--deadline" not in error.value.message
