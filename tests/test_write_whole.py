"""Whatever ends a writer, and whoever else writes: a directory is of one run, a file is whole."""

import errno
import itertools
import os
import random
import re
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path

import pytest
from conftest import more
from storage_step import storage_module
from test_layouts import step_module

from poetc.backends.c.boards import load_board
from poetc.backends.c.directory import write_generated
from poetc.backends.c.emit import generate
from poetc.backends.c.libraries import INDEX_FILES, indexed, known_layouts
from poetc.backends.c.measure import generate as measuring
from poetc.backends.c.runtime_files import is_runtime
from poetc.errors import InputError
from poetc.files import write_whole
from poetc.image_files import read_layout
from poetc.tensors import SUFFIX, read_tensors

FOREIGN = {"notes.txt": "mine", "build/a.o": "product", "src/mine.c": "int mine;\n"}


@cache
def versions() -> tuple[Mapping[str, str], ...]:
    """What four runs write: more files, fewer files, in other places, with data (bytes as text)."""
    data = {"data/arg0.bin": b"\0\xff\x80", "data/image.bin": b"", "data/expected.bin": b"\n" * 9}
    with_data = generate(step_module(), stack_bytes=4096)
    listed = indexed("Makefile", with_data, data)
    return (
        generate(storage_module()),
        generate(step_module()),
        generate(step_module(), layout="cmake"),
        {**{name: text_of(content) for name, content in data.items()}, **listed},
    )


def text_of(content: bytes) -> str:
    return content.decode(errors="surrogateescape")


def write(files: Mapping[str, str], target: str | Path) -> None:
    write_generated(
        {
            name: text.encode(errors="surrogateescape") if name.endswith(".bin") else text
            for name, text in files.items()
        },
        target,
    )


def contents(directory: Path) -> dict[str, str]:
    return {
        str(path.relative_to(directory)): text_of(path.read_bytes())
        for path in directory.rglob("*")
        if path.is_file()
    }


def write_for_ever(target: Path, seed: int, begun: int) -> None:
    rng = random.Random(seed)
    os.write(begun, b".")
    while True:
        write(rng.choice(versions()), target)


def forked(work: Callable[[], None]) -> int:
    """Runs in a process of its own, which is this one without the time to start."""
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return process


def killed(
    tmp_path: Path, kills: int, writers: int, signals: tuple[signal.Signals, ...]
) -> Iterator[Path]:
    """The directory after each time that all of its writers were killed at a random moment."""
    rng = random.Random(kills * writers)
    target = tmp_path / "out"
    runs = versions()
    start = time.monotonic()
    for files in runs:
        write(files, target)
    whole_s = time.monotonic() - start
    for number in range(kills):
        if number % 20 == 0:
            shutil.rmtree(target, ignore_errors=True)
        elif number % 20 == 1:
            write(versions()[0], target)
            for name, text in FOREIGN.items():
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_text(text)
        begun, tell = os.pipe()
        processes = [
            forked(partial(write_for_ever, target, number * writers + w, tell))
            for w in range(writers)
        ]
        os.read(begun, 1)
        os.close(begun)
        os.close(tell)
        time.sleep(rng.uniform(0, whole_s))
        for process in processes:
            os.kill(process, rng.choice(signals))
        for process in processes:
            _, status = os.waitpid(process, 0)
            assert os.WIFSIGNALED(status)
        if number % 20 or target.exists():
            yield target


def build_ids(files: Mapping[str, str]) -> set[int]:
    pattern = re.compile(r'(?:MODEL|MEASURE)_BUILD_ID.* 0x(\w+)u|"build_id": (\d+)')
    found = (match for text in files.values() for match in pattern.finditer(text))
    return {int(match[1], 16) if match[1] else int(match[2]) for match in found}


@pytest.mark.slow
@pytest.mark.parametrize("writers", [2, *more(1)])
def test_a_directory_is_of_one_run_whenever_its_writers_are_killed(
    writers: int, tmp_path: Path
) -> None:
    seen: set[int] = set()
    built: set[int] = set()
    for target in killed(tmp_path, 80 // writers, writers, (signal.SIGTERM, signal.SIGKILL)):
        found = contents(target)
        mine = {name: found.pop(name) for name in FOREIGN if name in found}
        assert mine in ({}, FOREIGN)
        assert found in versions()
        seen.add(versions().index(found))
        assert len(build_ids(found)) == 1
        if seen != built and "Makefile" in found:
            built = set(seen)
            copy = tmp_path / f"copy{len(built)}"
            shutil.copytree(target, copy)
            subprocess.run(["make", "-s", "CFLAGS=-O0"], cwd=copy, check=True, capture_output=True)
    assert seen == {0, 1, 2, 3} and built
    # What killed writers left goes with the next that is not killed.
    write(versions()[0], tmp_path / "out")
    left = [path.name for path in tmp_path.iterdir() if not path.name.startswith("copy")]
    assert left == ["out"]


def test_writers_that_are_not_killed_leave_nothing(tmp_path: Path) -> None:
    def some(seed: int) -> None:
        for files in random.Random(seed).choices(versions(), k=20):
            write(files, tmp_path / "out")

    write(versions()[0], tmp_path / "out")
    (tmp_path / "out" / "mine").write_text("mine")
    processes = [forked(lambda seed=seed: some(seed)) for seed in range(3)]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    found = contents(tmp_path / "out")
    assert found.pop("mine") == "mine" and found in versions()


def no_exchange(*_: object) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.slow
@pytest.mark.parametrize("version", [3, *more(1)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_in_place_sigterm_waits_and_what_sigkill_leaves_does_not_build(
    number: signal.Signals, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where directories cannot be exchanged: killed at each file that is put in place."""
    monkeypatch.setattr("poetc.backends.c.directory.exchange", no_exchange)
    old, new = versions()[0], versions()[version]
    original = Path.replace
    # What a build reads; the runtime, for one, is the same in both.
    other = {n for n in {*old, *new} if n.endswith((".c", ".h")) and old.get(n) != new.get(n)}
    mixed = built = 0
    for last in range(len(new)):
        write(old, tmp_path / "out")
        (tmp_path / "out" / "mine").write_text("mine")
        count = itertools.count()

        def kills(path: Path, target: Path, last: int = last, count: Iterator[int] = count) -> Path:
            if next(count) == last:
                os.kill(os.getpid(), number)
            return original(path, target)

        with monkeypatch.context() as context:
            context.setattr(Path, "replace", kills)
            process = forked(lambda: write(new, tmp_path / "out"))
        assert os.waitpid(process, 0)[1] != 0
        found = {n: t for n, t in contents(tmp_path / "out").items() if ".poetc." not in n}
        assert found.pop("mine") == "mine"
        if number == signal.SIGTERM:
            assert found == new and not list((tmp_path / "out").glob(".poetc.*"))
            continue
        mixed += found not in versions()
        is_mixed = all(any(found.get(n) != whole.get(n) for n in other) for whole in (old, new))
        if last % 4 == 1 and is_mixed:
            built += 1
            made = subprocess.run(["make"], cwd=tmp_path / "out", capture_output=True, text=True)
            assert made.returncode != 0
            assert "another run" in made.stderr or "No rule to make target" in made.stderr
            for product in (tmp_path / "out").glob("*.o"):
                product.unlink()
    assert (mixed > 0 and built > 0) or number == signal.SIGTERM
    write(old, tmp_path / "out")
    assert contents(tmp_path / "out") == {**old, "mine": "mine"}


def directories() -> dict[str, Callable[[int], Mapping[str, str]]]:
    """What writes directories; what it is given changes a number in the files."""

    def library(layout: str) -> Callable[[int], Mapping[str, str]]:
        return lambda stack: generate(storage_module(), layout=layout, stack_bytes=stack)

    def program(board: str) -> Callable[[int], Mapping[str, str]]:
        return lambda number: measuring((), load_board(board), "cortex-m0", f"{number}.mlir")

    return {
        **{layout: library(layout) for layout in known_layouts()},
        "firmware": lambda stack: generate(
            storage_module(), board=load_board("microbit"), stack_bytes=stack
        ),
        "profile": program("microbit"),
        "profile of host": program("host"),
    }


def refusal(directory: Path, changed: str, index: str | None) -> str:
    """What is said when `directory` is built or read, as far as it can be of `changed`."""
    file = directory / changed
    if file.name == "library.json":
        return "nothing reads it"
    if file.suffix == ".json":
        with pytest.raises(InputError) as error:
            if file.name.endswith(SUFFIX):
                read_tensors(directory)
            else:
                read_layout(file)
        return str(error.value)
    folders = sorted({path.parent for path in directory.rglob("*.h")})
    defined: list[str] = []
    if index is not None:
        found = re.search(r"(MODEL|MEASURE)_BUILD_FILE_ID=\w+", (directory / index).read_text())
        defined = [] if found is None else [f"-D{found[0]}"]
    if file.suffix in (".c", ".h", ".ino") or (changed == index and defined):
        itself = changed != index and not changed.endswith("_build.h")
        source = file if itself else next(directory.rglob("*kernels.c"))
        words = ["gcc", "-E", "-x", "c", *defined, *(f"-I{folder}" for folder in folders)]
        run = subprocess.run([*words, source], capture_output=True, text=True)
    elif index == "Makefile":
        run = subprocess.run(["make", "-n"], cwd=directory, capture_output=True, text=True)
    elif index == "CMakeLists.txt":
        text = (directory / index).read_text()
        script = directory / "check.cmake"
        script.write_text(text[text.index("foreach(file") :])
        run = subprocess.run(["cmake", "-P", script], capture_output=True, text=True)
        script.unlink()
    else:
        return "nothing reads it"
    return run.stderr if run.returncode else ""


@pytest.mark.parametrize("kind", directories())
def test_any_file_of_another_run_is_told(kind: str, tmp_path: Path) -> None:
    """One file at a time, in every layout, and what no compiler reads."""
    write = directories()[kind]
    old, new = write(1024), write(2048)
    assert old.keys() == new.keys() and write(1024) == old
    # The runtime is that of any run; it has a number of its own.
    runtime = {name for name, text in new.items() if is_runtime(text)}
    assert all(old[name] == new[name] and "POETC_RUNTIME" in new[name] for name in runtime)
    own = {n: t for n, t in new.items() if n not in runtime}
    assert all(len(build_ids({n: t})) == 1 for n, t in own.items()), "a file without a number"
    assert len(build_ids(new)) == 1 and build_ids(new) != build_ids(old)
    index = next((name for name in INDEX_FILES if name in new), None)
    write_generated(new, tmp_path)
    told: set[str] = set()
    for name in own:
        (tmp_path / name).write_text(old[name], encoding="utf-8")
        said = refusal(tmp_path, name, index)
        assert "another run" in said or said == "nothing reads it", (name, said)
        if "another run" in said:
            told.add(Path(name).suffix)
        (tmp_path / name).write_text(new[name], encoding="utf-8")
    unread = {".properties", ".md", ".txt"} if kind == "arduino" else set[str]()
    assert told == {Path(name).suffix for name in own} - unread
    if "model_image.json" in new:
        assert read_tensors(tmp_path).image == "model_image.json"
        read_layout(tmp_path / "model_image.json")


def test_a_description_alone_may_be_of_any_run(tmp_path: Path) -> None:
    text = versions()[0]["model_image.json"]
    (tmp_path / "model_image.json").write_text(text)
    read_layout(tmp_path / "model_image.json")
    (tmp_path / "model_build.h").write_text("")
    with pytest.raises(InputError, match="another run"):
        read_layout(tmp_path / "model_image.json")


def test_files_of_two_runs_do_not_build(tmp_path: Path) -> None:
    """One file at a time, all the way."""
    old, new = versions()[1], generate(step_module(), stack_bytes=2048)
    write_generated(new, tmp_path)
    subprocess.run(["make", "-s", "CFLAGS=-O0"], cwd=tmp_path, check=True, capture_output=True)
    for name in ("Makefile", "model.c", "model.h", "model_build.h", "main.c"):
        (tmp_path / name).write_text(old[name])
        command = ["make", "-B", "CFLAGS=-O0", "model_example"]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode != 0 and "another run" in made.stderr, name
        (tmp_path / name).write_text(new[name])


def test_a_directory_that_the_process_stands_in_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "out" / "deep")
    write(versions()[1], "..")
    assert Path("../Makefile").read_text() == versions()[1]["Makefile"]


def test_what_is_not_generated_stays_the_same_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(versions()[2], out)
    out.chmod(0o750)
    for name, text in FOREIGN.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text(text)
    (out / "empty").mkdir()
    (out / "link").symlink_to("nowhere")
    (out / "build").chmod(0o500)
    before = {name: (out / name).stat().st_ino for name in FOREIGN}
    write(versions()[1], out)
    assert {name: (out / name).stat().st_ino for name in FOREIGN} == before
    assert (out / "link").readlink() == Path("nowhere") and (out / "empty").is_dir()
    assert out.stat().st_mode & 0o777 == 0o750 and (out / "build").stat().st_mode & 0o777 == 0o500
    assert not (out / "include").exists() and (out / "src").is_dir()
    (out / "build").chmod(0o700)


@pytest.mark.slow
def test_a_file_is_whole_whenever_its_writers_are_killed(tmp_path: Path) -> None:
    target = tmp_path / "file"
    texts = [letter * (1 << 16) for letter in "ab"]
    target.write_text(texts[0])

    def work() -> None:
        for text in itertools.cycle(texts):
            write_whole(target, text)

    rng = random.Random(7)
    for number in range(60):
        processes = [forked(work) for _ in range(1 + number % 2)]
        time.sleep(rng.uniform(0, 0.006))
        for process in processes:
            os.kill(process, rng.choice((signal.SIGTERM, signal.SIGKILL)))
            os.waitpid(process, 0)
        assert target.read_text() in texts
    write_whole(target, texts[0])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
