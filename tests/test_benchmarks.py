"""The benchmark of the optimiser: its instances, its cache and its tables."""

import ast
import csv
import dataclasses
import itertools
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import more

from benchmarks import document, optimiser, streaming_curve
from benchmarks.instances import (
    SHAPES,
    WIDTHS,
    Case,
    Source,
    build,
    cases,
    from_json,
    layered,
    local,
    to_json,
)
from benchmarks.optimiser import main
from benchmarks.runs import Cache, Run, work
from poetc.schedule.exact.bounds import ram_needed
from poetc.schedule.model.errors import InfeasibleProblem
from poetc.schedule.model.instance import Instance
from poetc.schedule.solve import solve

ROOT = Path(__file__).parent.parent


def test_names_are_unique():
    names = [case.name for case in cases()]
    assert len(names) == len(set(names)) == 8 * 3 * 5 + 2 + 6 * 2 * 3 + 4 * 4 * 2 + 2


@pytest.mark.parametrize("shape", SHAPES)
def test_random_graphs(shape: str):
    problem = layered(250, SHAPES[shape])
    assert problem == layered(250, SHAPES[shape]) == from_json(to_json(problem))
    assert problem != layered(250, SHAPES[shape], seed=2)
    assert len(problem.operations) == 250
    edges = sum(len(operation.inputs) for operation in problem.operations) / 250
    assert 0.7 * SHAPES[shape].edges < edges < 1.3 * SHAPES[shape].edges
    # Only the last layer has results that nothing reads.
    assert all(problem.readers()[: -2 * SHAPES[shape].width])


@pytest.mark.slow
def test_all_sources_but_the_compiled_ones_give_problems():
    for source in {case.source for case in cases() if case.source.group != "real"}:
        problem = build(source)
        assert from_json(to_json(problem)) == problem


@pytest.mark.slow
def test_a_training_step_gives_a_problem():
    problem = build(Source("real", "dscnn", "nrf52840"))
    assert from_json(to_json(problem)) == problem and len(problem.operations) > 20


SOURCES = [source for source in {c.source: None for c in cases()} if source.group != "real"]


@pytest.mark.parametrize(
    "source",
    [*SOURCES[::8], *more(*(s for n, s in enumerate(SOURCES) if n % 8))],
    ids=lambda s: s.name,
)
def test_infeasible_limits_are_refused_at_once(source: Source):
    problem = build(source)
    instance = Instance(problem)
    need, _ = ram_needed(instance)
    started = time.process_time()
    with pytest.raises(InfeasibleProblem, match=r"bytes of RAM are too few: .*for ") as no_ram:
        solve(dataclasses.replace(problem, ram_bytes=need - 1))
    assert time.process_time() - started < 5
    assert no_ram.value.operation is not None and no_ram.value.ram_bound_bytes == need
    started = time.process_time()
    with pytest.raises(InfeasibleProblem, match=r"the deadline of .* is too short") as no_time:
        late = instance.base_time_ns - 1
        solve(dataclasses.replace(problem, ram_bytes=need, deadline_ns=late))
    assert time.process_time() - started < 5
    assert no_time.value.time_bound_ns == instance.base_time_ns


def test_limits():
    problem = build(Source("poet", "linear", "m4"))
    source = Source("poet", "linear", "m4")
    limited = Case(source, ram_of_least=1.25, deadline=1.5).limit(problem, 1000)
    total_ns = sum(operation.time_ns for operation in problem.operations)
    assert (limited.ram_bytes, limited.deadline_ns) == (1250, int(1.5 * total_ns))
    assert Case(source, ram_of_peak=1.0).limit(problem, None).ram_bytes == 7416
    between = [Case(source, ram_between=share).limit(problem, 3256) for share in (0.0, 0.5, 1.0)]
    assert [limited.ram_bytes for limited in between] == [3256, (3256 + 7416) // 2, 7416]
    for relative in (Case(source, ram_of_least=1.25), Case(source, ram_between=0.5)):
        with pytest.raises(ValueError, match="least RAM"):
            relative.limit(problem, None)


def test_key_changes_with_content():
    case = cases()[0]
    problem = build(case.source)
    run = Run(case, "auto", problem, to_json(problem), 60.0, 0.01)
    larger = to_json(dataclasses.replace(problem, ram_bytes=5000))
    keys = {
        run.key("sources"),
        run.key("other sources"),
        dataclasses.replace(run, text=larger).key("sources"),
        dataclasses.replace(run, strategy="dtr").key("sources"),
        dataclasses.replace(run, time_limit_s=61.0).key("sources"),
        dataclasses.replace(run, gap=0.02).key("sources"),
    }
    assert len(keys) == 6
    assert dataclasses.replace(run).key("sources") in keys


def test_crashes_are_reported_and_not_kept(tmp_path: Path):
    cache = Cache(tmp_path)
    result = cache.remember("results", "key", lambda: work({"task": "least"}, 60.0))
    assert result["status"] == "crashed" and "KeyError" in result["message"]
    assert cache.get("results", "key") is None


@pytest.mark.slow
def test_two_instances(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    arguments = ["--only", "^linear/m4/(1.02|1.5)x$", "--strategies", "auto,keep-all"]
    arguments += ["--time-limit", "9", "--cache", str(tmp_path / "cache")]
    arguments += ["--output", str(tmp_path / "docs"), "--jobs", "2"]
    assert main(arguments) == 0
    with (tmp_path / "docs" / "optimiser.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["instance"], r["strategy"]) for r in rows] == [
        (instance, strategy)
        for instance in ("linear/m4/1.02x", "linear/m4/1.5x")
        for strategy in ("auto", "keep-all")
    ]
    assert rows[0]["ram_bytes"] == str(int(1.02 * 3256))
    assert rows[1]["status"] == "infeasible" and rows[1]["energy"] == ""
    assert float(rows[0]["energy"]) >= float(rows[0]["bound"]) > 0
    assert all(int(r["peak_memory_mib"]) > 20 for r in rows)
    text = (tmp_path / "docs" / "optimiser.md").read_text()
    assert re.search(r"^\| poet \| 9 s \| 2 \| 2 \| 2 \|", text, re.MULTILINE)
    # The second time everything is there already.
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.json")}
    assert len(before) == 5 and main(arguments) == 0
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "cache").rglob("*.json")}
    assert (tmp_path / "docs" / "optimiser.md").read_text() == text
    capsys.readouterr()


@pytest.mark.parametrize("operations", sorted(WIDTHS))
def test_random_graphs_like_the_published_ones(operations: int):
    problem = local(operations)
    assert problem == local(operations) == from_json(to_json(problem)) != local(operations, seed=2)
    assert len(problem.operations) == operations
    assert [o.name for o in problem.operations if not o.time_ns] == ["op0", f"op{operations - 1}"]
    # The published graphs have 236, 944, 2,461 and 5,875 edges.
    published = {100: 236, 250: 944, 500: 2461, 1000: 5875}[operations]
    edges = sum(len(operation.inputs) for operation in problem.operations)
    assert 0.8 * published < edges < 1.25 * published
    assert [v for v, readers in enumerate(problem.readers()) if not readers] == [operations - 1]


def fails(words: list[str]) -> int | None:
    print("| a row |")
    match words[0]:
        case "raises":
            raise KeyError(2496)
        case "exits":
            sys.exit("poetc: internal error: KeyError: 2496")
        case "program":
            subprocess.run(["false"], check=True)
        case "code":
            return 3


@pytest.mark.parametrize("how", ["raises", "exits", "program", "code"])
@pytest.mark.parametrize("option", [["--output", "FILE"], ["--output=FILE"], []])
def test_a_benchmark_that_fails_writes_nothing(
    how: str,
    option: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = tmp_path / "old.md"
    old.write_text("what was there\n")
    words = [word.replace("FILE", str(old)) for word in option]
    monkeypatch.setattr(sys, "argv", ["benchmark", how, *words])
    with pytest.raises((SystemExit, KeyError, subprocess.CalledProcessError)) as failed:
        document.run(fails)
    assert not isinstance(failed.value, SystemExit) or failed.value.code not in (0, None)
    said = capsys.readouterr()
    assert said.out == "" and "| a row |" in said.err
    assert old.read_text() == "what was there\n" and list(tmp_path.iterdir()) == [old]


def test_a_benchmark_that_is_done_replaces_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old.md"
    old.write_text("what was there\n")
    seen: list[str] = []

    def measure(words: list[str]) -> None:
        print(f"# {words}")
        seen.append(old.read_text())

    for words, code in ((["a"], 0), (["b"], 0)):
        monkeypatch.setattr(sys, "argv", ["benchmark", "--output", str(old), *words])
        with pytest.raises(SystemExit) as ended:
            document.run(measure)
        assert ended.value.code == code
    assert seen == ["what was there\n", "# ['a']\n"] and old.read_text() == "# ['b']\n"
    monkeypatch.setattr(sys, "argv", ["benchmark"])
    with pytest.raises(SystemExit, match="nothing was measured"):
        document.run(lambda words: None)


def test_a_table_goes_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    other, head = "| model | RAM |\n|---|--:|\n| b | 7 |\n", "| model | time |\n|---|--:|\n"
    rows = "| a | 1 |\n| b | 2 |\n| c | 4 |\n| b | 3 |\n"
    page.write_text(f"# Page\n\n{other}\n{head}{rows}Text\n")
    monkeypatch.setattr(sys, "argv", ["benchmark", "--output", str(page)])

    def measure(head: str) -> None:
        made = f"| model | {head} |\n|---|--:|\n| b | 5 |\n| d | 6 |\n"
        document.run(lambda words: print(f"{made}\n{other.replace('7', '8')}"))

    with pytest.raises(SystemExit) as ended:
        measure("time")
    assert ended.value.code == 0
    rows = "| a | 1 |\n| b | 5 |\n| c | 4 |\n| d | 6 |\n"
    there = f"# Page\n\n{other.replace('7', '8')}\n{head}{rows}Text\n"
    assert page.read_text() == there
    with pytest.raises(SystemExit, match=r"no table with the head \| model \| energy"):
        measure("energy")
    assert page.read_text() == there


SCRIPTS = sorted(p for p in (ROOT / "benchmarks").glob("*.py") if "__main__" in p.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_writes_all_or_nothing(script: Path) -> None:
    """By `document.run`, or, with more than one file, by `write_whole`."""
    tree = ast.parse(script.read_text())
    last = ast.unparse(tree.body[-1])
    if script.stem != "optimiser":
        assert last == "if __name__ == '__main__':\n    document.run(main)"
    unchecked = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "subprocess.run"
        and not any(word.arg == "check" for word in node.keywords)
    ]
    assert not unchecked, f"{script.name}:{unchecked}: a program whose exit code nobody asks for"
    assert "> docs/" not in script.read_text()


@pytest.mark.slow
def test_a_benchmark_of_a_program_that_fails(tmp_path: Path) -> None:
    """The real thing: poetc and make run, and the program does not."""
    old = tmp_path / "old.md"
    old.write_text("what was there\n")
    broken = tmp_path / "bin"
    broken.mkdir()
    (broken / "qemu-system-arm").write_text("#!/bin/sh\nexit 1\n")
    (broken / "qemu-system-arm").chmod(0o755)
    command = [sys.executable, "-m", "benchmarks.profile", "cycles", "--output", old]
    path = f"{broken}:{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"PATH": path}, capture_output=True, text=True
    )
    assert done.returncode not in (0, None) and done.stdout == ""
    assert "does not return" in done.stderr, done.stderr
    assert old.read_text() == "what was there\n"


def test_the_optimiser_with_a_run_that_crashed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(optimiser, "execute", crashed)
    arguments = ["--only", "^linear/m4/1.02x$", "--strategies", "keep-all"]
    arguments += ["--cache", str(tmp_path / "cache"), "--output", str(tmp_path / "docs")]
    assert main(arguments) == 1
    assert "1 runs crashed" in capsys.readouterr().err
    assert list((tmp_path / "docs").iterdir()) == []


def crashed(runs: list[Run], cache: Cache, jobs: int) -> list[dict]:
    said = {"status": "crashed", "message": "KeyError: 2496", "seconds": 1.0, "rss_bytes": 1}
    return [said for _ in runs]


def test_the_curve_tells_where_more_ram_takes_more_energy_or_is_not_enough() -> None:
    def point(ram_bytes: int, energy_nj: int) -> streaming_curve.Point:
        summary: Any = SimpleNamespace(energy_nj=energy_nj)
        return streaming_curve.Point(ram_bytes, summary)

    points = [point(1, 500), point(2, 300), point(3, 302), point(4, 304), point(5, 299)]
    nothing = streaming_curve.Point(6, None)
    # Within the gap of 1% of the least before it.
    assert streaming_curve.rises([*points, nothing]) == [points[3], nothing]
    budgets = streaming_curve.budgets(5000, 100_000)
    assert budgets[0] == 5000 and budgets[-1] == 100_000
    ratios = [b / a for a, b in itertools.pairwise(budgets)]
    assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=0.01) and ratios[0] > 1
