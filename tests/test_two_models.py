"""Two models in one program: the runtime once, of one version, and everything else by the names."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from c_support import STRICT
from conftest import MODELS, load_arrays
from firmware import QUICK
from test_layouts import ARDUINO_C, ARDUINO_CPP, M0, configuration, run

from poetc.backends.c import runtime_files
from poetc.backends.c.boards import CPU_FLAGS
from poetc.backends.c.libraries.library import OPTIONS
from poetc.cli import main
from poetc.tensors import read_tensors

pytestmark = pytest.mark.usefixtures("whole")

TESTS = Path(__file__).parent
STEPS = 2
SOURCES = {"a": ("gesture_mlp", "--ram=9600"), "b": ("kws_conv", "--ram=16KB")}
"""The models; the first of them moves pages."""


@pytest.fixture(scope="module")
def scheduled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The models as they are when they have been searched for."""
    folder = tmp_path_factory.mktemp("scheduled")
    for name, (model, ram) in SOURCES.items():
        words = [str(MODELS / f"{model}.mlir"), ram, "--emit=ir", "-o", str(folder / name)]
        assert main([*words, *QUICK]) == 0
    return {name: folder / name for name in SOURCES}


def write(scheduled: Mapping[str, Path], folder: Path, *options: str, only: str = "ab") -> Path:
    """The models as directories a and b in a folder."""
    for name in only:
        words = [str(scheduled[name]), "--emit=c", f"--name={name}", "-o", str(folder / name)]
        assert main([*words, "-q", *options]) == 0
    return folder


@pytest.fixture(scope="module")
def plain(scheduled: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(scheduled, tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def alone(
    plain: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, list[bytes]]]:
    """For each model its arguments in a directory, and what its own program makes of them, whose
    first step is that of XLA."""
    found: dict[str, tuple[Path, list[bytes]]] = {}
    for name, (model, _) in SOURCES.items():
        data = tmp_path_factory.mktemp("data")
        arguments, expected = load_arrays(MODELS / f"{model}.npz")
        for i, array in enumerate(arguments):
            (data / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
        subprocess.run(["make", "-s", "-C", plain / name, f"{name}_example"], check=True)
        run(plain / name / f"{name}_example", data, "1")
        for i, array in enumerate(expected):
            got = np.fromfile(data / f"out{i}.bin", array.dtype).reshape(array.shape)
            np.testing.assert_allclose(got, array, rtol=1e-3, atol=1e-5)
        run(plain / name / f"{name}_example", data, str(STEPS))
        found[name] = data, [(data / f"out{i}.bin").read_bytes() for i in range(len(expected))]
    return found


def check(program: Path, alone: dict[str, tuple[Path, list[bytes]]], folder: Path) -> None:
    """Both models give the bits that each gives alone."""
    for name, (data, _) in alone.items():
        shutil.copytree(data, folder / name, ignore=shutil.ignore_patterns("out*"))
    run(program, folder, str(STEPS))
    for name, (_, results) in alone.items():
        for i, result in enumerate(results):
            assert (folder / name / f"out{i}.bin").read_bytes() == result, (name, i)


def units(folder: Path, runtime: str) -> list[Path]:
    """The sources of both, as the documentation says: a model's by its name, and the runtime of
    one of them."""
    ours = [*(folder / "a").glob("a*.c"), *(folder / "b").glob("b*.c")]
    return sorted(
        [*ours, *(folder / runtime).glob("poetc_*.c"), folder / runtime / "store_memory.c"]
    )


@pytest.mark.slow
def test_files(plain: Path) -> None:
    """What is the runtime's has the same bytes, and everything else the name of the model, or it
    is an example, or what builds that."""
    texts = [{p.name: p.read_bytes() for p in (plain / name).glob("*.*")} for name in "ab"]
    shared = {name for name in texts[0] if name.startswith(("poetc_", "store_"))}
    assert shared == {name for name in texts[1] if name.startswith(("poetc_", "store_"))}
    assert {name: texts[0][name] for name in shared} == {name: texts[1][name] for name in shared}
    for name, files in zip("ab", texts, strict=True):
        own = {file for file in files if file.startswith(name)} - {"a.out"}
        assert own > {f"{name}{end}" for end in (".c", ".h", "_build.h", "_kernels.c")}
        assert {f for f in files.keys() - own - shared if not f.endswith(".o")} == {"main.c"}


@pytest.mark.slow
def test_symbols_and_macros(plain: Path) -> None:
    """None that both have but those of the runtime."""
    symbols: list[set[str]] = []
    macros: list[set[str]] = []
    for name in "ab":
        objects = [plain / name / f"{p.stem}.o" for p in (plain / name).glob(f"{name}*.c")]
        for source in (plain / name).glob(f"{name}*.c"):
            run("gcc", "-std=c99", "-c", source.name, cwd=plain / name)
        listed = run("nm", "--defined-only", "-g", *objects)
        symbols.append(set(re.findall(r" [A-TV-Z] (\w+)$", listed, re.M)))
        texts = [p.read_text() for p in (plain / name).glob(f"{name}*.h")]
        macros.append(set(re.findall(r"^#define (\w+)", "".join(texts), re.M)))
    assert not symbols[0] & symbols[1] and len(symbols[0]) > 10
    assert not macros[0] & macros[1] and len(macros[0]) > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "runtime"),
    [("gcc -x c -std=c99", "a"), ("g++ -x c++ -std=c++17", "b")],
    ids=["c99", "c++17"],
)
def test_host(
    compiler: str,
    runtime: str,
    plain: Path,
    alone: dict[str, tuple[Path, list[bytes]]],
    tmp_path: Path,
) -> None:
    """The program is C or C++; whichever runtime it is, and in whichever order they are linked."""
    where = [f"-I{plain / name}" for name in "ab"]
    warnings = [w for w in STRICT if w.startswith("-W") and "prototypes" not in w]
    run(*compiler.split(), *warnings, *where, "-c", TESTS / "two_models.c", cwd=tmp_path)
    run("gcc", *STRICT, *OPTIONS, "-O1", "-c", *units(plain, runtime), cwd=tmp_path)
    objects = sorted(path.name for path in tmp_path.glob("*.o"))
    run("gcc", *(objects if runtime == "a" else objects[::-1]), "-o", "program", cwd=tmp_path)
    check(tmp_path / "program", alone, tmp_path / "data")


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another version of poetc."""
    monkeypatch.setattr(runtime_files, "__version__", "0.1.9")
    monkeypatch.setattr(runtime_files, "runtime_id", lambda line_bytes=4: "0x01020304")
    yield


def failure(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode != 0
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("older")
def test_two_versions(scheduled: dict[str, Path], plain: Path, tmp_path: Path) -> None:
    """They do not compile together, nor link; what is said names the version."""
    write(scheduled, tmp_path, only="b")
    shutil.copytree(plain / "a", tmp_path / "a")
    for runtime in "ab":
        folder = tmp_path / f"with_{runtime}"
        folder.mkdir()
        run("gcc", "-fPIC", "-c", *units(tmp_path, runtime), cwd=folder)
        objects = sorted(path.name for path in folder.glob("*.o"))
        wanted = "0_1_9_01020304" if runtime == "a" else "0_2_0"
        said = failure("gcc", "-shared", *objects, "-o", "program", "-Wl,-z,defs", cwd=folder)
        assert f"poetc_runtime_{wanted}" in said
    shutil.copy(tmp_path / "b" / "poetc_version.h", tmp_path / "a")
    said = failure("gcc", "-c", "a.c", cwd=tmp_path / "a")
    assert "a needs the runtime of poetc 0.2.0" in said
    # As archives, which are searched for what is missing only.
    for name in "ab":
        folder = tmp_path / f"archive_{name}"
        folder.mkdir()
        shutil.copy(plain / "a" / "poetc_version.h", tmp_path / "a")
        sources = [*(tmp_path / name).glob(f"{name}*.c"), *(tmp_path / name).glob("poetc_*.c")]
        run("gcc", "-fPIC", "-c", *sources, cwd=folder)
        run("ar", "rcs", f"../{name}.a", *folder.glob("*.o"), cwd=folder)
    (tmp_path / "both.c").write_text(
        "int a_step(void *);\nint b_step(void *);\n"
        "int main(void)\n{\n    return a_step(0) + b_step(0);\n}\n"
    )
    for archives in permutations(["a.a", "b.a"]):
        said = failure("gcc", "both.c", *archives, "-o", "program", cwd=tmp_path)
        assert "multiple definition of `poetc_" in said


CMAKE = """\
cmake_minimum_required(VERSION 3.15)
project(both LANGUAGES C)
{find}
add_executable(both {source})
target_link_libraries(both PRIVATE poetc::a poetc::b)
"""


@pytest.mark.slow
def test_cmake(
    scheduled: dict[str, Path],
    alone: dict[str, tuple[Path, list[bytes]]],
    tmp_path: Path,
) -> None:
    """As directories of one project, and as packages; another version is refused."""
    write(scheduled, tmp_path, "--layout=cmake")
    build = ["cmake", "-Wdev", "-Werror=dev", "-S", ".", "-B"]
    add = "\n".join(f"add_subdirectory({tmp_path / name} {name})" for name in "ab")
    project = tmp_path / "project"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(CMAKE.format(find=add, source=TESTS / "two_models.c"))
    run(*build, "build", cwd=project)
    run("cmake", "--build", "build", cwd=project)
    assert len(list(project.rglob("libpoetc_runtime.a"))) == 1
    check(project / "build" / "both", alone, tmp_path / "data")
    prefix = tmp_path / "usr"
    for name in "ab":
        run(*build, "build", f"-DCMAKE_INSTALL_PREFIX={prefix}", cwd=tmp_path / name)
        run("cmake", "--build", "build", cwd=tmp_path / name)
        run("cmake", "--install", "build", cwd=tmp_path / name)
    find = "find_package(a REQUIRED)\nfind_package(b REQUIRED)"
    (project / "CMakeLists.txt").write_text(CMAKE.format(find=find, source=TESTS / "two_models.c"))
    run(*build, "installed", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=project)
    run("cmake", "--build", "installed", cwd=project)
    check(project / "installed" / "both", alone, tmp_path / "again")
    lists = tmp_path / "a" / "runtime" / "CMakeLists.txt"
    lists.write_text(
        re.sub("POETC_RUNTIME_ID 0x.*?u? ", "POETC_RUNTIME_ID 0x1 ", lists.read_text())
    )
    (project / "CMakeLists.txt").write_text(CMAKE.format(find=add, source=TESTS / "two_models.c"))
    assert "a needs the runtime 0x" in failure(*build, "other", cwd=project)


SKETCH = """\
#include <a.h>
#include <b.h>

void setup() {
}

void loop() {
  a_step(nullptr);
  b_step(nullptr);
}
"""


@pytest.mark.slow
def test_arduino(scheduled: dict[str, Path], tmp_path: Path) -> None:
    """Two libraries, which the IDE makes archives of, in whichever order."""
    write(scheduled, tmp_path, "--layout=arduino")
    (tmp_path / "sketch.cpp").write_text(f"#include <Arduino.h>\n{SKETCH}")
    where = [f"-I{tmp_path / name / 'src'}" for name in "ab"]
    compiler = ("arm-none-eabi-g++", *M0, *ARDUINO_CPP, "-ffreestanding")
    run(*compiler, *where, f"-I{TESTS / 'arduino_stub'}", "-c", "sketch.cpp", cwd=tmp_path)
    for name in "ab":
        folder = tmp_path / f"objects_{name}"
        folder.mkdir()
        sources = (tmp_path / name / "src").glob("*.c")
        run("arm-none-eabi-gcc", *M0, *ARDUINO_C, "-c", *sources, cwd=folder)
        run("arm-none-eabi-ar", "rcs", f"../{name}.a", *folder.glob("*.o"), cwd=folder)
    for archives in permutations(["a.a", "b.a"]):
        link = ("-nostdlib", "-Wl,--gc-sections", "-Wl,-e,_Z4loopv")
        stubs = tmp_path / "stubs.c"
        stubs.write_text(
            "void *memcpy(void *a, const void *b, unsigned n) { (void)b; (void)n; return a; }\n"
            "void *memset(void *a, int b, unsigned n) { (void)b; (void)n; return a; }\n"
        )
        run(
            *("arm-none-eabi-gcc", *M0, "-fno-builtin", *link, "sketch.o", stubs, *archives),
            *("-lgcc", "-o", "firmware.elf"),
            cwd=tmp_path,
        )
        assert " T b_step" in run("arm-none-eabi-nm", "firmware.elf", cwd=tmp_path)


@pytest.mark.slow
def test_zephyr(
    scheduled: dict[str, Path],
    alone: dict[str, tuple[Path, list[bytes]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two modules of one application; Zephyr links all of each library."""
    write(scheduled, tmp_path, "--layout=zephyr")
    sample = tmp_path / "sample"
    sample.mkdir()
    modules = f"{tmp_path / 'a'} {tmp_path / 'b'}"
    (sample / "CMakeLists.txt").write_text(f"""\
cmake_minimum_required(VERSION 3.20.0)
list(APPEND ZEPHYR_EXTRA_MODULES {modules})
find_package(Zephyr REQUIRED HINTS $ENV{{ZEPHYR_BASE}})
project(both LANGUAGES C)
target_sources(app PRIVATE {TESTS / "two_models.c"})
""")
    configuration(tmp_path / "a", tmp_path, monkeypatch, name="a")
    with (tmp_path / ".config").open("a") as config:
        config.write("CONFIG_POETC_B=y\n")
    run(
        *("cmake", "-S", sample, "-B", tmp_path / "build", "-Werror=dev"),
        f"-DZephyr_DIR={TESTS / 'zephyr_stub'}",
        f"-DDOTCONFIG={tmp_path / '.config'}",
        f"-DAUTOCONF={tmp_path / 'autoconf.h'}",
    )
    run("cmake", "--build", tmp_path / "build")
    check(tmp_path / "build" / "app", alone, tmp_path / "data")


FIRMWARE = """\
#include <stddef.h>

#include "a.h"
#include "b.h"
#include "board.h"
#include "store_memory.h"

/* Arguments are in flash, and all of the results go to files: those of b behind those of a. */
#include "arguments.h"

int main(void)
{
    static uint8_t pages[A_STORAGE_BYTES];
    static poetc_memory_store store;
    board_init();
    poetc_memory_store_init(&store, pages, A_STORAGE_BYTES);
    bool good = true;
    for (uint32_t step = 0; step < STEPS; ++step) {
        for (uint32_t i = 0; i < A_ARGUMENTS + B_ARGUMENTS; ++i) {
            const bool of_a = i < A_ARGUMENTS;
            const uint32_t k = of_a ? i : i - A_ARGUMENTS;
            uint8_t *const to = of_a ? a_argument(k) : b_argument(k);
            const uint32_t bytes = of_a ? a_argument_bytes(k) : b_argument_bytes(k);
            const bool parameter = of_a ? a_argument_is_parameter(k) : b_argument_is_parameter(k);
            for (uint32_t n = 0; n < bytes && (step == 0 || !parameter); ++n) {
                to[n] = arguments[i][n];
            }
        }
        good = good && a_step(&store.store) == POETC_OK && b_step(NULL) == POETC_OK;
    }
    for (uint32_t i = 0; i < A_RESULTS; ++i) {
        good = good && board_write_result(i, a_result(i), a_result_bytes(i));
    }
    for (uint32_t i = 0; i < B_RESULTS; ++i) {
        good = good && board_write_result(A_RESULTS + i, b_result(i), b_result_bytes(i));
    }
    board_exit(good ? 0 : 1);
    return 0;
}
"""


@pytest.mark.slow
def test_board(
    scheduled: dict[str, Path],
    alone: dict[str, tuple[Path, list[bytes]]],
    plain: Path,
    tmp_path: Path,
) -> None:
    """Firmware with the files of a board, in its emulator. RAM is what the headers say, to the
    byte: the arenas, and what the program itself has."""
    write(scheduled, tmp_path, "--board=mps2-an386", only="a")
    tables: list[str] = []
    for name in "ab":
        data = alone[name][0]
        for i in range(len(read_tensors(plain / name).arguments)):
            tables.append(", ".join(map(str, (data / f"arg{i}.bin").read_bytes())))
    lines = [f"static const uint8_t argument{i}[] = {{{t}}};" for i, t in enumerate(tables)]
    names = ", ".join(f"argument{i}" for i in range(len(tables)))
    lines += [f"static const uint8_t *const arguments[] = {{{names}}};", f"#define STEPS {STEPS}u"]
    (tmp_path / "arguments.h").write_text("\n".join(lines) + "\n")
    (tmp_path / "both.c").write_text(FIRMWARE)
    board = [p for p in (tmp_path / "a").glob("*.c") if p.name != "firmware.c"]
    sources = [*board, *(plain / "b").glob("b*.c"), plain / "b" / "store_memory.c", "both.c"]
    where = [f"-I{tmp_path}", f"-I{tmp_path / 'a'}", f"-I{plain / 'b'}"]
    flags = [*CPU_FLAGS["cortex-m4"], "-std=c99", "-O2", *OPTIONS, "-ffreestanding"]
    flags += ["-ffunction-sections", "-fdata-sections", "-fno-tree-loop-distribute-patterns"]
    memory = {"RAM_ORIGIN": 0x20000000, "RAM_BYTES": 65536, "FLASH_ORIGIN": 0, "FLASH_BYTES": 2**20}
    symbols = [f"-Wl,--defsym={name}={value}" for name, value in memory.items()]
    script = ["-nostdlib", "-T", tmp_path / "a" / "link.ld", "-Wl,--gc-sections", *symbols]
    words = [*flags, "-Wall", "-Wextra", "-Werror", *where, *sources, *script, "-lgcc"]
    run("arm-none-eabi-gcc", *words, "-o", "both.elf", cwd=tmp_path)
    sizes = dict(
        re.findall(
            r"^(\.\w+) +(\d+)", run("arm-none-eabi-size", "-A", "both.elf", cwd=tmp_path), re.M
        )
    )
    one, other = (read_tensors(path) for path in (tmp_path / "a", plain / "b"))
    said = one.arena_bytes + one.static_bytes + other.arena_bytes
    pages, handle = one.storage_bytes, 12
    assert int(sizes[".data"]) + int(sizes[".bss"]) <= said + pages + handle
    assert int(sizes[".bss"]) >= one.arena_bytes + other.arena_bytes + pages + handle
    run(
        *("qemu-system-arm", "-machine", "mps2-an386", "-display", "none", "-serial", "none"),
        *("-monitor", "none", "-semihosting-config", "enable=on,target=native,arg=1"),
        *("-kernel", "both.elf"),
        cwd=tmp_path,
    )
    expected = [*alone["a"][1], *alone["b"][1]]
    assert [(tmp_path / f"out{i}.bin").read_bytes() for i in range(len(expected))] == expected
