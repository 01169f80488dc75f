"""Runs of strategies on instances: each in a process of its own, what has finished kept in a cache.

The key of a result is a hash of the problem, the options and the sources that
`poetc.schedule.solve` is made of, so a benchmark that was interrupted goes on where it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.instances import MODELS, ROOT, Case, Source, build, from_json, to_json
from poetc.schedule.model.problem import PageIn, Problem, Schedule

OURS = ("auto", "milp")
MEMORY_BYTES = 8 * 2**30
"""Address space of one run."""
BASELINE_LIMIT_S = 10.0
"""For each run of a baseline: those that solve a MILP would take all the time there is."""


def digest(*parts: str) -> str:
    """A short hash of texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def sources(*paths: str) -> str:
    """A hash of the Python sources below these paths of the repository."""
    found = sorted(file for path in paths for file in _sources(ROOT / path))
    return digest(*(f"{file.relative_to(ROOT)}\0{file.read_text()}" for file in found))


def _sources(path: Path) -> Iterable[Path]:
    return [path] if path.is_file() else [*path.rglob("*.py"), *path.rglob("*.toml")]


def solver_sources() -> str:
    """A hash of the modules of poetc that `solve` is made of."""
    import poetc.schedule.model.checker
    import poetc.schedule.solve  # noqa: F401

    files = [
        str(Path(module.__file__).relative_to(ROOT))
        for name, module in sys.modules.items()
        if name.startswith("poetc.schedule.") and module.__file__ is not None
    ]
    return sources(*files)


@dataclass(frozen=True)
class Run:
    """One strategy on one case. `problem` has the limits of the case, `text` is its JSON."""

    case: Case
    strategy: str
    problem: Problem
    text: str
    time_limit_s: float
    gap: float
    effort_s: float | None = None

    @property
    def options(self) -> dict:
        """What `solve` is called with."""
        limits = {"time_limit_s": self.time_limit_s, "gap": self.gap, "effort_s": self.effort_s}
        return {"strategy": self.strategy} | limits

    def key(self, schedule_sources: str) -> str:
        """Changes with whatever the result depends on."""
        return digest(self.text, json.dumps(self.options, sort_keys=True), schedule_sources)


class Cache:
    """Finished results below a directory that Git ignores, a JSON file each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ".gitignore").write_text("*\n")

    def get(self, kind: str, key: str) -> dict | None:
        """What was kept, None if nothing was."""
        path = self._path(kind, key)
        return json.loads(path.read_text()) if path.exists() else None

    def put(self, kind: str, key: str, value: dict) -> None:
        """Keeps a value; a reader never sees half of it."""
        path = self._path(kind, key)
        path.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(value, file)
        Path(file.name).replace(path)

    def _path(self, kind: str, key: str) -> Path:
        return self.directory / kind / f"{key}.json"

    def remember(self, kind: str, key: str, make: Callable[[], dict]) -> dict:
        """What was kept, or what `make` returns, which is kept unless it says "crashed"."""
        value = self.get(kind, key)
        if value is None:
            value = make()
            if value.get("status") != "crashed":
                self.put(kind, key, value)
        return value


WORKER = "from benchmarks.runs import answer_request; answer_request()"
"""What the process of a run does."""


def answer_request() -> None:
    """In a process of its own: the answer to the request in the file that is the first word of the
    command line goes to the file that is the second, and the process ends."""
    asked, answer = map(Path, sys.argv[1:])
    answer.write_text(json.dumps(worker(json.loads(asked.read_text()))))
    # A solver thread that was left behind must not delay the end.
    os._exit(0)


def work(request: dict, timeout_s: float) -> dict:
    """Runs one request (see `worker`) in a process of its own; adds its wall `seconds`, if it does
    not say itself, and its peak `rss_bytes`. A process that fails has the status "killed" (too
    late), "out of memory" or "crashed"."""
    with tempfile.TemporaryDirectory() as directory:
        asked, answer = Path(directory, "request.json"), Path(directory, "answer.json")
        asked.write_text(json.dumps(request))
        command = [sys.executable, "-c", WORKER, asked, answer]
        errors = Path(directory, "errors.txt")
        started = time.monotonic()
        with errors.open("w") as stderr:
            process = subprocess.Popen(command, cwd=ROOT, stdout=stderr, stderr=stderr)
            late = threading.Event()
            timer = threading.Timer(timeout_s, lambda: (late.set(), process.kill()))
            timer.start()
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                raise
            finally:
                timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        value: dict = {"seconds": time.monotonic() - started}
        if answer.exists():
            value |= json.loads(answer.read_text())
        elif late.is_set():
            value["status"] = "killed"
        else:
            message = errors.read_text().strip()
            memory = re.search("MemoryError|bad_alloc|cannot allocate", message, re.IGNORECASE)
            value["status"] = "out of memory" if memory else "crashed"
            value["message"] = message[-2000:] or f"exit code {process.returncode}"
        return value | {"rss_bytes": usage.ru_maxrss * 1024}


def worker(request: dict) -> dict:
    """In its own process: build the problem of a source, find its least RAM, or solve it."""
    task = request["task"]
    if task == "build":
        return {"problem": to_json(build(Source(**request["source"])))}
    problem = from_json(request["problem"])
    if task == "least":
        from poetc.schedule.model.instance import Instance
        from poetc.schedule.search.infeasibility import least_ram

        least = least_ram(Instance(problem))
        return {"known": least.known, "bound": least.bound}
    return _solve(problem, request["options"])


def _solve(problem: Problem, options: dict) -> dict:
    from poetc.schedule.model.checker import check
    from poetc.schedule.model.errors import (
        InfeasibleProblem,
        NoScheduleError,
        SolverTimeLimit,
        StrategyUndefinedError,
    )
    from poetc.schedule.solve import Progress, solve

    free = dataclasses.replace(problem, ram_bytes=None, deadline_ns=None, storage_bytes=None)
    unlimited = solve(free, strategy="keep-all")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    trace: list[tuple[float, float | None]] = []

    def progress(now: Progress) -> None:
        energy = now.energy_nj / max(unlimited.energy_nj, 1)
        if energy < float("inf") and (not trace or energy != trace[-1][1]):
            trace.append((round(now.seconds, 2), energy))

    started, processor = time.monotonic(), time.process_time()
    try:
        schedule = solve(problem, **options, progress=progress)
    except InfeasibleProblem as error:
        result: dict = {"status": "infeasible", "message": str(error)}
    except NoScheduleError as error:
        result = {"status": "none found", "message": str(error)}
    except StrategyUndefinedError as error:
        result = {"status": "undefined", "message": str(error)}
    except SolverTimeLimit as error:
        result = {"status": "time limit", "message": str(error)}
    else:
        check(problem, schedule)
        result = {
            "status": schedule.status,
            "energy": schedule.energy_nj / max(unlimited.energy_nj, 1),
            "time": schedule.makespan_ns / max(unlimited.makespan_ns, 1),
            "bound": schedule.bound_nj / max(unlimited.energy_nj, 1),
            "gap": schedule.gap,
            "log": schedule.log[-20:],
            "energy_nj": schedule.energy_nj,
            "makespan_ns": schedule.makespan_ns,
            "peak_bytes": schedule.peak_bytes,
        } | techniques(schedule)
    result |= {
        "seconds": time.monotonic() - started,
        "processor_seconds": time.process_time() - processor,
    }
    return result | {"trace": trace}


def techniques(schedule: Schedule) -> dict:
    """What a schedule makes use of: kernels run again, page-ins, another order of first runs."""
    runs = [step.operation for step in schedule.computes]
    first = list(dict.fromkeys(runs))
    return {
        "recomputes": len(runs) - len(first),
        "page_ins": sum(isinstance(step, PageIn) for step in schedule.steps),
        "reordered": first != sorted(first),
    }


class Problems:
    """The problems of the sources and their least RAM, each made once."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.built: dict[Source, Problem] = {}

    def limited(self, case: Case) -> Problem:
        """The problem of a case. Raises RuntimeError if it cannot be made."""
        problem = self._problem(case.source)
        return case.limit(problem, self._least(problem) if case.needs_least else None)

    def _problem(self, source: Source) -> Problem:
        if source not in self.built:
            # Compiling a large model takes longer than many a solve; the others do not.
            self.built[source] = self._compiled(source) if source.compiled else build(source)
        return self.built[source]

    def _compiled(self, source: Source) -> Problem:
        request = {"task": "build", "source": dataclasses.asdict(source)}
        text = (MODELS / f"{source.graph}.mlir").read_text()
        key = digest(text, source.device, sources("poetc", "benchmarks/instances.py"))
        return from_json(self._answer("problems", key, request)["problem"])

    def _least(self, problem: Problem) -> int:
        # Of the sources only the function itself counts: the value is the peak of a checked
        # schedule, so it stays right when the solvers change, and instances stay the same.
        text = to_json(problem)
        key = digest(text, sources("poetc/schedule/search/infeasibility.py"))
        known = self._answer("least", key, {"task": "least", "problem": text})["known"]
        if known is None:
            raise RuntimeError("no schedule is known, whatever the RAM")
        return known

    def _answer(self, kind: str, key: str, request: dict) -> dict:
        answer = self.cache.remember(kind, key, lambda: work(request, 600.0))
        if "status" in answer:
            raise RuntimeError(f"{request['task']}: {answer['status']}: {answer.get('message')}")
        return answer


def execute(runs: Sequence[Run], cache: Cache, jobs: int) -> list[dict]:
    """The results of all runs, in order; says what is being done on standard error."""
    version = solver_sources()
    done = 0
    lock = threading.Lock()

    def one(run: Run) -> dict:
        nonlocal done
        request = {"task": "solve", "problem": run.text, "options": run.options}
        timeout_s = 2 * run.time_limit_s + 60
        result = cache.remember("results", run.key(version), lambda: work(request, timeout_s))
        with lock:
            done += 1
            shown = f"{result['energy']:.4f}" if "energy" in result else ""
            print(
                f"[{done}/{len(runs)}] {run.case.name} {run.strategy}: {result['status']} {shown} "
                f"{result['seconds']:.1f} s",
                file=sys.stderr,
                flush=True,
            )
            if result["status"] == "crashed":
                print(result["message"], file=sys.stderr, flush=True)
        return result

    pool = ThreadPoolExecutor(jobs)
    try:
        return list(pool.map(one, runs))
    finally:
        pool.shutdown(cancel_futures=True)
