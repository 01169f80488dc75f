"""Firmware for boards, run in QEMU: the same bits as on the host, in the RAM that was asked for."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from compiled import worst_error
from conftest import MODELS, load_arrays, more
from firmware import (
    QUICK,
    all_results,
    compile_board,
    defines,
    host_results,
    make,
    make_well,
    outputs,
    run,
    sections,
)
from kernel_harness import module_of, same_bits
from operation_instances import MAKERS, instances

from poetc.backends.c.boards import CPU_FLAGS, board_sources, known_boards, load_board
from poetc.backends.c.layout import DEFAULT_STACK_BYTES, STATIC_BYTES
from poetc.backends.c.stack import call_graph
from poetc.cli import main
from poetc.interpreter import run_func
from poetc.ir import stablehlo as hlo
from poetc.ir.text import module_text
from poetc.ir.types import BOOL, FLOAT32, INT32

pytestmark = pytest.mark.usefixtures("whole", "near")

GESTURE = str(MODELS / "gesture_mlp.mlir")
STEPS = 5

LITTLE = {"gesture_mlp": 10_244 // 2, "kws_conv": 10_460 // 2}
"""Half of what the firmware takes with unlimited RAM, in bytes. The stack is measured."""

EMULATED = ("microbit", "lm3s6965", "mps2-an386")


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("host")


def check_ram(directory: Path, ram: int) -> None:
    """Everything that is linked into RAM is what model.h says; the stack is in whole words."""
    linked, counted = sum(sections(directory).values()), defines(directory)["MODEL_RAM_BYTES"]
    assert linked <= counted <= ram
    assert counted - linked < 4


# Training


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gesture_mlp", *more("kws_conv")])
@pytest.mark.parametrize("little", [False, True], ids=["32KB", "little"])
def test_microbit_trains(model: str, little: bool, tmp_path: Path, host: Path) -> None:
    """On a Cortex-M0 whose RAM ends where --ram says; what is beyond it faults."""
    ram = LITTLE[model] if little else 32 * 1024
    options = ("--stack=measure", "--stream=auto") if little else ()
    directory = compile_board(model, tmp_path / "fw", "microbit", f"--ram={ram}", *options)
    found = run(directory, STEPS)
    assert all_results(directory) == host_results(model, STEPS, host)
    check_ram(directory, ram)
    assert found.ram <= ram and found.stack_used <= found.stack


@pytest.mark.slow
@pytest.mark.parametrize("board", ["microbit", *more("mps2-an386")])
def test_all_element_types_have_the_bits_of_the_interpreter(board: str, tmp_path: Path) -> None:
    """Arithmetic and conversions of those that a Cortex-M0, or M4, has no instructions for."""
    native = {FLOAT32.dtype, INT32.dtype, BOOL.dtype}
    cases = [
        case
        for op in MAKERS
        if issubclass(op, hlo.ElementwiseOp)
        for case in instances(op)
        if not native.issuperset(a.dtype for a in case.args)
    ][::4]
    assert len(cases) > 100
    module, arguments = module_of(cases)
    expected = run_func(module, arguments)
    model, out = tmp_path / "model.mlir", tmp_path / "out"
    model.write_text(module_text(module))
    assert main([str(model), f"--board={board}", "--emit=c", "-o", str(out), *QUICK]) == 0
    (out / "data").mkdir()
    for i, array in enumerate(arguments):
        (out / "data" / f"arg{i}.bin").write_bytes(array.tobytes())
    run(out, 1)
    found = outputs(out)
    for i, (case, array) in enumerate(zip(cases, expected, strict=True)):
        got = np.frombuffer(found[i], array.dtype).reshape(array.shape)
        assert same_bits(got, array), (str(case), got, array)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["gesture_mlp", *more("kws_conv")])
@pytest.mark.parametrize("cpu", ["cortex-m0", *more("cortex-m4")])
def test_training_on_a_memory_card(model: str, cpu: str, tmp_path: Path, host: Path) -> None:
    """Parameters and pages on the card; the image is read afterwards."""
    ram = LITTLE[model] + 1024
    options = (f"--ram={ram}", "--params=storage", "--stack=640", "--stream=auto")
    directory = compile_board(model, tmp_path / "fw", "lm3s6965", *options)
    found = run(directory, STEPS, f"CPU={cpu}")
    assert all_results(directory) == host_results(model, STEPS, host)
    check_ram(directory, ram)
    assert found.stack_used <= found.stack


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lenet5", *more("resnet8")])
def test_larger_models_in_256_kb(model: str, tmp_path: Path, host: Path) -> None:
    """One step on a Cortex-M4F; the linker holds all of RAM to 256 KB."""
    ram = 256 * 1024
    # Quick, and the same on slow machines.
    options = ("--params=storage", "--strategy=capuchin") if model == "resnet8" else ()
    directory = compile_board(model, tmp_path / "fw", "mps2-an386", "--ram=256KB", *options)
    found = run(directory, 1)
    results = all_results(directory)
    assert results == host_results(model, 1, host)
    _, expected = load_arrays(MODELS / f"{model}.npz")
    got = [
        np.frombuffer(results[i], array.dtype).reshape(array.shape)
        for i, array in enumerate(expected)
    ]
    assert worst_error(got, expected) <= 3e-5
    check_ram(directory, ram)
    assert found.stack_used <= found.stack
    # The arena as large as it can be, and one byte more.
    known = defines(directory)
    most = ram - (known["MODEL_RAM_BYTES"] - known["MODEL_ARENA_BYTES"])
    header = directory / "model.h"
    text = header.read_text()
    for arena, links in ((most, True), (most + 1, False)):
        header.write_text(re.sub(r"(MODEL_ARENA_BYTES) +\d+", rf"\1 {arena}", text))
        done = make(directory)
        assert (done.returncode == 0) is links
        assert links or "overflowed" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("board", "option", "flags"),
    [
        ("microbit", "--params=storage", "-O2 -flto"),
        ("lm3s6965", "--executor=plan", "-Os -flto"),
        ("mps2-an386", "--params=ram", "-O3 -ffast-math -flto"),
    ],
)
def test_link_time_optimisation(
    board: str, option: str, flags: str, tmp_path: Path, host: Path
) -> None:
    """Compilers call memset without being asked, at the very end; the bits are the same."""
    directory = compile_board("gesture_mlp", tmp_path / "fw", board, "--ram=14KB", option)
    run(directory, STEPS, flags=flags)
    assert all_results(directory) == host_results("gesture_mlp", STEPS, host)
    # What nothing uses is left out, such as a handle of a page store.
    assert sum(sections(directory).values()) <= defines(directory)["MODEL_RAM_BYTES"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "ram", "stack", "executor"),
    [
        ("kws_conv", 4608, 640, "code"),
        *more(("gesture_mlp", 5 * 1024, 1200, "plan"), ("lenet5", 32 * 1024, 1120, "code")),
    ],
)
def test_microbit_trains_in_tiles(
    model: str, ram: int, stack: int, executor: str, tmp_path: Path, host: Path
) -> None:
    """Kernels whose tensors do not fit into 8 KB stream them; RAM ends there."""
    directory = compile_board(
        model,
        tmp_path / "fw",
        "microbit",
        f"--ram={ram}",
        f"--stack={stack}",
        f"--executor={executor}",
        "--stream=auto",
    )
    assert "poetc_slice.c" in (directory / "Makefile").read_text()
    found = run(directory, 1)
    assert all_results(directory) == host_results(model, 1, host)
    check_ram(directory, ram)
    assert found.ram <= ram and found.stack_used <= found.stack


# RAM


@pytest.mark.slow
@pytest.mark.parametrize("board", EMULATED)
def test_static_data_are_counted(board: str, tmp_path: Path) -> None:
    """What the board's sources have in RAM is what it says, to the byte."""
    directory = compile_board("gesture_mlp", tmp_path / "fw", board, "--params=storage")
    make_well(directory)
    known, sizes, described = defines(directory), sections(directory), load_board(board)
    assert described is not None
    data = sizes[".data"] + sizes[".bss"] - known["MODEL_ARENA_BYTES"]
    assert data + described.firmware_stack_bytes == described.static_bytes
    assert known["MODEL_STATIC_BYTES"] == described.static_bytes
    assert sizes[".stack"] == known["MODEL_STACK_BYTES"] + described.firmware_stack_bytes


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4", *more("cortex-m3", "cortex-m7")])
def test_stack_above_a_step(cpu: str, tmp_path: Path) -> None:
    """From reset to the call of model_step; 8 bytes to align the stack, and 8 for main's caller."""
    directory = compile_board("gesture_mlp", tmp_path / "fw", "generic", "--params=storage")
    make_well(directory, f"CPU={cpu}", flags="-O2 -fstack-usage -fno-inline")
    usage = "".join(p.read_text() for p in directory.glob("build/*/*.su"))
    frames = {n: int(b) for n, b in re.findall(r":(\w+)\t(\d+)\tstatic", usage)}
    board = load_board("generic")
    assert board is not None
    above = frames["reset"] + frames["main"] + frames["run"]
    assert above + 16 <= board.firmware_stack_bytes
    # What is done between steps takes less than a step may.
    assert frames["load"] + frames["failed"] + frames["print_number"] + 128 <= 512


@pytest.fixture(scope="module")
def watch_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("plugin") / "watch_stores.so"
    source = Path(__file__).parent / "watch_stores.c"
    options = ("-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["gcc", *options, "-o", library, source], check=True)
    return library


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "board", "cpu", "ram", "options"),
    [
        (
            *("gesture_mlp", "microbit", "cortex-m0", LITTLE["gesture_mlp"]),
            ("--stack=measure", "--stream=auto"),
        ),
        ("gesture_mlp", "lm3s6965", "cortex-m4", 8192, ("--params=storage", "--stack=640")),
        ("gesture_mlp", "mps2-an386", "cortex-m4", 9600, ("--executor=plan",)),
        *more(
            ("kws_conv", "lm3s6965", "cortex-m0", 8192, ("--params=storage", "--stack=640")),
            ("lenet5", "mps2-an386", "cortex-m4", 256 * 1024, ()),
        ),
    ],
)
def test_every_store_is_within_ram(
    model: str,
    board: str,
    cpu: str,
    ram: int,
    options: tuple[str, ...],
    watch_stores: Path,
    tmp_path: Path,
) -> None:
    """All addresses that the processor stores to: from the end of the stack, which is painted, to
    that of the arena. (What is read from files the emulator puts into the arena.)"""
    directory = compile_board(model, tmp_path / "fw", board, f"--ram={ram}", *options)
    watched = tmp_path / "stores.txt"
    qemu = f"QEMU=qemu-system-arm -plugin {watch_stores},out={watched}"
    run(directory, 1, f"CPU={cpu}", qemu)
    lowest, highest, stores = map(int, watched.read_text().split())
    described = load_board(board)
    assert described is not None
    used = sum(sections(directory).values())
    assert described.ram_origin <= lowest < highest < described.ram_origin + used
    assert used <= defines(directory)["MODEL_RAM_BYTES"] <= ram
    # Painting the stack begins at its end, and clearing ends at that of the arena.
    assert lowest == described.ram_origin and stores > used // 4


@pytest.mark.slow
def test_a_step_that_does_not_fit_does_not_link(tmp_path: Path) -> None:
    directory = compile_board("gesture_mlp", tmp_path / "fw", "microbit", "--ram=32KB")
    ram = defines(directory)["MODEL_RAM_BYTES"]
    run(directory, 1, f"RAM_BYTES={ram}")
    done = make(directory, "CPU=cortex-m7")
    assert done.returncode != 0
    assert "CPU=cortex-m7: this firmware is for cortex-m0" in done.stdout + done.stderr
    done = make(directory, "-B", f"RAM_BYTES={ram - 4}")
    assert done.returncode != 0 and "overflowed" in done.stderr


def insert_into_step(directory: Path, code: str) -> None:
    model = directory / "model.c"
    text = model.read_text()
    start = text.index("{\n", text.index("model_step(")) + 2
    model.write_text(text[:start] + code + text[start:])


@pytest.mark.parametrize("place", ["above", "stack"])
def test_what_is_outside_of_ram_faults(place: str, tmp_path: Path) -> None:
    directory = compile_board("gesture_mlp", tmp_path / "fw", "microbit", "--ram=16KB")
    if place == "above":
        insert_into_step(directory, "    *(volatile uint8_t *)(0x20000000u + 16384u) = 1;\n")
    else:
        array = "    volatile uint8_t large[2000];\n    large[0] = 1;\n    (void)large[0];\n"
        insert_into_step(directory, array)
    done = make(directory, "run")
    assert done.returncode != 0
    assert "fault" in done.stderr or "Lockup" in done.stderr
    assert "status: ok" not in done.stderr


# Failures show


@pytest.mark.slow
@pytest.mark.parametrize("board", ["lm3s6965", *more("microbit")])
def test_failures_end_the_program(board: str, tmp_path: Path) -> None:
    options = ("--ram=12KB", "--params=storage")
    directory = compile_board("gesture_mlp", tmp_path / "fw", board, *options)
    storage = directory / "data" / "storage.bin"
    image = storage.read_bytes()
    storage.write_bytes(bytes(len(image)))
    done = make(directory, "run")
    assert done.returncode != 0 and "holds no parameters of this model" in done.stderr
    storage.write_bytes(image[:1600] + bytes([image[1600] ^ 1]) + image[1601:])
    done = make(directory, "run")
    assert done.returncode != 0 and "a page is corrupt" in done.stderr
    storage.write_bytes(image)
    (directory / "data" / "arg6.bin").write_bytes(b"1234")
    done = make(directory, "run")
    assert done.returncode != 0 and "argument 6: cannot be read" in done.stderr
    (directory / "data" / "arg6.bin").unlink()
    assert "arg6.bin is missing: zeros" in make_well(directory, "run")
    for steps in ("0", "x", "-1", "999999999999"):
        done = make(directory, "run", f"STEPS={steps}")
        assert done.returncode != 0 and "no number of steps" in done.stderr


@pytest.mark.slow
def test_no_card(tmp_path: Path) -> None:
    directory = compile_board("gesture_mlp", tmp_path / "fw", "lm3s6965", "--params=storage")
    text = (directory / "Makefile").read_text()
    (directory / "Makefile").write_text(re.sub(r" -drive \S+", "", text))
    done = make(directory, "run")
    assert done.returncode != 0 and "no page store" in done.stderr


@pytest.mark.slow
def test_writes_are_verified(tmp_path: Path, host: Path) -> None:
    """With POETC_VERIFY_WRITES blocks go to the card at once, and are read from there."""
    options = ("--ram=12KB", "--params=storage")
    directory = compile_board("gesture_mlp", tmp_path / "fw", "lm3s6965", *options)
    run(directory, 2, flags="-O2 -DPOETC_VERIFY_WRITES")
    assert all_results(directory) == host_results("gesture_mlp", 2, host)


# Portable C

CORES = {cpu: ("arm-none-eabi-gcc", *flags) for cpu, flags in CPU_FLAGS.items()}
CORES["x86-64"] = ("gcc", "-m64", "-fno-pic", "-no-pie", "-static")


@pytest.fixture(scope="module", params=["kws_conv", "gesture_mlp", *more("bert_micro")])
def portable(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions with parameters on storage, or mathematical functions."""
    options = ("--params=storage", "--ram=12KB") if request.param == "kws_conv" else ()
    output = tmp_path_factory.mktemp(request.param) / "fw"
    return compile_board(request.param, output, "generic", *options)


LIKE_OTHERS = CORES.keys() - {"cortex-m0", "cortex-m4", "x86-64"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "core", [*(core for core in CORES if core not in LIKE_OTHERS), *more(*sorted(LIKE_OTHERS))]
)
def test_core_is_freestanding(portable: Path, core: str, tmp_path: Path) -> None:
    """No C library, no libm, no 64-bit float, no fused operations, no copies, no warnings."""
    directory = portable
    names = ("model", "model_kernels", "poetc_math", "poetc_store", "poetc_image", "memory")
    sources = [directory / f"{name}.c" for name in names if (directory / f"{name}.c").exists()]
    flags = (
        *("-std=c99", "-pedantic", "-O2", "-ffp-contract=off", "-ffreestanding", "-nostdlib"),
        *("-Wall", "-Wextra", "-Wconversion", "-Wcast-align", "-Wdouble-promotion", "-Werror"),
        "-fno-tree-loop-distribute-patterns",  # of memory.c
    )
    program = tmp_path / "core.elf"
    done = subprocess.run(
        [*CORES[core], *flags, "-Wl,-e,model_step", *sources, "-lgcc", "-o", program],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    assert "model_step" in symbols
    # Of the compiler's library: software floating point in 64 bits.
    assert not re.search(r"__aeabi_(d[a-z]|[a-z]+2d$|cd)|__\w+df[0-9]?\b", symbols, re.M)
    listing = "objdump" if core == "x86-64" else "arm-none-eabi-objdump"
    code = subprocess.run([listing, "-d", program], capture_output=True, text=True).stdout
    assert len(code) > 10_000
    # vmla rounds the product; fused operations do not.
    assert not re.search(r"\.f64|\bvfn?m[as]\.f32|sd\s+%xmm|fmadd", code)
    # Compilers make calls of copies of structures, and of loops that copy: there are none.
    functions = re.split(r"^[0-9a-f]+ <(\w+)>:$", code, flags=re.M)
    ours = [f for n, f in zip(functions[1::2], functions[2::2], strict=True) if "model_" in n]
    assert len(ours) > 10 and not re.search(r"<mem\w+>", "".join(ours))


def test_functions_have_names_of_their_own() -> None:
    """The stack is measured by names (backends/c/stack.py)."""
    from poetc.backends.c.emit import RUNTIME

    for name in (*EMULATED, "generic"):
        board = load_board(name)
        assert board is not None
        sources = board_sources(board)
        sources |= {p.name: p.read_text() for p in RUNTIME.glob("poetc_*.c")}
        one_by_one = [call_graph({file: text}).keys() for file, text in sources.items()]
        names = [name for names in one_by_one for name in names]
        # The template has the same functions for several kinds of storage.
        assert len(names) == len(set(names))


# A board of one's own


@pytest.mark.slow
@pytest.mark.parametrize("portable", ["kws_conv", *more("gesture_mlp")], indirect=True)
@pytest.mark.parametrize(
    ("storage", "cpu"),
    [
        ("BOARD_CARD", "cortex-m7"),
        ("BOARD_FRAM", "cortex-m0"),
        ("BOARD_FLASH", "cortex-m0"),
        *more(
            ("BOARD_CARD", "cortex-m0"), ("BOARD_FRAM", "cortex-m7"), ("BOARD_FLASH", "cortex-m7")
        ),
    ],
)
def test_the_template_compiles(portable: Path, storage: str, cpu: str) -> None:
    make_well(portable, "-B", f"CPU={cpu}", flags=f"-O2 -DBOARD_STORAGE={storage}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("storage", "static"),
    [("BOARD_CARD", 636), ("BOARD_FRAM", 100), ("BOARD_FLASH -DPOETC_BLOCK_BYTES=4096", 4220)],
    ids=["card", "fram", "flash"],
)
def test_static_data_of_the_template(storage: str, static: int, tmp_path: Path) -> None:
    """What docs/boards.md says is enough for each kind of storage, and is not far too much."""
    options = ("--params=storage", f"--static={static}")
    directory = compile_board("gesture_mlp", tmp_path / "fw", "generic", *options)
    ram = defines(directory)["MODEL_RAM_BYTES"]
    assert defines(directory)["MODEL_STATIC_BYTES"] == static
    make_well(directory, f"RAM_BYTES={ram}", flags=f"-O2 -DBOARD_STORAGE={storage}")
    assert ram - sum(sections(directory).values()) <= 8


OWN = {
    "return 1;": "return {steps};",
    "(void)i;\n    (void)data;\n    (void)bytes;\n    return false;": """\
for (uint32_t k = 0; k < bytes; ++k) {
        ((uint8_t *)data)[k] = tables[i][k];
    }
    return true;""",
    "(void)i;\n    (void)data;\n    (void)bytes;\n    return true;": """\
for (uint32_t k = 0; k < bytes; ++k) {
        const uint32_t byte = ((const uint8_t *)data)[k];
        const char text[3] = {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15u], 0};
        board_print(text);
    }
    board_print(i < MODEL_RESULTS ? " result\\n" : "");
    return true;""",
    "(void)text;": """\
for (; *text != 0; ++text) {
        while ((*(volatile uint32_t *)0x40004004u & 1u) != 0) {
        }
        *(volatile uint32_t *)0x40004000u = (uint8_t)*text;
    }""",
    "void board_init(void)\n{": """\
void board_init(void)
{
    *(volatile uint32_t *)0x40004010u = 16;
    *(volatile uint32_t *)0x40004008u = 1;""",
    "(void)status;": """\
const uint32_t parameters[2] = {0x20026, (uint32_t)status};
    register uint32_t r0 __asm__("r0") = 0x20;
    register const void *r1 __asm__("r1") = parameters;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");""",
    "*done = 0; /* bytes that were read */\n    return POETC_READ_FAILED;": """\
for (*done = 0; *done < length; ++*done) {
        ((uint8_t *)data)[*done] = fram[offset + *done];
    }
    return POETC_OK;""",
    "*done = 0;\n    return POETC_WRITE_FAILED;": """\
for (*done = 0; *done < length; ++*done) {
        fram[offset + *done] = ((const uint8_t *)data)[*done];
    }
    return POETC_OK;""",
}
"""What takes the place of what in the template: data in flash, a serial port, storage in memory."""


def own_board(template: str, steps: int, arrays: list[np.ndarray]) -> str:
    for old, new in OWN.items():
        assert template.count(old) == 1, old
        template = template.replace(old, new.replace("{steps}", str(steps)))
    tables = [
        f"static const uint8_t table{i}[] = {{{', '.join(map(str, array.tobytes()))}}};"
        for i, array in enumerate(arrays)
    ]
    names = ", ".join(f"table{i}" for i in range(len(arrays)))
    start = [
        '#include "model.h"',
        *tables,
        f"static const uint8_t *const tables[] = {{{names}}};",
        "static uint8_t *const fram = (uint8_t *)0x20200000u;",
    ]
    return template.replace(
        '#include "store_block.h"', '#include "store_block.h"\n' + "\n".join(start)
    )


@pytest.mark.slow
def test_a_board_of_ones_own(tmp_path: Path, host: Path) -> None:
    """The template, filled in for another machine; poetc leaves it alone when it runs again."""
    options = ("--params=storage", "--ram=12KB")
    directory = compile_board("gesture_mlp", tmp_path / "fw", "generic", *options)
    template = (directory / "board_template.c").read_text()
    arrays, _ = load_arrays(MODELS / "gesture_mlp.npz")
    own = own_board(template.split("*/", 1)[1], 3, arrays)
    (directory / "board.c").write_text(own)
    compile_board("gesture_mlp", directory, "generic", *options)
    assert (directory / "board.c").read_text() == own
    make_well(directory, "CPU=cortex-m4", flags="-O2 -DBOARD_STORAGE=BOARD_FRAM")
    storage = directory / "data" / "storage.bin"
    machine = ("-machine", "mps2-an386", "-display", "none", "-monitor", "none")
    done = subprocess.run(
        [
            *("qemu-system-arm", *machine, "-serial", "stdio"),
            *("-semihosting-config", "enable=on,target=native"),
            *("-kernel", directory / "build" / "cortex-m4" / "model.elf"),
            *("-device", f"loader,file={storage},addr=0x20200000,force-raw=on"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0 and "status: ok" in done.stdout, done.stdout + done.stderr
    loss = bytes.fromhex(done.stdout.split(" result")[0])
    assert loss == host_results("gesture_mlp", 3, host)[0]


# The command line


def test_boards_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list-boards"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert tuple(line.split()[0] for line in lines) == known_boards()
    assert known_boards() == ("generic", "host", "lm3s6965", "microbit", "mps2-an386")
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--board=x"], "unknown board 'x'; known boards are generic, host, lm3s6965, "),
        (["--board=microbit", "--ram=33KB"], "microbit has 32,768 bytes of RAM, less than 33,792"),
        (["--board=microbit", "--io=caller"], "the firmware for microbit has inputs and results"),
        (["--board=microbit", "--passes=poet-order"], "--board cannot go with --passes"),
        (["--static=x"], "--static"),
    ],
)
def test_refused(
    options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    emit = [] if "--passes" in "".join(options) else ["--emit=c"]
    assert main([GESTURE, *emit, "-o", str(tmp_path / "fw"), *options]) == 2
    error = capsys.readouterr().err
    assert message.replace("--board cannot", "cannot") in error
    assert not (tmp_path / "fw").exists()


@pytest.mark.slow
def test_boards_take_turns_in_a_directory(tmp_path: Path) -> None:
    """Files of the one before go; the host's program is what it always was."""
    fw, plain = tmp_path / "fw", tmp_path / "plain"
    options = [GESTURE, "--emit=c", "-q", "-o"]
    assert main([*options, str(plain)]) == 0
    expected = {p.name: p.read_text() for p in plain.iterdir()}
    assert defines(plain)["MODEL_STATIC_BYTES"] == STATIC_BYTES
    for board in ("generic", "lm3s6965", "microbit", "generic", "host"):
        assert main([*options, str(fw), f"--board={board}"]) == 0
        board_files = load_board(board)
        assert (fw / "main.c").exists() is (board_files is None)
        assert (fw / "board_template.c").exists() is (board == "generic")
        assert (fw / "spi_pl022.c").exists() is (board == "lm3s6965")
    assert {p.name: p.read_text() for p in fw.iterdir()} == expected


def test_ram_defaults_to_that_of_the_board(tmp_path: Path) -> None:
    directory = compile_board("gesture_mlp", tmp_path / "fw", "lm3s6965")
    assert "RAM_BYTES ?= 65536" in (directory / "Makefile").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("board", ["microbit", "generic", *more("lm3s6965", "mps2-an386")])
def test_measured_stack_has_the_store_of_the_board(board: str, tmp_path: Path) -> None:
    """What is reserved is enough, with a store that needs more than the one in memory."""
    options = ("--params=storage", "--stack=measure", "--ram=12KB")
    directory = compile_board("gesture_mlp", tmp_path / "fw", board, *options)
    assert defines(directory)["MODEL_STACK_BYTES"] < DEFAULT_STACK_BYTES
    if board != "generic":
        found = run(directory, 2)
        assert found.stack_used <= found.stack
