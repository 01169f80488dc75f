"""Layouts of the generated C: each is a library that the build system it is for can use."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import subprocess
import sys
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import kconfiglib
import numpy as np
import pytest
import yaml
from compiled import prepare
from conftest import MODELS, more
from firmware import QUICK, all_results, defines, host_results, updated
from storage_step import storage_module
from test_c_emit import step_module

from poetc.backends.c.boards import CPU_FLAGS, load_board
from poetc.backends.c.emit import check_library, emit, generate
from poetc.backends.c.libraries import indexed_files, known_layouts
from poetc.backends.c.libraries.library import OPTIONS
from poetc.backends.plan.source import PlanExecutor
from poetc.cli import main
from poetc.cli.compile import build_parser
from poetc.errors import InputError
from poetc.ir.text import make_context, module_text
from poetc.passes.poet_stream import PoetStreamPass

pytestmark = pytest.mark.usefixtures("whole", "near")

ROOT = Path(__file__).parent.parent
TESTS = Path(__file__).parent
GESTURE = str(MODELS / "gesture_mlp.mlir")
ARRAYS = MODELS / "gesture_mlp.npz"
STEPS = 3

WARNINGS = (
    *("-Werror", "-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wundef", "-Wdouble-promotion"),
    *("-Wmissing-prototypes", "-Wstrict-prototypes", "-Wcast-qual"),
)
CPP_WARNINGS = ("-Werror", "-Wall", "-Wextra")

KINDS = {
    "ram": ("--ram=16KB",),
    "pages": ("--ram=9600",),
    "storage": ("--ram=8KB", "--params=storage", "--stack=640", "--static=100"),
    "caller": ("--ram=16KB", "--io=caller"),
    "plan": ("--ram=9600", "--executor=plan"),
    "tiles": (),
}
"""Options of poetc: everything in RAM, pages, parameters on storage, buffers of the caller; a
program whose schedule is data; and kernels that run in tiles, as poet-stream makes them."""


def run(*words: str | Path, cwd: Path | None = None) -> str:
    """A command that must succeed; what it printed."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def paths(directory: Path) -> set[str]:
    return {str(p.relative_to(directory)) for p in directory.rglob("*") if p.is_file()}


def compile_model(output: Path, layout: str, kind: str, *options: str) -> Path:
    source, search = GESTURE, QUICK
    if kind == "tiles":
        source, search = str(output.parent / "tiles.mlir"), ("-q",)
        module = prepare("gesture_mlp", arrange=False).module
        PoetStreamPass(1500, block=64).apply(make_context(), module)
        Path(source).write_text(module_text(module))
    words = [source, "--emit=c", f"--layout={layout}", "-o", str(output)]
    assert main([*words, *KINDS[kind], *search, *options]) == 0
    return output


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> dict[int, bytes]:
    """What the Makefile's program computes with unlimited RAM."""
    return host_results("gesture_mlp", STEPS, tmp_path_factory.mktemp("host"))


def library(
    layout: str, *kinds: object
) -> Callable[[pytest.FixtureRequest, pytest.TempPathFactory], Path]:
    def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return compile_model(tmp_path_factory.mktemp(layout) / "fw", layout, request.param)

    return pytest.fixture(scope="module", params=kinds)(make)


cmake_library = library("cmake", "pages", "caller")
arduino_library = library("arduino", "storage", "caller", *more("tiles"))
zephyr_library = library("zephyr", "storage", "caller", *more("plan", "tiles"))


# Files


def test_the_command_line_knows_all() -> None:
    action = next(a for a in build_parser()._actions if a.dest == "layout")
    assert tuple(action.choices or ()) == known_layouts()


@pytest.mark.parametrize("layout", known_layouts())
def test_every_file_is_marked_and_listed(layout: str) -> None:
    files = generate(storage_module(), layout=layout)
    for name, text in files.items():
        if not name.endswith(".json"):
            marks = ("/* Generated", "# Generated", "<!-- Generated", "Generated")
            assert text.startswith(tuple(f"{mark} by poetc." for mark in marks)), name
    (index,) = (n for n in ("Makefile", "CMakeLists.txt", "library.properties") if n in files)
    assert set(indexed_files(files[index])) == files.keys()
    # One place for poetc pack, whatever the layout.
    assert "model_image.json" in files


def test_one_layout_after_the_other(tmp_path: Path) -> None:
    """Files of the last run and of the user are what remains, and no empty directories."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "mine.c").write_text("/* mine */\n")
    (tmp_path / "notes").write_text("mine")
    for name, module in (("old", storage_module()), ("new", step_module())):
        for layout in (*known_layouts(), "make"):
            emit(module, tmp_path, name=name, layout=layout)
            files = generate(module, name=name, layout=layout)
            assert paths(tmp_path) == files.keys() | {"src/mine.c", "notes"}
            for file, text in files.items():
                assert (tmp_path / file).read_text() == text
            assert all(any(p.iterdir()) for p in tmp_path.rglob("*") if p.is_dir())


def test_what_is_not_generated_stays(tmp_path: Path) -> None:
    emit(step_module(), tmp_path, layout="zephyr")
    (tmp_path / "Kconfig").write_text("# mine\n")
    copy = tmp_path / "src" / "my_kernels.c"
    copy.write_bytes((tmp_path / "src" / "model_kernels.c").read_bytes())
    with pytest.raises(InputError, match=r"would be overwritten: Kconfig$"):
        emit(step_module(), tmp_path, layout="zephyr")
    emit(step_module(), tmp_path, layout="make")
    assert {"Kconfig", "src/my_kernels.c"} <= paths(tmp_path)
    assert not (tmp_path / "zephyr").exists()
    before = paths(tmp_path)
    (tmp_path / "include").write_text("a file")
    with pytest.raises(InputError, match=r"would be overwritten: Kconfig, include$"):
        emit(step_module(), tmp_path, layout="zephyr")
    assert paths(tmp_path) == before | {"include"}


def test_lists_that_lead_out_of_the_directory(tmp_path: Path) -> None:
    """Whatever an index says, only files in its directory are removed."""
    out, other = tmp_path / "out", tmp_path / "other.c"
    emit(step_module(), out)
    other.write_text("/* Generated by poetc. */\n")
    with (out / "Makefile").open("a") as makefile:
        makefile.write(f"# Files: ../other.c {other} . src/../../other.c\n")
    emit(step_module(), out, layout="cmake")
    assert other.exists() and not (out / "Makefile").exists()


def no_exchange(*_: object) -> None:
    raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("in_place", "method"),
    [
        *((True, method) for method in ("replace", "unlink", "mkdir")),
        (False, "write_bytes"),
        *more((True, "rmdir"), (False, "mkdir")),
    ],
)
def test_nothing_is_left_of_a_failure(
    in_place: bool, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever operation fails, the directory is as it was."""
    if in_place:
        monkeypatch.setattr("poetc.backends.c.directory.exchange", no_exchange)
    out = tmp_path / "out"
    emit(storage_module(), out, layout="arduino")
    before = {p: (out / p).read_bytes() for p in paths(out)}
    directories = {p for p in out.rglob("*") if p.is_dir()}
    original = getattr(Path, method)
    calls = last = 0

    def failing(path: Path, *arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == last:
            raise OSError(28, "No space left on device")
        return original(path, *arguments, **options)

    module = storage_module()
    files = generate(module, layout="zephyr")
    monkeypatch.setattr("poetc.backends.c.emit.generate", lambda *_, **__: files)
    monkeypatch.setattr(Path, method, failing)
    while True:
        calls, last = 0, last + 1
        try:
            emit(module, out, layout="zephyr")
        except InputError as error:
            assert "No space left" in error.message
            assert {p: (out / p).read_bytes() for p in paths(out)} == before
            assert {p for p in out.rglob("*") if p.is_dir()} == directories
        else:
            break
    assert calls == last - 1 > 0
    assert (out / "zephyr" / "module.yml").exists()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert not list(out.glob(".poetc.*"))


# The command line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--layout=cmake"], "--layout says how C is written; give --emit=c as well"),
        (["--name=net", "--emit=report"], "--name says how C is written"),
        (
            ["--emit=c", "--layout=cmake", "--board=microbit"],
            "firmware for microbit has a layout of its own",
        ),
        (["--passes=poet-verify", "--layout=cmake"], "--layout cannot go with --passes"),
        (["--emit=c", "--name=2net"], "'2net' cannot begin the names of C symbols"),
        (["--emit=c", "--name=_net"], "'_net' cannot begin the names of C symbols"),
        (["--emit=c", "--name="], "--name is given without a value"),
        (
            ["--emit=c", "--layout=arduino", "--name=SPI"],
            "'SPI' cannot be the name of an Arduino library: SPI.h would",
        ),
        (["--emit=c", "--name=math"], "'math' cannot be the name of a model"),
        (["--emit=c", "--name=features"], "'features' cannot be the name of a model"),
        (["--emit=c", "--name=Poetc_net"], "'Poetc_net' cannot be the name of a model"),
        (["--emit=c", "--name=store_disk"], "'store_disk' cannot be the name of a model"),
        (
            ["--emit=c", "--layout=arduino", "--name=arduino_net"],
            "'arduino_net' cannot be the name of an Arduino library",
        ),
        (["--emit=c", "--layout=cmake", "--name=test"], "'test' cannot be the name of a CMake"),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is searched for, and nothing is written."""
    assert main([GESTURE, *words, "-o", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_names_that_begin_other_symbols() -> None:
    """Of the model's symbols and macros none may be that of a function or macro of ours."""
    programs = [
        generate(storage_module(), executor=PlanExecutor()),
        generate(storage_module(), board=load_board("lm3s6965")),
    ]
    own = set(re.findall(r"\bmodel_(\w+)|\bMODEL_(\w+)", "".join(programs[0].values())))
    endings = {"is_callers", "STEP_ON"} | {a or b for a, b in own}
    ours = set[str]()
    for path in (ROOT / "poetc" / "backends" / "c").rglob("*"):
        if path.suffix in (".c", ".h", ".ino") and path.parent.name != "measure":
            ours |= set(re.findall(r"\b(?!model_|MODEL_)\w+", path.read_text()))
    taken = {word.removesuffix(f"_{e}") for word in ours for e in endings if word.endswith(f"_{e}")}
    accepted: set[str] = set()
    for name in taken - {""}:
        with suppress(InputError):
            check_library(name.lower(), "make", None)
            accepted.add(name)
    assert not accepted


@pytest.mark.slow
@pytest.mark.parametrize("executor", [None, PlanExecutor()], ids=["code", "plan"])
def test_names_like_those_in_the_code(executor: PlanExecutor | None, tmp_path: Path) -> None:
    """What the generated code calls its own is nothing that a model may not be called."""
    for name in ("at", "arena", "state", "run", "store"):
        emit(step_module(), tmp_path / name, name=name, executor=executor)
        sources = [p for p in (tmp_path / name).glob("*.c") if p.name != "store_thread.c"]
        run("gcc", "-std=c99", *WARNINGS, *sources, "-o", tmp_path / "program")


# CMake

USE = """\
cmake_minimum_required(VERSION 3.15)
project(user LANGUAGES {language})
{find}
add_executable(user user.{suffix})
target_link_libraries(user PRIVATE poetc::{name})
"""

PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>

#include <{name}.h>
#include <store_file.h>

/* Runs steps on DIRECTORY/argN.bin, and writes DIRECTORY/outN.bin. */
int main(int count, char **words)
{{
    char path[4096];
    poetc_file_store store;
    if (count != 4 || poetc_file_store_open{image}(&store, words[3]) != POETC_OK) {{
        return 1;
    }}
    for (int step = 0; step < atoi(words[2]); ++step) {{
        for (uint32_t i = 0; i < {macro}_ARGUMENTS; ++i) {{
            if ((step == 0 || !{name}_argument_is_parameter(i)) && {name}_argument(i) != NULL) {{
                snprintf(path, sizeof path, "%s/arg%d.bin", words[1], (int)i);
                FILE *file = fopen(path, "rb");
                const size_t bytes = {name}_argument_bytes(i);
                if (file == NULL || fread({name}_argument(i), 1, bytes, file) != bytes) {{
                    return 2;
                }}
                fclose(file);
            }}
        }}
        if ({name}_step(&store.store) != POETC_OK) {{
            return 3;
        }}
    }}
    for (uint32_t i = 0; i < {macro}_RESULTS; ++i) {{
        if ({name}_result(i) != NULL) {{
            snprintf(path, sizeof path, "%s/out%d.bin", words[1], (int)i);
            FILE *file = fopen(path, "wb");
            const size_t bytes = {name}_result_bytes(i);
            if (file == NULL || fwrite({name}_result(i), 1, bytes, file) != bytes) {{
                return 4;
            }}
            fclose(file);
        }}
    }}
    return poetc_file_store_close(&store) == POETC_OK ? 0 : 5;
}}
"""


def configure(source: Path, build: Path, *words: str, flags: tuple[str, ...] = WARNINGS) -> None:
    """Configure and build; a warning of CMake or of the compiler is an error."""
    text = (source / "CMakeLists.txt").read_text()
    languages: dict[str, tuple[str, ...]] = {"CXX": CPP_WARNINGS} if "CXX" in text else {}
    if "LANGUAGES C)" in text or "add_subdirectory" in text:
        languages["C"] = flags
    options = [f"-DCMAKE_{language}_FLAGS={' '.join(f)}" for language, f in languages.items()]
    printed = run("cmake", "-S", source, "-B", build, "-Wdev", "-Werror=dev", *options, *words)
    assert "Warning" not in printed
    run("cmake", "--build", build)


def write_arguments(directory: Path, target: Path) -> None:
    """arg0.bin and so on, and storage.bin if parameters are there."""
    target.mkdir(exist_ok=True)
    with np.load(ARRAYS) as arrays:
        for name in arrays:
            if name.startswith("arg"):
                arrays[name].tofile(target / f"{name}.bin")
    if list(directory.glob("*_image.json")):
        image = target / "storage.bin"
        assert main(["pack", "-q", str(directory), str(ARRAYS), "-o", str(image)]) == 0


def write_user(directory: Path, find: str, language: str, kind: str, name: str = "model") -> None:
    directory.mkdir()
    suffix = "c" if language == "C" else "cpp"
    text = USE.format(find=find, language=language, suffix=suffix, name=name)
    (directory / "CMakeLists.txt").write_text(text)
    image = "_image" if kind in ("storage", "tiles") else ""
    program = PROGRAM.format(name=name, macro=name.upper(), image=image)
    (directory / f"user.{suffix}").write_text(program)


def check_user(program: Path, fw: Path, data: Path, host: dict[int, bytes]) -> None:
    """Results, and parameters on storage, are those of the host."""
    write_arguments(fw, data / "data")
    run(program, data / "data", str(STEPS), data / "data" / "storage.bin")
    for path in fw.glob("*.json"):
        (data / path.name).write_text(path.read_text())
    assert all_results(data) == host


@pytest.mark.slow
def test_cmake_example(cmake_library: Path, tmp_path: Path, host: dict[int, bytes]) -> None:
    """By itself the project builds the example."""
    build = tmp_path / "build"
    configure(cmake_library, build)
    if "MODEL_CALLER_BYTES" in (cmake_library / "include" / "model.h").read_text():
        write_arguments(cmake_library, tmp_path / "data")
        run(build / "model_example", tmp_path / "data", str(STEPS))
        assert (tmp_path / "data" / "out0.bin").read_bytes() == host[0]
    else:
        check_user(build / "model_example", cmake_library, tmp_path, host)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "language"),
    [("plan", "CXX"), ("tiles", "C"), *more(("pages", "C"), ("storage", "CXX"))],
)
def test_cmake_subdirectory(
    kind: str, language: str, tmp_path: Path, host: dict[int, bytes]
) -> None:
    """A program elsewhere links the target; its own options do not change the bits."""
    fw = compile_model(tmp_path / "fw", "cmake", kind)
    write_user(tmp_path / "user", f"add_subdirectory({fw} fw)", language, kind)
    build = tmp_path / "build"
    configure(tmp_path / "user", build, flags=(*WARNINGS, "-O3", "-ffast-math", "-mfma"))
    assert not list(build.rglob("model_example"))
    check_user(build / "user", fw, tmp_path, host)


@pytest.mark.slow
def test_cmake_package(tmp_path: Path, host: dict[int, bytes]) -> None:
    """Installed, and found from there; the name is the user's, and the source is gone."""
    fw = compile_model(tmp_path / "fw", "cmake", "pages", "--name=gesture")
    configure(fw, tmp_path / "built", f"-DCMAKE_INSTALL_PREFIX={tmp_path / 'usr'}")
    run("cmake", "--install", tmp_path / "built")
    write_arguments(fw, tmp_path / "data")
    subprocess.run(["rm", "-r", fw, tmp_path / "built"], check=True)
    write_user(tmp_path / "user", "find_package(gesture REQUIRED)", "CXX", "pages", "gesture")
    configure(tmp_path / "user", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'usr'}")
    run(tmp_path / "build" / "user", tmp_path / "data", str(STEPS), tmp_path / "pages.bin")
    assert (tmp_path / "data" / "out0.bin").read_bytes() == host[0]


TOOLCHAIN = """\
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_C_FLAGS_INIT "{flags}")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
"""


@pytest.mark.slow
@pytest.mark.parametrize("cmake_library", ["pages", *more("caller")], indirect=True)
@pytest.mark.parametrize("cpu", ["cortex-m0", *more("cortex-m4")])
def test_cmake_cross_compiles(cpu: str, cmake_library: Path, tmp_path: Path) -> None:
    """Without an operating system: no example, no C library."""
    flags = " ".join((*CPU_FLAGS[cpu], "-ffreestanding"))
    (tmp_path / "arm.cmake").write_text(TOOLCHAIN.format(flags=flags))
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={tmp_path / 'arm.cmake'}"
    configure(cmake_library, tmp_path / "build", toolchain, flags=(*WARNINGS, flags))
    symbols = run("arm-none-eabi-nm", tmp_path / "build" / "libmodel.a")
    assert " T model_step" in symbols and "fopen" not in symbols


@pytest.mark.slow
@pytest.mark.parametrize("cmake_library", ["pages", *more("caller")], indirect=True)
def test_cmake_store_in_a_thread(
    cmake_library: Path, tmp_path: Path, host: dict[int, bytes]
) -> None:
    configure(cmake_library, tmp_path, "-DPOETC_STORE_THREAD=ON")
    write_arguments(cmake_library, tmp_path / "data")
    run(tmp_path / "model_example", tmp_path / "data", str(STEPS))
    assert "poetc_thread_store_open" in run("nm", tmp_path / "model_example")
    assert (tmp_path / "data" / "out0.bin").read_bytes() == host[0]


@pytest.mark.slow
def test_the_page_about_layouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its commands and its CMake project do what it says; the options that it names are there."""
    page = (ROOT / "docs" / "layouts.md").read_text()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = re.findall(r"^poetc (.*)$", page.replace("\\\n", ""), re.MULTILINE)
    assert [word for c in commands for word in c.split() if word[:8] == "--layout"] == [
        f"--layout={layout}" for layout in known_layouts()[1:]
    ]
    text = ""
    for command in commands:
        words = command.split()
        output = Path(words.pop()).expanduser()
        output.parent.mkdir(parents=True, exist_ok=True)
        assert main([*words, str(output), *QUICK]) == 0
        text += "".join((output / name).read_text() for name in paths(output))
    text = text.replace("config POETC", "CONFIG_POETC")
    for name in re.findall(r"\b(?:CONFIG_)?(?:POETC_)?GESTURE_\w+", page):
        assert name in text, name
    projects = re.findall(r"```cmake\n(cmake_minimum.*?)```", page, re.DOTALL)
    (tmp_path / "CMakeLists.txt").write_text(*projects)
    (tmp_path / "trainer.c").write_text(PROGRAM.format(name="gesture", macro="GESTURE", image=""))
    configure(tmp_path, tmp_path / "build")
    assert (tmp_path / "build" / "trainer").exists()


# The serial line


@contextmanager
def on_a_line(*words: str | Path, **variables: str) -> Iterator[str]:
    """Runs a program whose input and output are one end of a line. The name of the other end."""
    board, other = pty.openpty()
    tty.setraw(other)
    process = subprocess.Popen(
        [str(word) for word in words], stdin=board, stdout=board, env=os.environ | variables
    )
    os.close(board)
    try:
        yield os.ttyname(other)
    finally:
        os.close(other)
        try:
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()


def train(line: str, output: Path, steps: int = STEPS) -> tuple[dict[int, bytes], str]:
    """The example at the other end. Results, and what it printed."""
    command = [ROOT / "examples" / "serial_line.py", line, ARRAYS, "--steps", str(steps)]
    printed = run(sys.executable, *command, "-o", output)
    with np.load(output) as arrays:
        return {int(name[3:]): arrays[name].tobytes() for name in arrays}, printed


def unpacked(directory: Path, header: Path, image: Path) -> dict[int, bytes]:
    """New values of parameters in an image, by the number of the result."""
    file = image.with_suffix(".npz")
    assert main(["unpack", "-q", str(directory), str(image), "-o", str(file)]) == 0
    with np.load(file) as arrays:
        return {r: arrays[f"arg{a}"].tobytes() for r, a in updated(directory).items()}


# Arduino

REQUIRED = {
    *("name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url"),
    "architectures",
}
CATEGORIES = {
    *("Display", "Communication", "Signal Input/Output", "Sensors", "Device Control", "Timing"),
    *("Data Storage", "Data Processing", "Other"),
}
# As the core for SAMD boards compiles; what is left to its defaults is, too.
ARDUINO_C = ("-std=gnu11", "-Os", "-ffunction-sections", "-fdata-sections", "-nostdlib")
ARDUINO_CPP = ("-std=gnu++11", "-Os", "-fno-threadsafe-statics", "-fno-rtti", "-fno-exceptions")
M0 = CPU_FLAGS["cortex-m0"]


def sketch(directory: Path) -> Path:
    """The example as the IDE compiles it: with prototypes of its functions, as C++."""
    (ino,) = directory.glob("examples/*/*.ino")
    text = ino.read_text()
    includes = text[: text.rindex("#include")].count("\n")
    lines = ["#include <Arduino.h>", *text.splitlines()]
    lines.insert(includes + 2, "void setup();\nvoid loop();")
    (directory / "sketch.cpp").write_text("\n".join(lines) + "\n")
    return directory / "sketch.cpp"


@pytest.mark.slow
def test_arduino_properties(arduino_library: Path) -> None:
    """The rules of the library specification, version 2.2."""
    lines = (arduino_library / "library.properties").read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if line and not line.startswith("#")]
    fields = dict(pairs)
    assert len(fields) == len(pairs) and fields.keys() >= REQUIRED
    assert fields.keys() <= REQUIRED | {"includes", "dot_a_linkage"}
    assert all(value and value == value.strip() for value in fields.values())
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 _.\-]{0,62}", fields["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", fields["version"])
    assert fields["category"] in CATEGORIES
    # Boards with 8 and 16 bits are none of them.
    architectures = fields["architectures"].split(",")
    assert {"samd", "esp32", "rp2040", "mbed_nano"} <= {*architectures}
    assert not {"avr", "megaavr", "*", ""} & {*architectures}
    assert len({*architectures}) == len(architectures)
    assert all(re.fullmatch(r"[a-z0-9_]+", a) for a in architectures)
    assert re.fullmatch(r"https?://\S+", fields["url"]) and fields["dot_a_linkage"] == "true"
    assert not fields["paragraph"].startswith(fields["sentence"])
    assert not re.match("arduino", fields["name"] + fields["maintainer"], re.IGNORECASE)
    assert (arduino_library / "src" / fields["includes"]).exists()
    # With src/, no sources elsewhere but in examples, and no directory of format 1.0.
    names = paths(arduino_library)
    assert not (arduino_library / "utility").exists()
    assert all(n.startswith(("src/", "examples/")) for n in names if n.endswith((".c", ".h")))
    for ino in arduino_library.glob("**/*.ino"):
        assert ino.stem == ino.parent.name and ino.parent.parent.name == "examples"


def test_arduino_rules(arduino_library: Path) -> None:
    """What arduino-lint looks for beside the properties, by the names of its rules."""
    fw, names = arduino_library, paths(arduino_library)
    top = {name for name in names if "/" not in name}
    fields = dict(
        line.split("=", 1)
        for line in (fw / "library.properties").read_text().splitlines()
        if "=" in line and not line.startswith("#")
    )
    assert {"README.md", "LICENSE.txt"} <= top  # LD001, LD002
    assert f"src/{fields['name']}.h" in names  # LS008: a header with the name of the library
    assert "keywords.txt" in top and "Keywords.txt" not in top  # LS009 and after
    assert not any(part.startswith(".") for name in names for part in name.split("/"))
    assert not {"example", "Examples", "extra", "extras"} & {p.name for p in fw.iterdir()}
    assert not any(n.endswith((".exe", ".o", ".a", ".so")) for n in names)
    assert not fields["sentence"].isupper() and fields["version"].count(".") == 2
    # Fields of keywords.txt are apart by one tab, and are of the kinds that the IDE knows.
    lines = (fw / "keywords.txt").read_text().splitlines()
    pairs = [line.split("\t") for line in lines if line and not line.startswith("#")]
    assert all(len(p) == 2 and p[1] in ("KEYWORD1", "KEYWORD2", "LITERAL1") for p in pairs)
    known = dict(pairs)
    assert len(known) == len(pairs)
    header = (fw / "src" / "model.h").read_text()
    assert known["model_step"] == "KEYWORD2" and known["MODEL_RAM_BYTES"] == "LITERAL1"
    assert all(name in header or name.startswith("poetc_") for name in known)
    sources = "".join(p.read_text() for p in fw.glob("src/*"))
    assert not re.search(r"#include\s*<arduino\.h>", sources)  # LC001: the case of Arduino.h


def test_platformio_manifest(arduino_library: Path) -> None:
    """Fields that its library.json must have, and files that are there."""
    data = json.loads((arduino_library / "library.json").read_text())
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,50}", data["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", data["version"]) and len(data["description"]) <= 255
    assert data["license"] == "Apache-2.0" and data["build"]["flags"] == list(OPTIONS)
    assert (arduino_library / "src" / data["headers"]).is_file()
    for example in data["examples"]:
        assert all((arduino_library / example["base"] / f).is_file() for f in example["files"])


@pytest.mark.slow
def test_component_manifest(cmake_library: Path) -> None:
    """Of ESP-IDF, whose registry takes no component without a version, nor without a licence."""
    manifest = yaml.safe_load((cmake_library / "idf_component.yml").read_text())
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"]) and manifest["description"]
    assert manifest["license"] == "Apache-2.0" and manifest["dependencies"].keys() == {"idf"}


@pytest.mark.slow
def test_arduino_sources_compile(arduino_library: Path, tmp_path: Path) -> None:
    """For a Cortex-M0, with the C compiler and with that for C++; the sketch as C++."""
    fw = arduino_library
    example = fw / "examples" / "train_over_serial"
    sources = [*fw.glob("src/*.c"), *example.glob("*.c")]
    where = (f"-I{fw / 'src'}", f"-I{example}", f"-I{TESTS / 'arduino_stub'}", "-c")
    c = (*M0, *ARDUINO_C, *WARNINGS, *where)
    run("arm-none-eabi-gcc", *c, *sources, cwd=tmp_path)
    for source in sources:  # -x is for the first only
        run("arm-none-eabi-g++", "-x", "c", *c, source, cwd=tmp_path)
    cpp = ("arm-none-eabi-g++", *M0, *ARDUINO_CPP, *CPP_WARNINGS, "-ffreestanding", *where)
    run(*cpp, sketch(fw), cwd=tmp_path)
    # Every header that a sketch may include is C++, too.
    for header in fw.glob("src/*.h"):
        if header.name not in {
            "model_kernels.h",
            "poetc_math.h",
            "poetc_scalar.h",
            "poetc_together.h",
        }:
            (tmp_path / "header.cpp").write_text(f"#include <{header.name}>\n")
            run(*cpp, "header.cpp", cwd=tmp_path)


@pytest.mark.slow
def test_arduino_does_not_fuse(arduino_library: Path, tmp_path: Path) -> None:
    """A library cannot choose compiler options, and those of the core would fuse."""
    m4 = CPU_FLAGS["cortex-m4"]
    for options in ("-Os", "-O3 -ffp-contract=fast", "-O2 -flto -ffat-lto-objects"):
        source = arduino_library / "src" / "model_kernels.c"
        run("arm-none-eabi-gcc", *m4, "-std=gnu11", *options.split(), "-c", source, cwd=tmp_path)
        code = run("arm-none-eabi-objdump", "-d", tmp_path / "model_kernels.o")
        assert "vmul.f32" in code and not re.search(r"\bvfn?m[as]\.f32", code)


@pytest.mark.slow
def test_arduino_trains(arduino_library: Path, tmp_path: Path, host: dict[int, bytes]) -> None:
    """The sketch on a simulated board, with a simulated memory card, and the example at the other
    end of the line."""
    fw, stub = arduino_library, TESTS / "arduino_stub"
    known = defines(fw / "src")
    card = known["MODEL_STORAGE_BYTES"] > 0
    where = (
        f"-I{fw / 'src'}",
        f"-I{fw / 'examples' / 'train_over_serial'}",
        f"-I{stub}",
        f"-I{TESTS}",
    )
    c = [*fw.glob("src/*.c"), *fw.glob("examples/*/*.c"), *([stub / "card.c"] if card else [])]
    sanitize = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    run("gcc", "-std=gnu11", "-O1", *sanitize, *where, "-c", *c, cwd=tmp_path)
    # As an archive (dot_a_linkage): what the sketch does not use is not linked.
    run("ar", "rcs", "library.a", *tmp_path.glob("*.o"), cwd=tmp_path)
    cpp = [sketch(fw), stub / "core.cpp", tmp_path / "library.a"]
    define = ["-DCARD"] if card else []
    run("g++", "-O1", *sanitize, *define, *where, *cpp, "-o", tmp_path / "board")
    image = tmp_path / "card.bin"
    image.write_bytes(bytes(131072))
    if (fw / "model_image.json").exists():
        assert main(["pack", "-q", str(fw), str(ARRAYS), "-o", str(image)]) == 0
    with on_a_line(tmp_path / "board", image) as line:
        results, printed = train(line, tmp_path / "results.npz")
    assert "after 3 steps" in printed
    if (fw / "model_image.json").exists():
        results |= unpacked(fw, fw / "src" / "model.h", image)
    assert results == host


@pytest.mark.slow
def test_arduino_ram_is_counted(tmp_path: Path) -> None:
    """The page store of the example is in MODEL_STATIC_BYTES, to the byte."""
    fw = compile_model(tmp_path / "fw", "arduino", "pages")
    where = (
        f"-I{fw / 'src'}",
        f"-I{fw / 'examples' / 'train_over_serial'}",
        f"-I{TESTS / 'arduino_stub'}",
    )
    run("arm-none-eabi-g++", *M0, *ARDUINO_CPP, "-g", *where, "-c", sketch(fw), cwd=tmp_path)
    symbols = run("arm-none-eabi-nm", "-S", "-C", tmp_path / "sketch.o")
    sizes = {n: int(s, 16) for s, n in re.findall(r"^\w+ (\w+) b (card|blocks)$", symbols, re.M)}
    assert sum(sizes.values()) == defines(fw / "src")["MODEL_STATIC_BYTES"] == 540


# Zephyr

SCHEMA = {"name": str, "build": dict}
BUILD = {"cmake": str, "kconfig": str}


def configuration(
    fw: Path, target: Path, monkeypatch: pytest.MonkeyPatch, name: str = "model"
) -> kconfiglib.Kconfig:
    """The sample's configuration, as Kconfig makes it of prj.conf: .config and autoconf.h."""
    monkeypatch.setenv("MODULE_KCONFIG", str(fw / "Kconfig"))
    parsed = kconfiglib.Kconfig(str(TESTS / "zephyr_stub" / "Kconfig"), warn_to_stderr=False)
    parsed.load_config(str(fw / "samples" / "train_over_serial" / "prj.conf"))
    assert not parsed.warnings
    parsed.write_config(str(target / ".config"))
    parsed.write_autoconf(str(target / "autoconf.h"))
    return parsed


@pytest.mark.slow
def test_zephyr_module_file(zephyr_library: Path) -> None:
    """What zephyr_module.py accepts: known keys, and paths that are there."""
    module = yaml.safe_load((zephyr_library / "zephyr" / "module.yml").read_text())
    assert module.keys() <= SCHEMA.keys() and module["build"].keys() <= BUILD.keys()
    assert all(isinstance(module[k], t) for k, t in SCHEMA.items())
    assert all(isinstance(module["build"][k], t) for k, t in BUILD.items())
    assert (zephyr_library / module["build"]["cmake"] / "CMakeLists.txt").is_file()
    assert (zephyr_library / module["build"]["kconfig"]).is_file()


def test_zephyr_sample_file(zephyr_library: Path) -> None:
    """What twister's schema has, of the kinds that it has them."""
    folder = zephyr_library / "samples" / "train_over_serial"
    sample = yaml.safe_load((folder / "sample.yaml").read_text())
    assert sample.keys() == {"sample", "common", "tests"} and sample["sample"]["name"]
    ((name, test),) = sample["tests"].items()
    assert re.fullmatch(r"[a-z0-9_]+(\.[a-z0-9_]+){2,}", name)
    assert isinstance(test["min_ram"], int) and isinstance(test["filter"], str)
    known = defines(zephyr_library / "include")
    assert test["min_ram"] * 1024 >= known["MODEL_RAM_BYTES"]
    disk = known["MODEL_STORAGE_BYTES"] > 0
    assert ("sdmmc" in test["filter"]) is disk
    assert ("CONFIG_DISK_DRIVERS=y" in (folder / "prj.conf").read_text()) is disk


def test_zephyr_options(
    zephyr_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = configuration(zephyr_library, tmp_path, monkeypatch)
    known = defines(zephyr_library / "include")
    disk = known["MODEL_STORAGE_BYTES"] > 0
    assert parsed.syms["POETC_MODEL"].str_value == "y"
    assert parsed.syms["POETC_MODEL_DISK_NAME"].str_value == ("SD" if disk else "")
    stack = int(parsed.syms["MAIN_STACK_SIZE"].str_value)
    assert stack == known["MODEL_STACK_BYTES"] + 1024
    assert f"{known['MODEL_RAM_BYTES']} bytes of RAM" in (zephyr_library / "Kconfig").read_text()
    # Switched off, nothing of it is left.
    parsed.syms["POETC_MODEL"].set_value("n")
    assert parsed.syms["POETC_MODEL_DISK_NAME"].str_value == ""


def build_sample(fw: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    configuration(fw, target, monkeypatch)
    run(
        *("cmake", "-S", fw / "samples" / "train_over_serial", "-B", target / "build"),
        f"-DZephyr_DIR={TESTS / 'zephyr_stub'}",
        f"-DDOTCONFIG={target / '.config'}",
        f"-DAUTOCONF={target / 'autoconf.h'}",
        "-Werror=dev",
    )
    run("cmake", "--build", target / "build")
    return target / "build" / "app"


@pytest.mark.slow
def test_zephyr_trains(
    zephyr_library: Path,
    tmp_path: Path,
    host: dict[int, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sample, built with CMake, with its data on a disk."""
    fw = zephyr_library
    app = build_sample(fw, tmp_path, monkeypatch)
    image = tmp_path / "disk.bin"
    image.write_bytes(bytes(65536))
    if (fw / "model_image.json").exists():
        assert main(["pack", "-q", str(fw), str(ARRAYS), "-o", str(image)]) == 0
    with on_a_line(app, DISK=str(image)) as line:
        results, _ = train(line, tmp_path / "results.npz")
    if (fw / "model_image.json").exists():
        results |= unpacked(fw, fw / "include" / "model.h", image)
    assert results == host


@pytest.mark.slow
def test_zephyr_disk_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason comes over the line; another step does it, on the old parameters."""
    fw = compile_model(tmp_path / "fw", "zephyr", "storage", "--name=net")
    app = build_sample(fw, tmp_path, monkeypatch)
    image = tmp_path / "disk.bin"
    assert main(["pack", "-q", str(fw), str(ARRAYS), "-o", str(image)]) == 0
    with on_a_line(app, DISK=str(image), FAILS="12") as line:
        with pytest.raises(AssertionError, match="status: the page store did not answer in time"):
            train(line, tmp_path / "results.npz")
        train(line, tmp_path / "results.npz", 1)
    printed = subprocess.run(
        [sys.executable, "-m", "poetc.cli", "unpack", fw, image, "-o", tmp_path / "trained.npz"],
        capture_output=True,
        text=True,
    )
    assert "sequence 1" in printed.stderr


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["cortex-m0", *more("cortex-m4")])
def test_zephyr_sources_compile(cpu: str, zephyr_library: Path, tmp_path: Path) -> None:
    fw = zephyr_library
    headers = (fw / "include", *fw.glob("runtime/*"), TESTS / "zephyr_stub" / "include")
    where = [f"-I{path}" for path in headers]
    flags = (*CPU_FLAGS[cpu], "-std=gnu11", "-Os", "-c", '-DCONFIG_POETC_MODEL_DISK_NAME="SD"')
    sources = [*fw.glob("src/*.c"), *fw.glob("runtime/src/*.c"), *fw.glob("samples/*/src/*.c")]
    run("arm-none-eabi-gcc", *flags, *WARNINGS, *where, *sources, cwd=tmp_path)


@pytest.mark.slow
def test_zephyr_ram_is_counted(tmp_path: Path) -> None:
    fw = compile_model(tmp_path / "fw", "zephyr", "pages")
    headers = (fw / "include", *fw.glob("runtime/*"), TESTS / "zephyr_stub" / "include")
    where = [f"-I{path}" for path in headers]
    flags = (*M0, "-std=gnu11", "-Os", "-c", '-DCONFIG_POETC_MODEL_DISK_NAME="SD"')
    run("arm-none-eabi-gcc", *flags, *where, *fw.glob("samples/*/src/main.c"), cwd=tmp_path)
    symbols = run("arm-none-eabi-nm", "-S", tmp_path / "main.o")
    (size,) = re.findall(r"^\w+ (\w+) b disk", symbols, re.M)
    assert int(size, 16) == defines(fw / "include")["MODEL_STATIC_BYTES"] == 536
