"""`poetc compare` and `poetc pareto`: what they say is what single runs say, whoever works."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from conftest import more

from poetc import sweep
from poetc.cli import main

MODEL = Path(__file__).parent.parent / "examples" / "gesture_mlp.mlir"


def rows_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict]:
    assert main([*words, "--format=json"]) == 0
    return json.loads(capsys.readouterr().out)


def same(one: dict, other: dict) -> bool:
    """All but the seconds."""
    return {**one, "seconds": 0} == {**other, "seconds": 0}


@pytest.mark.slow
@pytest.mark.parametrize("ram", ["9600", *more("8192")])
def test_auto_is_no_worse_than_any_strategy(ram: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(
        capsys,
        *("compare", str(MODEL), f"--ram={ram}", "--strategies=auto,checkmate,dtr,poet"),
        "--stream=never",
    )
    assert [row["strategy"] for row in rows] == ["auto", "checkmate", "dtr", "poet"]
    auto, *others = rows
    assert auto["bound_nj"] <= auto["energy_nj"] <= 1.01 * auto["bound_nj"]
    assert any(row["energy_nj"] for row in others)
    for row in others:
        assert row["energy_nj"] is None or auto["energy_nj"] <= 1.01 * row["energy_nj"]
        assert row["used_bytes"] is None or row["used_bytes"] <= int(ram)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "strategy"),
    [(["--ram=9600"], "dtr"), (["--ram=3KB", "--block=64", "--stop=work"], "auto")],
    ids=["whole", "tiles"],
)
def test_a_row_is_what_the_command_reports(
    words: list[str], strategy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = rows_of(capsys, "compare", str(MODEL), *words, f"--strategies={strategy}")
    assert main([str(MODEL), *words, f"--strategy={strategy}", "--json"]) == 0
    report = json.loads(capsys.readouterr().err)
    assert row["tiles"] == report["streams"]
    assert (row["tiles"] > 0) == (strategy == "auto")
    assert row["energy_nj"] == report["energy_nj"]
    assert row["time_ns"] == report["time_ns"]
    assert row["used_bytes"] == report["ram"]["total_bytes"]
    assert row["moved_bytes"] == report["page_in_bytes"] + report["page_out_bytes"] > 0
    assert row["written_bytes"] == report["page_out_bytes"] > 0


@pytest.mark.slow
def test_what_has_no_schedule_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", str(MODEL), "--ram=9600"]
    assert main([*words, "--strategies=auto,keep-all"]) == 0
    table = capsys.readouterr().out
    assert "keep-all" in table and "infeasible" in table
    assert "keep-all: no schedule with --strategy=keep-all fits into 9,600 B" in table
    assert main([*words, "--strategies=keep-all"]) == 4


@pytest.mark.slow
def test_answers_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was interrupted goes on where it was; a damaged file is as none."""
    cache = tmp_path / "cache"
    words = ["pareto", str(MODEL), "--budgets=7KB,9KB,11KB", "--strategies=dtr", "--workers=1"]
    words += [f"--cache={cache}", "-q"]
    real, asked = sweep.answer, []

    def answer(step: sweep.Step, point: sweep.Point) -> sweep.Row:
        asked.append(point.ram_bytes)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return real(step, point)

    monkeypatch.setattr(sweep, "answer", answer)
    assert main([*words, "--format=csv"]) == 130
    first = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["ram_bytes"] for row in first] == ["7168", "9216"]
    next(cache.iterdir()).write_text("{")
    rows = rows_of(capsys, *words)
    assert [row["ram_bytes"] for row in rows] == [7168, 9216, 11264]
    assert len(asked) == 5
    assert rows_of(capsys, *words) == rows
    assert len(asked) == 5


@pytest.mark.slow
def test_more_ram_never_costs_more(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of(capsys, "pareto", str(MODEL), "--budgets=4", "--workers=1", "--stream=never")
    assert len(rows) == 4
    rams, energies = zip(*((row["ram_bytes"], row["energy_nj"]) for row in rows), strict=True)
    assert list(rams) == sorted(set(rams))
    assert all(b <= 1.01 * a for a, b in pairwise(energies))
    assert energies[-1] < energies[0]


@pytest.mark.slow
def test_a_worker_that_is_killed_loses_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed", reason="Dask is optional: pip install 'poetc[sweep]'")
    words = ["pareto", str(MODEL), "--budgets=8KB,9KB,11KB", "-q"]
    words += ["--strategies=dtr,capuchin"]
    alone = rows_of(capsys, *words, "--workers=1")
    address = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    options = ["--scheduler-file", str(address), "--no-dashboard"]
    processes = [
        subprocess.Popen([*dask, "scheduler", "--port", "0", "--host", "127.0.0.1", *options])
    ]
    try:
        worker = [*dask, "worker", *options, "--nthreads", "1", "--no-nanny"]
        workers = [subprocess.Popen(worker, cwd=tmp_path) for _ in range(2)]
        processes += workers
        from distributed import Client

        with Client(scheduler_file=str(address), timeout=60) as client:
            client.wait_for_workers(2)
            assert client.scheduler is not None
            place = client.scheduler.address
        seen: list[sweep.Row] = []
        killed = threading.Event()
        real = sweep.Cache.put

        def put(self: sweep.Cache, key: str, row: sweep.Row) -> None:
            seen.append(row)
            if len(seen) == 2:
                workers[0].kill()
                killed.set()
            real(self, key, row)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sweep.Cache, "put", put)
            found = rows_of(capsys, *words, f"--workers={place}")
        assert killed.is_set()
        assert len(found) == 6
        assert all(same(a, b) for a, b in zip(alone, found, strict=True))
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_scheduled_ir_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its schedule is nobody else's."""
    scheduled = tmp_path / "scheduled.mlir"
    assert main([str(MODEL), "--ram=9600", "-q", "-o", str(scheduled)]) == 0
    assert main(["compare", str(scheduled), "--strategies=dtr"]) == 2
    assert "scheduled.mlir is scheduled already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["compare", str(MODEL), "--strategies=best"], "--strategies: no 'best'; there are auto"),
        (["pareto", str(MODEL), "--budgets=1"], "--budgets: at least 2, or sizes such as 16KB"),
        (["pareto", str(MODEL), "--budgets=8KB,x"], "--budgets=x"),
        (["pareto", str(MODEL), "--deadlines=none,soon"], "--deadlines=soon"),
        (["pareto", str(MODEL), "--workers=0"], "--workers=0"),
        (["compare", "none.mlir"], "cannot read none.mlir"),
        (["compare"], "the following arguments are required: input"),
    ],
)
def test_refusals(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert message in capsys.readouterr().err
