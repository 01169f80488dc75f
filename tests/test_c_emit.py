"""The emitted directory: builds, runs, does what the scheduled IR says, is written whole or not."""

import ctypes
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from c_support import COMPILERS, SANITIZED, compile_c, full_files, load_library
from conftest import more
from test_c_runtime import CORRUPT, NO_STORE, OK, SHORT_TRANSFER, WRITE_FAILED, PythonStore
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.emit import RUNTIME, emit, generate
from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES, static_ram_bytes
from poetc.errors import InputError
from poetc.interpreter import run_graph
from poetc.ir.graph import graphs
from poetc.ir.text import parse_module
from poetc.passes.poet_verify import PoetVerifyPass

# h = exp(x * w), paged out and in; the new w is w - h in place; `total` uses workspace; `mask` has
# bytes that are bools.
STEP = """
poet.graph @main(
    %x: tensor<2x4xf32> {poet.role = "input", poet.name = "x", poet.offset = 0 : i64},
    %w: tensor<4xf32>
      {poet.role = "param", poet.updates = 1 : i64, poet.name = "w", poet.offset = 32 : i64}
) -> (tensor<f32>, tensor<4xf32>, tensor<2x4xi1>)
attributes {arena_bytes = 124 : i64, storage_bytes = 40 : i64} {
  %h = poet.compute "exp" (%a = %x : tensor<2x4xf32>, %b = %w : tensor<4xf32>)
      -> tensor<2x4xf32> kernel @exp offsets [48] {
    %c = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<4xf32>) -> tensor<2x4xf32>
    %p = stablehlo.multiply %a, %c : tensor<2x4xf32>
    %e = stablehlo.exponential %p : tensor<2x4xf32>
    poet.yield %e : tensor<2x4xf32>
  }
  %page = poet.pageout %h offset 4 : tensor<2x4xf32> -> !poet.page<tensor<2x4xf32>>
  poet.free %h : tensor<2x4xf32>
  %total = poet.compute "total" (%a = %x : tensor<2x4xf32>) -> tensor<f32>
      kernel @total offsets [48] workspace_offset 80 {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %rows = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>
    %sum = stablehlo.reduce(%rows init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<2xf32>, tensor<f32>) -> tensor<f32>
    poet.yield %sum : tensor<f32>
  }
  %h2 = poet.pagein %page offset 80 : !poet.page<tensor<2x4xf32>> -> tensor<2x4xf32>
  %mask = poet.compute "less" (%a = %x : tensor<2x4xf32>, %b = %h2 : tensor<2x4xf32>)
      -> tensor<2x4xi1> kernel @less offsets [112] {
    %m = stablehlo.compare LT, %a, %b, FLOAT
      : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
    poet.yield %m : tensor<2x4xi1>
  }
  %w2 = poet.compute "update" (%a = %h2 : tensor<2x4xf32>, %b = %w : tensor<4xf32>)
      -> tensor<4xf32> kernel @update inplace [[0, 1]] offsets [32] {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %g = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0]
      : (tensor<2x4xf32>, tensor<f32>) -> tensor<4xf32>
    %n = stablehlo.subtract %b, %g : tensor<4xf32>
    poet.yield %n : tensor<4xf32>
  }
  poet.free %h2 : tensor<2x4xf32>
  poet.free %x : tensor<2x4xf32>
  poet.return %total, %w2, %mask : tensor<f32>, tensor<4xf32>, tensor<2x4xi1>
}

func.func private @exp(%x: memref<2x4xf32>, %w: memref<4xf32>, %out: memref<2x4xf32>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  affine.for %i = 0 to 2 {
    affine.for %j = 0 to 4 {
      %a = affine.load %x[%i, %j] : memref<2x4xf32>
      %b = affine.load %w[%j] : memref<4xf32>
      %p = arith.mulf %a, %b : f32
      %e = math.exp %p : f32
      affine.store %e, %out[%i, %j] : memref<2x4xf32>
    }
  }
  func.return
}
func.func private @total(%x: memref<2x4xf32>, %out: memref<f32>, %ws: memref<2xf32>)
    attributes {poet.inputs = 1 : i64, poet.results = 1 : i64, poet.workspace = 1 : i64} {
  %zero = arith.constant 0.0 : f32
  affine.for %i = 0 to 2 {
    %row = affine.for %j = 0 to 4 iter_args(%acc = %zero) -> (f32) {
      %a = affine.load %x[%i, %j] : memref<2x4xf32>
      %n = arith.addf %acc, %a : f32
      affine.yield %n : f32
    }
    affine.store %row, %ws[%i] : memref<2xf32>
  }
  %sum = affine.for %i = 0 to 2 iter_args(%acc = %zero) -> (f32) {
    %a = affine.load %ws[%i] : memref<2xf32>
    %n = arith.addf %acc, %a : f32
    affine.yield %n : f32
  }
  affine.store %sum, %out[] : memref<f32>
  func.return
}
func.func private @less(%x: memref<2x4xf32>, %y: memref<2x4xf32>, %out: memref<2x4xi1>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  affine.for %i = 0 to 2 {
    affine.for %j = 0 to 4 {
      %a = affine.load %x[%i, %j] : memref<2x4xf32>
      %b = affine.load %y[%i, %j] : memref<2x4xf32>
      %m = arith.cmpf olt, %a, %b : f32
      affine.store %m, %out[%i, %j] : memref<2x4xi1>
    }
  }
  func.return
}
func.func private @update(%h: memref<2x4xf32>, %w: memref<4xf32>, %out: memref<4xf32>)
    attributes {poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %zero = arith.constant 0.0 : f32
  affine.for %j = 0 to 4 {
    %g = affine.for %i = 0 to 2 iter_args(%acc = %zero) -> (f32) {
      %a = affine.load %h[%i, %j] : memref<2x4xf32>
      %n = arith.addf %acc, %a : f32
      affine.yield %n : f32
    }
    %b = affine.load %w[%j] : memref<4xf32>
    %n = arith.subf %b, %g : f32
    affine.store %n, %out[%j] : memref<4xf32>
  }
  func.return
}
"""

X = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
W = np.random.default_rng(1).normal(size=4).astype(np.float32)


def step_module() -> ModuleOp:
    module = parse_module(STEP)
    PoetVerifyPass().apply(None, module)  # pyright: ignore[reportArgumentType]
    return module


def expected(steps: int) -> list[np.ndarray]:
    """The results of the interpreter, the parameter being fed back."""
    w = W
    for _ in range(steps):
        results = run_graph(step_module(), [X, w]).results
        w = results[1]
    return [np.asarray(result) for result in results]  # pyright: ignore[reportPossiblyUnbound]


def sources(directory: Path) -> list[Path]:
    return list(directory.glob("*.c"))


def run_example(program: Path, data: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    X.tofile(data / "arg0.bin")
    W.tofile(data / "arg1.bin")
    return subprocess.run([program, data, *arguments], capture_output=True, text=True)


def assert_results(data: Path, steps: int) -> None:
    for i, result in enumerate(expected(steps)):
        assert (data / f"out{i}.bin").read_bytes() == result.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "compiler"),
    [(("-O2",), "clang"), (SANITIZED, "gcc"), *more((("-O2",), "gcc"), (SANITIZED, "clang"))],
)
def test_example(compiler: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    emit(step_module(), tmp_path / "out")
    program = compile_c(sources(tmp_path / "out"), tmp_path / "example", compiler, flags)
    for steps, arguments in ((1, []), (3, ["3"]), (2, ["2", str(tmp_path / "pages.bin")])):
        run = run_example(program, tmp_path, *arguments)
        assert run.returncode == 0, run.stderr
        assert "status: ok" in run.stdout
        assert_results(tmp_path, steps)


def test_makefile(tmp_path: Path) -> None:
    emit(step_module(), tmp_path / "out", name="tiny")
    subprocess.run(["make", "-s", "-C", tmp_path / "out", "CC=gcc"], check=True)
    run = run_example(tmp_path / "out" / "tiny_example", tmp_path)
    assert run.returncode == 0, run.stderr
    assert_results(tmp_path, 1)
    subprocess.run(["make", "-s", "-C", tmp_path / "out", "clean"], check=True)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".c", ".h", ".json", ""}


@pytest.mark.slow
def test_example_reports_what_is_wrong(tmp_path: Path) -> None:
    emit(step_module(), tmp_path / "out")
    program = compile_c(sources(tmp_path / "out"), tmp_path / "example")
    assert "usage" in run_example(program, tmp_path, "0").stderr
    assert "usage" in run_example(program, tmp_path, "x").stderr
    with full_files():
        run = subprocess.run(
            [program, tmp_path, "1", tmp_path / "pages.bin"],
            capture_output=True,
            text=True,
            restore_signals=False,
        )
    assert run.returncode == 1
    assert "step 0: the page store could not write" in run.stderr
    (tmp_path / "arg1.bin").write_bytes(W.tobytes()[:-1])
    run = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert run.returncode == 1 and "arg1.bin: not 16 bytes" in run.stderr
    (tmp_path / "arg1.bin").unlink()
    run = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert run.returncode == 1 and "arg1.bin" in run.stderr
    assert not (tmp_path / "out0.bin").exists()
    # A store file without a name is none.
    assert run_example(program, tmp_path, "1", "").returncode == 0


class Model:
    """The step as a library."""

    def __init__(self, directory: Path) -> None:
        emit(step_module(), directory / "out")
        files = [directory / "out" / f"{n}.c" for n in ("model", "model_kernels", "poetc_math")]
        files.append(directory / "out" / "poetc_store.c")
        self.library = load_library(files, directory / "model.so")
        self.library.model_argument.restype = ctypes.c_void_p
        self.library.model_result.restype = ctypes.c_void_p

    def fill(self) -> None:
        for i, array in enumerate((X, W)):
            assert self.library.model_argument_bytes(i) == array.nbytes
            ctypes.memmove(self.library.model_argument(i), array.tobytes(), array.nbytes)

    def step(self, store: PythonStore | None) -> int:
        return self.library.model_step(None if store is None else store.address)

    def result(self, i: int) -> bytes:
        return ctypes.string_at(self.library.model_result(i), self.library.model_result_bytes(i))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("model"))


def test_step_uses_the_planned_places(model: Model) -> None:
    store = PythonStore(40)
    model.fill()
    assert model.step(store) == OK
    assert store.calls == ["write 4 32", "write 36 4", "read 4 32", "read 36 4"]
    for i, result in enumerate(expected(1)):
        assert model.result(i) == result.tobytes()
    start = model.library.model_argument(0)
    assert model.library.model_argument(1) == model.library.model_result(1) == start + 32
    assert model.library.model_result(2) == start + 112
    assert [model.library.model_argument_is_parameter(i) & 1 for i in (0, 1)] == [0, 1]


def test_failures_end_the_step(model: Model) -> None:
    class Corrupting(PythonStore):
        def _write(self, *arguments: object) -> int:
            status = super()._write(*arguments)  # pyright: ignore[reportArgumentType]
            self.bytes[10] ^= len(self.calls) % 2  # in the page, not again with its trailer
            return status

    model.fill()
    assert model.step(Corrupting(40)) == CORRUPT
    assert model.step(None) == NO_STORE
    short = PythonStore(40)
    short.lose = 1
    assert model.step(short) == SHORT_TRANSFER
    failing = PythonStore(40)
    failing.write_status = WRITE_FAILED
    assert model.step(failing) == WRITE_FAILED
    model.fill()
    assert model.step(PythonStore(40)) == OK
    assert model.result(1) == expected(1)[1].tobytes()


def test_sizes_are_those_of_the_objects(tmp_path: Path) -> None:
    """`.data` and `.bss` of the generated code are what is reported, to the byte."""
    emit(step_module(), tmp_path / "out")
    static_bytes = 0
    for name in ("model", "model_kernels", "poetc_math", "poetc_store"):
        path = compile_c(
            [tmp_path / "out" / f"{name}.c"], tmp_path / f"{name}.o", flags=("-O2", "-c")
        )
        size = subprocess.run(["size", path], capture_output=True, text=True, check=True)
        _, data, bss, *_ = size.stdout.splitlines()[1].split()
        static_bytes += int(data) + int(bss)
    (graph,) = graphs(step_module())
    assert static_bytes == static_ram_bytes(graph) == 124
    header = (tmp_path / "out" / "model.h").read_text()
    defines = dict(
        line.split()[1:3]
        for line in header.splitlines()
        if line.count(" ") >= 2 and line.startswith("#define")
    )
    assert defines["MODEL_ARENA_BYTES"] == "124"
    assert int(defines["MODEL_RAM_BYTES"]) == 124 + STATIC_BYTES + DEFAULT_STACK_BYTES
    assert defines["MODEL_STORAGE_BYTES"] == "40"
    assert (defines["MODEL_ARG1_OFFSET"], defines["MODEL_ARG1_BYTES"]) == ("32", "16")
    assert (defines["MODEL_RESULT2_OFFSET"], defines["MODEL_RESULT2_BYTES"]) == ("112", "8")


@pytest.mark.parametrize("optimization", ["-O2", "-Os"])
def test_stack_fits_the_reserve(optimization: str, tmp_path: Path) -> None:
    """The frames of step, deepest kernel or page transfer, and mathematical functions, added up."""
    emit(step_module(), tmp_path / "out")
    frames: dict[str, int] = {}
    for name in ("model", "model_kernels", "poetc_math", "poetc_store", "store_memory"):
        source = tmp_path / "out" / f"{name}.c"
        flags = (optimization, "-c", "-fstack-usage", "-fno-inline")
        compile_c([source], tmp_path / f"{name}.o", flags=flags)
        for line in (tmp_path / f"{name}.su").read_text().splitlines():
            where, frame, kind = line.split("\t")
            assert kind in ("static", "dynamic,bounded")
            frames[where.rsplit(":", 1)[1]] = int(frame)
    kernels = sum(sorted(f for name, f in frames.items() if "kernel" in name)[-1:])
    math = sum(f for name, f in frames.items() if "exp" in name)
    pages = sum(frames[name] for name in ("poetc_page_in_tagged", "poetc_read"))
    assert frames["model_step"] + max(kernels + math, pages + 64) <= DEFAULT_STACK_BYTES


# Files


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_what_is_emitted(tmp_path: Path) -> None:
    emit(step_module(), tmp_path / "out")
    generated = {"model.c", "model.h", "model_kernels.c", "model_kernels.h"}
    generated |= {"model_save.c", "model_tensors.json", "poetc_math.c", "poetc_math.h"}
    generated |= {"poetc_together.h"}
    runtime = names(RUNTIME) - {f"poetc_{part}.{end}" for part in ("plan", "slice") for end in "ch"}
    assert names(tmp_path / "out") == generated | runtime | {"Makefile", "model_build.h"}
    assert names(tmp_path) == {"out"}
    model = (tmp_path / "out" / "model.c").read_text()
    assert '/* %w2 = poet.compute "update" (%h2, %w), %w2 in place of %w */' in model
    assert "poetc_page_out(store, 4u, at(48), 32)" in model
    kernels = (tmp_path / "out" / "model_kernels.c").read_text()
    assert '"exp" of %h\n * from stablehlo.broadcast_in_dim:' in kernels
    assert "const float *w /* 4 */" in kernels  # in place: no restrict
    assert "const float *restrict w /* 4 */" in kernels


def test_same_input_same_output() -> None:
    assert generate(step_module()) == generate(step_module())


def test_existing_directory(tmp_path: Path) -> None:
    """Files of an older program go, files of the user stay."""
    out = tmp_path / "out"
    out.mkdir()
    emit(step_module(), out, name="old")
    (out / "arg0.bin").write_bytes(b"data")
    (out / "notes").mkdir()
    emit(step_module(), out, name="new")
    assert names(tmp_path) == {"out"}
    assert {"arg0.bin", "notes", "new.c", "new.h"} <= names(out)
    assert not {"old.c", "old.h"} & names(out)
    assert "new_step" in (out / "main.c").read_text()


def test_stale_files_of_the_user_stay(tmp_path: Path) -> None:
    """Only what an earlier run wrote is removed: a copy, even with the mark, is the user's."""
    emit(step_module(), tmp_path, name="old")
    copy = tmp_path / "my_main.c"
    copy.write_bytes((tmp_path / "main.c").read_bytes())
    edited = tmp_path / "old.c"
    edited.write_text("/* mine now */\n")
    emit(step_module(), tmp_path, name="new")
    assert copy.exists() and edited.read_text() == "/* mine now */\n"
    assert not (tmp_path / "old.h").exists()


def test_the_directory_itself_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    (out / "inner").mkdir(parents=True)
    inode = out.stat().st_ino
    for place, target in ((out, "."), (out / "inner", ".."), (out, str(out) + "/")):
        monkeypatch.chdir(place)
        for name in names(out) - {"inner"}:
            (out / name).unlink()
        emit(step_module(), target)
        assert out.stat().st_ino == inode
        assert Path.cwd() == place and "model.c" in names(out) and "inner" in names(out)
        assert not [name for name in names(out) if name.startswith(".")]
    assert names(tmp_path) == {"out"}


def test_links_to_directories(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for name in ("real", "new"):
        link = tmp_path / f"link_{name}"
        link.symlink_to(name)
        emit(step_module(), link)
        assert link.is_symlink() and (tmp_path / name / "model.c").exists()
    assert names(tmp_path) == {"real", "new", "link_real", "link_new"}


def test_files_of_the_user_are_not_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "Makefile").write_text("all:\n")
    (out / "main.c").write_text("int main(void) { return 0; }\n")
    (out / "model.h").mkdir()
    (out / "model_kernels.c").symlink_to("elsewhere.c")
    before = names(out)
    with pytest.raises(InputError) as error:
        emit(step_module(), out)
    named = set(error.value.message.rpartition(": ")[2].split(", "))
    assert named == {"Makefile", "main.c", "model.h", "model_kernels.c"}
    assert names(out) == before and names(tmp_path) == {"out"}
    assert (out / "Makefile").read_text() == "all:\n"


def test_every_file_carries_the_mark() -> None:
    for name, text in generate(step_module()).items():
        begin = json.loads(text)["_"] if name.endswith(".json") else text
        assert re.match(r"((/\*|#) )?Generated by poetc\.", begin), name


@pytest.mark.parametrize("call", range(19))
def test_nothing_is_left_of_a_failure(
    call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever move fails where files are put in place one by one, the directory is as it was."""

    def no_exchange(*_: object) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr("poetc.backends.c.directory.exchange", no_exchange)
    out = tmp_path / "out"
    emit(step_module(), out)
    (out / "notes").write_text("mine")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    calls = 0

    def failing(operation: Callable[..., object]) -> Callable[..., object]:
        def operate(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == call + 1:
                raise OSError(28, "No space left on device")
            return operation(*arguments, **options)

        return operate

    monkeypatch.setattr(Path, "replace", failing(Path.replace))
    monkeypatch.setattr(Path, "unlink", failing(Path.unlink))
    with pytest.raises(InputError, match="No space left"):
        emit(step_module(), out, name="other")
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.parametrize("method", ["write_bytes", "rename"])
def test_nothing_is_left_of_a_new_directory(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, method, failing)
    with pytest.raises(InputError, match="No space left"):
        emit(step_module(), tmp_path / "fresh")
    assert not names(tmp_path)


def test_unwritable_places(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no directory"):
        emit(step_module(), tmp_path / "missing" / "out")
    with pytest.raises(InputError, match="without a name"):
        emit(step_module(), "")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="not a directory"):
        emit(step_module(), tmp_path / "file")
    if os.geteuid() != 0:
        (tmp_path / "locked").mkdir(mode=0o555)
        with pytest.raises(InputError, match="Permission denied"):
            emit(step_module(), tmp_path / "locked" / "out")


@pytest.mark.parametrize("name", ["2fast", "a-b", "", "poetc_model", "do", "unistd"])
def test_names_of_models(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot b"):
        emit(step_module(), tmp_path / "out", name=name)
    assert not names(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kernel @exp ", "", "has no kernel"),
        ("arena_bytes = 124 : i64, ", "", "has no arena"),
        (" offsets [112]", "", "no place in the arena"),
        (" workspace_offset 80", "", "no place for its workspace"),
        ("%page = poet.pageout %h offset 4", "%page = poet.pageout %h", "no place in storage"),
        ("offsets [48] {", "offsets [50] {", "not aligned"),
        ("[[0, 1]] offsets [32]", "[[0, 1]] offsets [48]", "begins a step at offset 32"),
        (
            "func.func private @exp(",
            "func.func private @exp(memref<2x4xf32>, memref<4xf32>, memref<2x4xf32>) -> ()\n"
            "func.func private @other(",
            "@exp has no definition",
        ),
        (
            "arena_bytes = 124",
            "arena_bytes = 2147483648",
            "the arena of graph @main has 2,147,483,648 bytes",
        ),
        (
            "storage_bytes = 40",
            "storage_bytes = 2147483648",
            "the storage of graph @main has 2,147,483,648 bytes",
        ),
    ],
)
def test_graphs_that_are_not_ready(old: str, new: str, message: str) -> None:
    assert old in STEP
    with pytest.raises(InputError, match=message):
        generate(parse_module(STEP.replace(old, new)))


def test_tensors_that_32_bits_cannot_index() -> None:
    large = """
    poet.graph @main(
      %x: tensor<EXTENTxf32> {poet.role = "input", poet.name = "x"}
    ) -> (tensor<f32>) {
      %y = poet.compute "make" () -> tensor<f32> {
        %c = stablehlo.constant dense<0.0> : tensor<f32>
        poet.yield %c : tensor<f32>
      }
      poet.return %y : tensor<f32>
    }
    """
    with pytest.raises(InputError, match="argument x has 2,147,483,648 bytes"):
        generate(parse_module(large.replace("EXTENT", str(2**29))))
    with pytest.raises(InputError, match="has no arena"):
        generate(parse_module(large.replace("EXTENT", str(2**29 - 1))))
    result = """
    poet.graph @main() -> (tensor<f32>) {
      %y = poet.compute "make" () -> tensor<65536x32768xi1> {
        %c = stablehlo.constant dense<true> : tensor<i1>
        %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i1>) -> tensor<65536x32768xi1>
        poet.yield %b : tensor<65536x32768xi1>
      }
      %z = poet.compute "first" (%a = %y : tensor<65536x32768xi1>) -> tensor<f32> {
        %c = stablehlo.constant dense<0.0> : tensor<f32>
        poet.yield %c : tensor<f32>
      }
      poet.return %z : tensor<f32>
    }
    """
    with pytest.raises(InputError, match=r'%y of .* "make" has 2,147,483,648 bytes'):
        generate(parse_module(result))


NO_ARGUMENTS = """
poet.graph @main() -> (tensor<2xf32>) attributes {arena_bytes = 8 : i64} {
  %y = poet.compute "one" () -> tensor<2xf32> kernel @one offsets [0] {
    %c = stablehlo.constant dense<1.0> : tensor<2xf32>
    poet.yield %c : tensor<2xf32>
  }
  poet.return %y : tensor<2xf32>
}
func.func private @one(%out: memref<2xf32>)
    attributes {poet.inputs = 0 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64} {
  %one = arith.constant 1.0 : f32
  affine.for %i = 0 to 2 {
    affine.store %one, %out[%i] : memref<2xf32>
  }
  func.return
}
"""

NO_RESULTS = "poet.graph @main() -> () attributes {arena_bytes = 0 : i64} { poet.return }"


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("text", [NO_ARGUMENTS, NO_RESULTS], ids=["arguments", "results"])
def test_graphs_without(text: str, compiler: str, tmp_path: Path) -> None:
    emit(parse_module(text), tmp_path / "out")
    program = compile_c(sources(tmp_path / "out"), tmp_path / "example", compiler)
    run = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    if text is NO_ARGUMENTS:
        assert np.fromfile(tmp_path / "out0.bin", np.float32).tolist() == [1, 1]


def test_exactly_one_graph() -> None:
    with pytest.raises(InputError, match="one graph, not 0"):
        generate(parse_module("func.func @f() { func.return }"))


@pytest.mark.parametrize("compiler", COMPILERS)
def test_an_empty_arena_takes_nothing(compiler: str, tmp_path: Path) -> None:
    """Its tensors have no elements, and pointers to them are not null."""
    graph = NO_ARGUMENTS.replace("2xf32", "0xf32").replace("0 to 2", "0 to 0")
    graph = graph.replace("arena_bytes = 8", "arena_bytes = 0").replace("<1.0>", "<>")
    module = parse_module(graph)
    emit(module, tmp_path / "out")
    assert static_ram_bytes(graphs(module)[0]) == 0
    assert re.search(r"MODEL_ARENA_BYTES +0\n", (tmp_path / "out" / "model.h").read_text())
    for optimization in ("-O0", "-O2"):
        unit = tmp_path / "out" / "model.c"
        path = compile_c([unit], tmp_path / "model.o", compiler, flags=(optimization, "-c"))
        size = subprocess.run(["size", path], capture_output=True, text=True, check=True)
        assert size.stdout.splitlines()[1].split()[1:3] == ["0", "0"]
    program = compile_c(sources(tmp_path / "out"), tmp_path / "example", compiler)
    run = subprocess.run([program, tmp_path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "out0.bin").read_bytes() == b""
