"""`--emit=tvm`: files, targets, messages; the runner in C++; code for aarch64 in an emulator."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compiled import prepare
from conftest import MODELS, more
from tvm_aarch64 import CROSS, QEMU, build_calls, run_calls
from tvm_support import Run, bits, compiled, scheduled, tvm

import poetc.backends.c
import poetc.backends.tvm
from poetc.backends.tvm import build
from poetc.backends.tvm.build import machine, write
from poetc.backends.tvm.runner import Step
from poetc.backends.tvm.stores import FileStore
from poetc.cli import main
from poetc.errors import InputError
from poetc.image import layout_of, unpack
from poetc.ir.graph import graphs

pytestmark = pytest.mark.usefixtures("whole")

C_RUNTIME = Path(poetc.backends.c.__file__).parent / "runtime"
TVM_RUNTIME = Path(poetc.backends.tvm.__file__).parent / "runtime"
GESTURE = str(MODELS / "gesture_mlp.mlir")


def command(*words: str) -> int:
    return main([GESTURE, "--emit=tvm", "-q", *words])


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="extensions of x86-64")
def test_extensions_that_the_machine_hides_are_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a virtual machine that passes on less than its processor has."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu sse sse2 pni ssse3 sse4_1 sse4_2\n")
    monkeypatch.setattr(build, "_CPUINFO", cpuinfo)
    assert machine().vectors.lanes == 4
    assert command("--ram=9500", "--params=ram", "-o", str(tmp_path / "model.so")) == 0
    code = subprocess.run(
        ["objdump", "-d", tmp_path / "model.so"], capture_output=True, text=True, check=True
    ).stdout
    assert "mulps" in code and not re.search(r"%[yz]mm", code)


@pytest.mark.slow
def test_a_program_of_an_earlier_version_is_refused() -> None:
    builder = tvm.relax.BlockBuilder()
    for name, value in (
        ("step", tvm.relax.Tuple([])),
        ("describe", tvm.ir.StringImm('{"arguments": [{"is_param": true}]}')),
    ):
        with builder.function(name, []):
            builder.emit_func_output(value)
    with pytest.raises(InputError, match="a program of another version of poetc"):
        Step(tvm.compile(builder.get(), "llvm"))


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


@pytest.mark.slow
def test_parameters_on_storage_are_packed_and_unpacked(tmp_path: Path) -> None:
    """All the way with parameters on storage."""
    words = ("--params=storage", "--ram=8KB", "--time-limit=20")
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
        (["--target=riscv64-linux-gnu"], "x86_64, aarch64, arm, thumb, not for riscv64; --emit=c"),
        (["--target=i686-linux-gnu"], "not for i686"),
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
    assert "give --emit=tvm, or --kernels=tvm with --target" in capsys.readouterr().err


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        # Without a directory it is a file like any other, too.
        steps = [str(runner), library.name, str(data), "3", str(pages)]
        done = subprocess.run(steps, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"arena: {program.arena_bytes} bytes" in done.stdout
        layout = layout_of(graphs(module)[0])
        if layout is not None:
            # The tags of steps are made otherwise here: any will do that tells two steps apart.
            sequence, values = unpack(layout, pages.read_bytes())
            same_sequence, same_values = unpack(layout, bytes(program.store.data))
            assert sequence == same_sequence == 3
            assert bits(values) == bits(same_values)
        for i, place in enumerate(program.step.program.results):
            if place.where == "arena":
                assert (data / f"out{i}.bin").read_bytes() == expected[params][i].tobytes()
    assert bits(expected["ram"]) == bits(expected["storage"])
    done = subprocess.run(steps[:-1], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1
    assert "no page store" in done.stderr


# Code for another processor


needs_cross = pytest.mark.skipif(shutil.which(CROSS) is None, reason=f"needs {CROSS}")
needs_qemu = pytest.mark.skipif(shutil.which(QEMU) is None, reason="needs qemu-user")


@pytest.mark.slow
@needs_cross
@needs_qemu
@pytest.mark.parametrize(
    ("name", "cpu"),
    [
        ("gesture_mlp", "cortex-a57"),
        ("kws_conv", "cortex-a72"),
        *more(("lenet5", "cortex-a72"), ("dscnn", "cortex-a72"), ("bert_micro", "cortex-a72")),
    ],
)
def test_aarch64_gives_the_bits_of_the_host(name: str, cpu: str, tmp_path: Path) -> None:
    """The compiled kernels in qemu, called in the order of the graph."""
    model = prepare(name)
    module = scheduled(model, None)
    expected = Run(module, compiled(module, plain=True), model.arguments).run()
    program = build_calls(module, cpu, tmp_path)
    assert bits(run_calls(program, cpu, model.arguments, expected)) == bits(expected)


@pytest.mark.slow
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
