"""`--emit=tvm`: files, targets, messages; the runner in C++; code for aarch64 in an emulator."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from compiled import prepare
from conftest import MODELS
from tvm_support import Run, bits, compiled, scheduled
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.utils.hints import isa

import poetc.backends.c
import poetc.backends.tvm
from poetc.backends.c.buffers import kernel_buffers
from poetc.backends.c.layout import argument_places, result_places
from poetc.backends.tvm.build import compile_graph, machine, write
from poetc.backends.tvm.primfunc import element_dtype, elements_of
from poetc.backends.tvm.runner import Step
from poetc.backends.tvm.stores import FileStore
from poetc.cli import main
from poetc.errors import InputError
from poetc.ir.graph import graphs, tensor_bytes
from poetc.ir.poet import AnyPageIn, AnyPageOut, ComputeOp, offset_of

C_RUNTIME = Path(poetc.backends.c.__file__).parent / "runtime"
TVM_RUNTIME = Path(poetc.backends.tvm.__file__).parent / "runtime"
GESTURE = str(MODELS / "gesture_mlp.mlir")


def command(*words: str) -> int:
    return main([GESTURE, "--emit=tvm", "-q", *words])


def test_a_library_from_the_command_line(tmp_path: Path) -> None:
    library = tmp_path / "model.so"
    assert command("--ram=9500", "--params=ram", "-o", str(library)) == 0
    model = prepare("gesture_mlp")
    step = Step.load(library)
    step.write_all(model.arguments)
    step.run()
    unlimited = scheduled(model, None)
    expected = Run(unlimited, compiled(unlimited), model.arguments).run()
    assert bits([step.read(i) for i in range(len(expected))]) == bits(expected)
    assert step.program.arena_bytes <= 9500 - 1024
    with pytest.raises(InputError, match="cannot load"):
        Step.load(tmp_path / "other.so")


def test_parameters_in_parts_are_packed_and_unpacked(tmp_path: Path) -> None:
    """All the way with parameters on storage, the largest of them in two parts."""
    words = ("--params=storage", "--split=1:2", "--ram=8KB", "--time-limit=20")
    library, image, after = (str(tmp_path / name) for name in ("m.so", "m.bin", "after.npz"))
    assert command(*words, "-o", library) == 0
    described = str(tmp_path / "m_image.json")
    arrays = str(MODELS / "gesture_mlp.npz")
    assert main(["pack", described, arrays, "-q", "-o", image]) == 0
    model = prepare("gesture_mlp")
    store = FileStore(image)
    step = Step.load(library, store)
    step.write_all(model.arguments)
    step.run()
    store.close()
    assert main(["unpack", described, image, "-q", "-o", after]) == 0
    unlimited = scheduled(model, None)
    expected = Run(unlimited, compiled(unlimited), model.arguments).run()
    with np.load(after) as found:
        # Each of the first arguments is a parameter, whose new value is the result after it.
        stored = [found[f"arg{i}"] for i in range(len(expected) - 1)]
    assert bits([step.read(0), *stored]) == bits(expected)


def test_the_relax_module_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 0
    text = capsys.readouterr().out
    assert "def step(arena: R.Tensor((9116,)" in text
    assert text.count("cls.kernel_") == 13
    assert "R.memory.kill_tensor(" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-o", "model.x"], "-o model.x: --emit=tvm writes .so, .o, .tar"),
        (["--target=vax"], "--target=vax: LLVM has no such target; known are host, aarch64"),
        (["--target=aarch64:z80"], "LLVM has no processor z80 for aarch64-linux-gnu"),
        (["--board=microbit"], "--board is for firmware, in C: --emit=c"),
    ],
)
def test_bad_options(
    words: list[str], message: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command(*words) == 2
    assert message in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_target_needs_tvm(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([GESTURE, "--target=aarch64"]) == 2
    assert "give --emit=tvm too" in capsys.readouterr().err


def test_without_a_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    output = tmp_path / "model.so"
    assert command("--target=cortex-a57", "-o", str(output)) == 2
    error = capsys.readouterr().err
    assert "no linker for cortex-a57 (aarch64-linux-gnu-gcc or aarch64-linux-gnu-ld or" in error
    assert not output.exists()


def run_without_tvm(code: str) -> subprocess.CompletedProcess[str]:
    """Python code where TVM cannot be imported."""
    hidden = "import sys; sys.modules['tvm'] = None\n"
    return subprocess.run([sys.executable, "-c", hidden + code], capture_output=True, text=True)


def test_everything_else_works_without_tvm(tmp_path: Path) -> None:
    code = f"from poetc.cli import main; sys.exit(main([{GESTURE!r}, '-q', '-o', {{}}, {{}}]))"
    done = run_without_tvm(code.format(repr(str(tmp_path / "c")), "'--emit=c'"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "c" / "model.c").exists()
    done = run_without_tvm(code.format(repr(str(tmp_path / "model.so")), "'--emit=tvm'"))
    assert done.returncode == 2
    assert "--emit=tvm needs Apache TVM" in done.stderr
    assert "install it with: pip install 'poetc[tvm]'" in done.stderr
    assert not (tmp_path / "model.so").exists()


def test_importing_poetc_does_not_import_tvm() -> None:
    code = f"""
import sys
import poetc, poetc.cli, poetc.pipeline, poetc.universe, poetc.report, poetc.backends.tvm
from poetc.cli import main
main([{GESTURE!r}, "-q", "--emit=report", "-o", "/dev/null"])
print(sorted(name for name in sys.modules if name.split(".")[0] in ("tvm", "tvm_ffi")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


# The runner in C++


def build_runner(directory: Path) -> Path:
    """The example with TVM's runtime from its Python package."""
    import tvm
    import tvm_ffi

    roots = [Path(str(module.__file__)).parent for module in (tvm, tvm_ffi)]
    libraries = [root / "lib" for root in roots]
    program = directory / "poetc_tvm_example"
    objects: list[str] = []
    for name in ("poetc_store", "poetc_image", "store_file"):
        objects.append(str(directory / f"{name}.o"))
        source = str(C_RUNTIME / f"{name}.c")
        subprocess.run(["gcc", "-std=c99", "-O1", "-c", source, "-o", objects[-1]], check=True)
    subprocess.run(
        [
            *("g++", "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"),
            *(f"-I{path}" for path in (TVM_RUNTIME, C_RUNTIME)),
            *(word for root in roots for word in ("-isystem", str(root / "include"))),
            *(str(TVM_RUNTIME / "main.cpp"), *objects),
            *(f"-L{path}" for path in libraries),
            *(f"-Wl,-rpath,{path}" for path in libraries),
            *("-Wl,--no-as-needed", "-ltvm_runtime", "-ltvm_ffi", "-o", str(program)),
        ],
        check=True,
    )
    return program


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_runner_in_cpp(tmp_path: Path) -> None:
    runner = build_runner(tmp_path)
    model = prepare("kws_conv")
    data = tmp_path / "data"
    data.mkdir()
    for i, array in enumerate(model.arguments):
        (data / f"arg{i}.bin").write_bytes(array.tobytes())
    expected = {}
    for params in ("ram", "storage"):
        module = scheduled(model, 8000 if params == "ram" else 6000, params=params, gap=0.5)
        executable = compiled(module)
        library, pages = tmp_path / f"{params}.so", tmp_path / f"{params}.bin"
        write(executable, str(library), machine())
        program = Run(module, executable, model.arguments)
        pages.write_bytes(program.store.data)
        for _ in range(3):
            expected[params] = program.run()
        steps = [str(runner), str(library), str(data), "3", str(pages)]
        done = subprocess.run(steps, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"arena: {program.arena_bytes} bytes" in done.stdout
        assert pages.read_bytes() == bytes(program.store.data)
        for i, place in enumerate(program.step.program.results):
            if place.where == "arena":
                assert (data / f"out{i}.bin").read_bytes() == expected[params][i].tobytes()
    assert bits(expected["ram"]) == bits(expected["storage"])
    done = subprocess.run(steps[:-1], capture_output=True, text=True)
    assert done.returncode == 1
    assert "no page store" in done.stderr


# Code for another processor


CALLS = """\
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int32_t device_type, device_id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } Type;
typedef struct {
    void *data; Device device; int32_t ndim; Type dtype; int64_t *shape, *strides; uint64_t offset;
} Tensor;
typedef struct { int32_t type, padding; union { int64_t number; Tensor *tensor; } value; } Any;

/* What compiled functions call if their arguments are wrong. */
int TVMFFIErrorSetRaisedFromCStrParts(void) { abort(); }
int TVMFFIErrorSetRaisedFromCStr(void) { abort(); }

static uint8_t arena[ARENA] __attribute__((aligned(64)));
static uint8_t store[STORAGE + 4];
static Any operands[64];
static Tensor tensors[64];
static int64_t shapes[64];
static int count;

static void operand(uint32_t offset, int64_t elements, uint8_t code, uint8_t bits)
{
    shapes[count] = elements;
    tensors[count] = (Tensor){arena, {1, 0}, 1, {code, bits, 1}, &shapes[count], 0, offset};
    operands[count].type = 7; /* a pointer to a tensor */
    operands[count].value.tensor = &tensors[count];
    ++count;
}

#define CALL(name) do { Any r = {0}; int name(void *, Any *, int32_t, Any *); \\
    if (name(0, operands, count, &r) != 0) abort(); count = 0; } while (0)

static void file(const char *directory, const char *kind, int i, uint32_t offset, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s%d.bin", directory, kind, i);
    FILE *f = fopen(path, kind[0] == 'a' ? "rb" : "wb");
    size_t done = kind[0] == 'a' ? fread(arena + offset, 1, bytes, f)
                                 : fwrite(arena + offset, 1, bytes, f);
    if (done != bytes || fclose(f) != 0) abort();
}

int main(int argc, char **argv)
{
    (void)argc;
"""


def program_of_calls(module: ModuleOp) -> str:
    """C that does the step by calling the compiled kernels, without the virtual machine."""
    graph = graphs(module)[0]
    functions = {op.sym_name.data: op for op in module.ops if isinstance(op, FuncOp)}
    lines = [
        f"#define ARENA {graph.arena_bytes or 0}",
        f"#define STORAGE {graph.storage_bytes or 0}",
    ]
    lines += [CALLS]
    for i, place in enumerate(argument_places(graph)):
        lines.append(f'    file(argv[1], "arg", {i}, {place.offset}, {place.bytes});')
    for op in graph.block.ops:
        if isinstance(op, ComputeOp):
            assert op.kernel is not None
            symbol = op.kernel.root_reference.data
            buffers = kernel_buffers(functions[symbol], op, {})
            for buffer, argument in zip(buffers, functions[symbol].body.block.args, strict=True):
                assert isa(argument.type, MemRefType)
                dtype = element_dtype(argument.type.element_type)
                code = "2, 32" if dtype == "float32" else f"0, {8 if dtype == 'int8' else 32}"
                elements = elements_of(argument.type)
                lines.append(f"    operand({buffer.offset}, {elements}, {code});")
            lines.append(f"    CALL(__tvm_ffi_kernel_{symbol});")
        elif isinstance(op, AnyPageIn | AnyPageOut):
            ram, page = offset_of(op.tensor), offset_of(op.page)
            places = [f"arena + {ram}", f"store + {page}"]
            to, from_ = places if isinstance(op, AnyPageIn) else reversed(places)
            lines.append(f"    memcpy({to}, {from_}, {tensor_bytes(op.tensor.type)});")
    for i, place in enumerate(result_places(graph)):
        lines.append(f'    file(argv[1], "out", {i}, {place.offset}, {place.bytes});')
    return "\n".join([*lines, "    return 0;", "}", ""])


CROSS = "aarch64-linux-gnu-gcc"
needs_cross = pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"needs {CROSS}")
needs_qemu = pytest.mark.skipif(shutil.which("qemu-aarch64") is None, reason="needs qemu-user")


@needs_cross
@needs_qemu
@pytest.mark.parametrize(
    ("name", "cpu"),
    [("gesture_mlp", "cortex-a57"), ("lenet5", "cortex-a72"), ("dscnn", "cortex-a72")],
)
def test_aarch64_gives_the_bits_of_the_host(name: str, cpu: str, tmp_path: Path) -> None:
    """The compiled kernels in qemu, called in the order of the graph."""
    model = prepare(name)
    module = scheduled(model, None)
    expected = Run(module, compiled(module), model.arguments).run()
    output = tmp_path / "model.tar"
    write(compile_graph(module, machine(cpu)), str(output), machine(cpu))
    with tarfile.open(output) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "main.c").write_text(program_of_calls(module))
    kernels = [str(path) for path in tmp_path.glob("lib*.o")]
    command = [CROSS, "-static", "-O1", "-w", str(tmp_path / "main.c"), *kernels, "-lm"]
    subprocess.run([*command, "-o", str(tmp_path / "step")], check=True)
    for i, array in enumerate(model.arguments):
        (tmp_path / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    subprocess.run(["qemu-aarch64", str(tmp_path / "step"), str(tmp_path)], check=True)
    for i, array in enumerate(expected):
        assert (tmp_path / f"out{i}.bin").read_bytes() == array.tobytes(), f"result {i}"


@needs_cross
def test_libraries_and_objects_for_aarch64(tmp_path: Path) -> None:
    for suffix, kind in ((".so", "DYN"), (".o", "REL")):
        output = tmp_path / f"model{suffix}"
        assert command("--target=cortex-a72", "-o", str(output)) == 0
        found = subprocess.run(["readelf", "-h", output], capture_output=True, text=True).stdout
        assert re.search(rf"Type:\s+{kind}", found) and re.search(r"Machine:\s+AArch64", found)
    first, second = tmp_path / "a.tar", tmp_path / "b.tar"
    for output in (first, second):
        assert command("--target=aarch64", "-o", str(output)) == 0
    assert first.read_bytes() == second.read_bytes()
