"""The measured stack of a step: against a painted stack, and against frames added up."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from c_support import build_c
from compiled import Model, prepare
from conftest import ALL, MODELS, more
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.compiler import FLAGS, find_compiler
from poetc.backends.c.emit import emit
from poetc.backends.c.layout import DEFAULT_STACK_BYTES, static_ram_bytes
from poetc.backends.c.stack import FLAGS as FRAMES
from poetc.backends.c.stack import call_graph, measure_stack
from poetc.cli import main
from poetc.costmodel import device as devices
from poetc.errors import InputError
from poetc.image import layout_of, pack
from poetc.ir.graph import graphs
from poetc.ir.text import parse_module
from poetc.planning.plan import schedule_and_plan
from poetc.planning.stack import expected_stack

pytestmark = pytest.mark.usefixtures("whole")

GESTURE = str(MODELS / "gesture_mlp.mlir")

COMPILED = (*FLAGS, *FRAMES)

PAINTED = """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "model.h"
#include "store_memory.h"

enum { SIZE = 1 << 16 };

static unsigned char stack[SIZE];
static poetc_memory_store memory;
static poetc_status status;
static char *top;
static ucontext_t caller, step;

static void on_painted_stack(void)
{
    top = __builtin_frame_address(0);
    status = model_step(&memory.store);
}

int main(int argc, char **argv)
{
    unsigned char *pages = calloc(MODEL_STORAGE_BYTES + 1, 1);
    FILE *file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file != NULL && fread(pages, 1, MODEL_STORAGE_BYTES, file) == 0) {
        return 1;
    }
    poetc_memory_store_init(&memory, pages, MODEL_STORAGE_BYTES);
    memset(stack, 0xa5, SIZE);
    getcontext(&step);
    step.uc_stack.ss_sp = stack;
    step.uc_stack.ss_size = SIZE;
    step.uc_link = &caller;
    makecontext(&step, on_painted_stack, 0);
    swapcontext(&caller, &step);
    const unsigned char *lowest = stack;
    while (*lowest == 0xa5) {
        ++lowest;
    }
    printf("%d %ld\\n", (int)status, (long)((unsigned char *)top - lowest));
    return 0;
}
"""


def painted(model: Model, module: ModuleOp, directory: Path, compiler: str) -> int:
    """What a step of a scheduled model wrote to its stack, in bytes."""
    (graph,) = graphs(module)
    emit(module, directory)
    (directory / "painted.c").write_text(PAINTED)
    arguments = []
    if (layout := layout_of(graph)) is not None:
        arrays = {f"arg{i}": array for i, array in enumerate(model.arguments)}
        (directory / "image.bin").write_bytes(pack(layout, arrays))
        arguments = [directory / "image.bin"]
    sources = [path for path in sorted(directory.glob("*.c")) if path.name != "main.c"]
    # Resolving a call at its first use would take more stack than the step.
    flags = [flag for flag in COMPILED if flag != "-std=c99"]
    build_c((compiler, *flags, "-std=gnu99"), sources, directory / "painted", "-Wl,-z,now")
    done = subprocess.run(
        [directory / "painted", *arguments], capture_output=True, text=True, check=True
    )
    status, used = map(int, done.stdout.split())
    assert status == 0
    return used


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gesture_mlp", *more("kws_conv", "bert_micro")])
def test_a_step_stays_within_its_measured_stack(name: str, tmp_path: Path) -> None:
    model = prepare(name)
    for params, ram_bytes in (("ram", None), ("ram", model.least_ram_bytes()), ("storage", None)):
        if name == "bert_micro" and ram_bytes is not None:
            continue
        module = model.module.clone()
        schedule_and_plan(graphs(module)[0], model.options(ram_bytes, params=params))
        # With pages and without by gcc, in the least RAM by clang.
        for compiler in ("gcc", "clang") if ALL else ("gcc" if ram_bytes is None else "clang",):
            directory = tmp_path / f"{params}{ram_bytes}{compiler}"
            used = painted(model, module, directory, compiler)
            measured = measure_stack(module, find_compiler(compiler)).bytes
            assert 0 < used <= measured <= DEFAULT_STACK_BYTES, compiler
            # Not by much more than the frames that this run did not get to.
            assert measured <= 3 * used + 128, compiler


COMPILERS = (
    "gcc",
    "clang",
    "clang --target=thumbv7em-none-eabi -mcpu=cortex-m4",
    "clang --target=thumbv6m-none-eabi -mcpu=cortex-m0",
)


@pytest.mark.slow
@pytest.mark.parametrize("params", ["storage", *more("ram", "auto")])
def test_expected_before_scheduling_is_enough(params: str) -> None:
    model = prepare("kws_conv")
    asked = model.options(model.least_ram_bytes(), params=params)
    module = model.module.clone()
    schedule_and_plan(graphs(module)[0], asked)
    for compiler in COMPILERS:
        found = find_compiler(compiler)
        expected = expected_stack(model.module, found, asked).bytes
        measured = measure_stack(module, found)
        assert 0 < measured.bytes <= expected <= DEFAULT_STACK_BYTES, compiler
        assert measured.chain[0] == "model_step"


@pytest.fixture(scope="module")
def deepest() -> ModuleOp:
    """The model here that takes most: with many calls, and parameters on storage."""
    model = prepare("resnet8")
    schedule_and_plan(graphs(model.module)[0], model.options(None, params="storage"))
    return model.module


@pytest.mark.slow
@pytest.mark.parametrize("compiler", [COMPILERS[2], "arm-none-eabi-gcc -mthumb -mcpu=cortex-m0"])
def test_the_default_reserve_is_enough(compiler: str, deepest: ModuleOp) -> None:
    """On a Cortex-M0, where clang takes more than gcc, with the compiler of the boards."""
    used = measure_stack(deepest, find_compiler(compiler)).bytes
    assert 512 < used <= DEFAULT_STACK_BYTES


@pytest.mark.slow
def test_the_deepest_chain_is_that_of_the_frames(tmp_path: Path) -> None:
    """For a model that does not page: step, kernel, functions of the kernel."""
    module, _ = prepare("gesture_mlp").schedule(None)
    emit(module, tmp_path / "out")
    frames: dict[str, int] = {}
    for name in ("model", "model_kernels", "poetc_math"):
        subprocess.run(["gcc", *COMPILED, "-c", f"{name}.c"], cwd=tmp_path / "out", check=True)
        for line in (tmp_path / "out" / f"{name}.su").read_text().splitlines():
            where, frame, _ = line.split("\t")
            frames[where.rsplit(":", 1)[1]] = int(frame)
    stack = measure_stack(module, find_compiler("gcc"))
    assert all(name in frames for name in stack.chain)
    total = sum(frames[name] for name in stack.chain)
    kernel = max(frame for name, frame in frames.items() if "kernel" in name)
    assert frames["model_step"] + kernel <= total < stack.bytes <= total + 64


def test_calls_are_read_from_the_sources() -> None:
    sources = {
        "a.c": """\
static int inner(int a)
{
    return a;
}

int outer(const handle *h,
          int a)
{
    if (inner(a)) {
        return h->operations->read(h, not_here(a));
    }
    return sizeof (a);
}
""",
        "b.c": """\
static int read_it(const handle *h, int a)
{
    return deep(a);
}

int deep(int a)
{
    return a;
}

static const table operations = {
    .read = read_it,
    .write = NULL,
};
""",
    }
    assert call_graph(sources) == {
        "inner": frozenset(),
        "outer": {"inner", "read_it"},
        "read_it": {"deep"},
        "deep": frozenset(),
    }


@pytest.mark.slow
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert (
        main([GESTURE, "--ram=9KB", "--stack=measure", "--cc=gcc", "--emit=c", "-o", str(out)]) == 0
    )
    captured = capsys.readouterr()
    assert "deepest in" in captured.err
    header = (out / "model.h").read_text()
    found = dict(
        line.split()[1:3] for line in header.splitlines() if line.count(" ") >= 2 and line[0] == "#"
    )
    assert int(found["MODEL_STACK_BYTES"]) < DEFAULT_STACK_BYTES
    assert int(found["MODEL_RAM_BYTES"]) <= 9 * 1024
    # The reserve of 1,024 bytes leaves too little for the same step.
    assert main([GESTURE, "--ram=9KB", "--params=ram"]) == 3
    capsys.readouterr()


@pytest.mark.slow
def test_no_room_for_transfers_beside_computing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They have places on the stack; where there is no RAM for these, the message says so."""
    words = [GESTURE, "--ram=6460", "--params=storage", "--stream=never", "-q"]
    words += ["--stack=measure", "-o", str(tmp_path / "out.mlir")]
    assert main(words) == 3
    assert "without transfers beside computing (dma = false)" in capsys.readouterr().err
    device = tmp_path / "whole.toml"
    text = (Path(devices.__file__).parent / "devices" / "nrf52840.toml").read_text()
    device.write_text(text.replace("dma = true", "dma = false"))
    assert main([*words, f"--device={device}"]) == 0


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such compiler"):
        find_compiler("not-a-compiler -O3")
    assert find_compiler("gcc -m32") == ("gcc", "-m32")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="neither gcc nor cc"):
        find_compiler(None)
    assert main([GESTURE, "--stack=measure"]) == 2
    assert main([GESTURE, "--cc=gcc"]) == 2


@pytest.mark.slow
def test_options_of_the_compiler_that_do_not_work(capsys: pytest.CaptureFixture[str]) -> None:
    for command, message in (
        ("gcc '", "No closing quotation"),
        ("", "--cc is given without a value"),
        ("gcc -fsanitize=address", "functions that are in no source"),
    ):
        assert main([GESTURE, "--stack=measure", f"--cc={command}"]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compiler", "io"),
    [("gcc", "arena"), *more(("clang", "caller"), ("gcc", "caller"), ("clang", "arena"))],
)
@pytest.mark.parametrize(
    "body",
    [
        "return %w : tensor<8xf32>",
        "%n = stablehlo.add %w, %w : tensor<8xf32>\n  return %n : tensor<8xf32>",
        "%n = stablehlo.constant dense<1.5> : tensor<8xf32>\n  return %n : tensor<8xf32>",
    ],
    ids=["none", "one", "constant"],
)
@pytest.mark.parametrize("alias", ["", " {tf.aliasing_output = 0 : i32}"], ids=["input", "param"])
def test_steps_with_a_single_kernel_or_none(
    body: str, io: str, alias: str, compiler: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    source = tmp_path / "step.mlir"
    signature = f"@main(%w: tensor<8xf32>{alias}) -> tensor<8xf32>"
    source.write_text(f"func.func public {signature} {{\n  {body}\n}}\n")
    words = [str(source), f"--io={io}", "-q"]
    if main(words) == 2:
        assert "made by no kernel" in capsys.readouterr().err
        return
    assert main([*words, "--ram=1KB", "--stack=measure", f"--cc={compiler}"]) == 0


def test_compiler_that_does_not_know_stack_usage(tmp_path: Path) -> None:
    module, _ = prepare("gesture_mlp").schedule(None)
    true, false = shutil.which("true"), shutil.which("false")
    assert true and false
    with pytest.raises(InputError, match="does not know -fstack-usage"):
        measure_stack(module, (true,))
    with pytest.raises(InputError, match=r"does not compile probe\.c"):
        measure_stack(module, (false,))


@pytest.mark.slow
def test_more_stack_than_expected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A step that does not fit once its stack is known is scheduled anew for what is left."""
    from poetc.backends.c.stack import StackUse
    from poetc.planning import stack

    monkeypatch.setattr(stack, "expected_stack", lambda *_: StackUse(8, ()))
    out = tmp_path / "out.mlir"
    words = [GESTURE, "--params=ram", "--stack=measure", "--cc=gcc", "--stop=work"]
    assert main([*words, "--ram=8900", "-o", str(out)]) == 0
    module = parse_module(out.read_text(), str(out))
    (graph,) = graphs(module)
    used = static_ram_bytes(graph) + 32 + measure_stack(module, find_compiler("gcc")).bytes
    # Beside a stack of 8 bytes there is room for an arena with which that is more.
    assert 8800 < used <= 8900
    capsys.readouterr()
    # Too little for any schedule, which is proven.
    assert main([*words, "--ram=8400", "-o", str(out)]) == 3
    assert "proven: 8," in capsys.readouterr().err
