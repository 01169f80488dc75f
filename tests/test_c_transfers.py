"""Page transfers in two halves, in C: their order, their failures, and a thread that does them."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from c_support import SANITIZED, compile_c, load_library
from compiled import Model, prepare
from conftest import more, of_work
from test_c_runtime import (
    BUSY,
    CORRUPT,
    IDLE,
    NO_STORE,
    OK,
    OUT_OF_RANGE,
    READ_FAILED,
    SHORT_TRANSFER,
    SOURCES,
    WRITE_FAILED,
    PythonStore,
    Transfer,
    page,
)
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.emit import RUNTIME, emit
from poetc.backends.c.layout import STATIC_BYTES
from poetc.errors import PoetcError
from poetc.image import layout_of, pack, unpack
from poetc.interpreter import run_graph
from poetc.interpreter.functions import InterpreterError
from poetc.ir.graph import graphs
from poetc.ir.poet import ComputeOp, PageInStartOp, PageOutStartOp, WaitOp
from poetc.ir.text import parse_module
from poetc.ir.transfers import most_under_way
from poetc.passes.poet_verify import verify_graph
from poetc.planning.plan import schedule_and_plan

THREAD = ("-DPOETC_STORE_THREAD", "-pthread")
RACES = ("-O1", "-fsanitize=thread", *THREAD)


# The runtime


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    sources = [*SOURCES, RUNTIME / "store_thread.c"]
    return load_library(sources, tmp_path_factory.mktemp("store") / "store.so")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_two_halves(library: ctypes.CDLL, asynchronous: bool) -> None:
    store = PythonStore(64, asynchronous)
    transfer = Transfer()
    out, back = page(b"abcdefgh"), page(bytes(8))
    arguments = (store.address, ctypes.byref(transfer))
    assert library.poetc_page_wait(*arguments) == IDLE
    assert library.poetc_page_out_start(*arguments, 16, out, 8, 7) == OK
    assert (bytes(store.bytes[16:24]) == b"abcdefgh") == (not asynchronous)
    assert library.poetc_page_in_start(*arguments, 16, back, 8, 7) == BUSY
    assert library.poetc_page_out_start(*arguments, 0, out, 8, 7) == BUSY
    assert library.poetc_page_wait(*arguments) == OK
    assert library.poetc_page_wait(*arguments) == IDLE
    assert library.poetc_page_in_start(*arguments, 16, back, 8, 7) == OK
    assert library.poetc_page_wait(*arguments) == OK
    assert back.raw == b"abcdefgh"
    start = ["start write", "wait"] if asynchronous else []
    assert store.calls[: len(start) + 2] == [*start, "write 16 8", "write 24 4"]
    # The page is that of a transfer in one piece, tag included.
    assert library.poetc_page_in_tagged(store.address, 16, back, 8, 7) == OK
    assert library.poetc_page_in_start(*arguments, 16, back, 8, 8) == OK
    assert library.poetc_page_wait(*arguments) == CORRUPT


@pytest.mark.parametrize("asynchronous", [False, True])
def test_failures_of_two_halves(library: ctypes.CDLL, asynchronous: bool) -> None:
    store = PythonStore(64, asynchronous)
    transfer = Transfer()
    arguments = (store.address, ctypes.byref(transfer))
    data = page(bytes(8))

    def both(function: Callable[..., int]) -> int:
        status = function(*arguments, 16, data, 8, 0)
        return status if status != OK else library.poetc_page_wait(*arguments)

    assert both(library.poetc_page_in_start) == CORRUPT
    store.lose = 3
    assert both(library.poetc_page_in_start) == SHORT_TRANSFER
    assert both(library.poetc_page_out_start) == SHORT_TRANSFER
    store.lose = 0
    store.write_status, store.read_status = WRITE_FAILED, READ_FAILED
    assert both(library.poetc_page_out_start) == WRITE_FAILED
    assert both(library.poetc_page_in_start) == READ_FAILED
    store.start_status = OUT_OF_RANGE
    if asynchronous:
        assert both(library.poetc_page_in_start) == OUT_OF_RANGE
    store.write_status = store.start_status = OK
    # A failed transfer is over, or was never started; the next one may start.
    assert both(library.poetc_page_out_start) == OK


def test_the_end_of_a_failed_step(library: ctypes.CDLL) -> None:
    store = PythonStore(64, asynchronous=True)
    transfers = (Transfer * 3)()
    data = page(bytes(8))
    for i in (2, 0):
        transfer = ctypes.byref(transfers[i])
        assert library.poetc_page_out_start(store.address, transfer, 0, data, 8, 0) == OK
    assert len(store.queue) == 2
    store.write_status = WRITE_FAILED
    assert library.poetc_pages_abandon(store.address, transfers, 3, CORRUPT) == CORRUPT
    assert not store.queue and store.calls.count("wait") == 2
    assert library.poetc_page_wait(store.address, ctypes.byref(transfers[0])) == IDLE


def test_writes_are_verified_at_the_wait(tmp_path: Path) -> None:
    library = load_library(SOURCES, tmp_path / "store.so", flags=("-DPOETC_VERIFY_WRITES",))
    for asynchronous in (False, True):
        store = PythonStore(64, asynchronous)
        transfer = Transfer()
        arguments = (store.address, ctypes.byref(transfer))
        data = page(b"abcdefgh")
        assert library.poetc_parameter_out_start(*arguments, 16, data, 8, 5) == OK
        assert library.poetc_page_wait(*arguments) == OK
        assert store.calls[-2:] == ["read 16 8", "read 24 4"]
        assert library.poetc_parameter_out_start(*arguments, 16, data, 8, 5) == OK
        if asynchronous:
            continue  # what is written later cannot be damaged before
        store.bytes[20] ^= 1
        assert library.poetc_page_wait(*arguments) == CORRUPT


def test_thread_store(library: ctypes.CDLL) -> None:
    """Many transfers in the queue; what is done at once comes after them."""
    content = np.zeros(4096, np.uint8)
    memory = ctypes.create_string_buffer(STATIC_BYTES)
    library.poetc_memory_store_init(memory, ctypes.c_void_p(content.ctypes.data), 4096)
    thread = ctypes.create_string_buffer(1024)
    assert library.poetc_thread_store_open(thread, memory) & 1
    out, back = (Transfer * 40)(), (Transfer * 40)()
    pages = [page(bytes([i]) * 96) for i in range(40)]
    copies = [page(bytes(96)) for _ in range(40)]
    for i in range(40):
        start = (thread, ctypes.byref(out[i]), 100 * i)
        assert library.poetc_page_out_start(*start, pages[i], 96, i) == OK
        start = (thread, ctypes.byref(back[i]), 100 * i)
        assert library.poetc_page_in_start(*start, copies[i], 96, i) == OK
    one = page(bytes(96))
    assert library.poetc_page_in_tagged(thread, 3900, one, 96, 39) == OK
    assert one.raw == pages[39].raw
    assert library.poetc_sync(thread) == OK
    for i in range(40):
        assert library.poetc_page_wait(thread, ctypes.byref(out[i])) == OK
        assert library.poetc_page_wait(thread, ctypes.byref(back[i])) == OK
        assert copies[i].raw == pages[i].raw
    start = (thread, ctypes.byref(out[0]), 4090)
    assert library.poetc_page_out_start(*start, pages[0], 96, 0) == OK
    assert library.poetc_page_wait(thread, ctypes.byref(out[0])) == OUT_OF_RANGE
    # Closing does not lose what is in the queue.
    assert library.poetc_page_out_start(thread, ctypes.byref(out[0]), 0, one, 96, 0) == OK
    library.poetc_thread_store_close(thread)
    assert content[:96].tobytes() == one.raw


# Steps of models


def scheduled(model: Model, share: float, params: str) -> ModuleOp:
    """A schedule in `share` of the RAM of the unlimited program, with transfers that overlap."""
    _, unlimited = model.schedule(None)
    module = model.module.clone()
    ram_bytes = int(share * unlimited.use.peak_bytes)
    options = model.options(ram_bytes, params=params, **of_work(3.0))
    schedule_and_plan(graphs(module)[0], options)
    return module


def write_inputs(module: ModuleOp, directory: Path, arguments: list[np.ndarray]) -> None:
    """`data/argN.bin`, and `image.bin` with the parameters on storage."""
    graph = graphs(module)[0]
    data = directory / "data"
    data.mkdir(exist_ok=True)
    for i, array in enumerate(arguments):
        if not graph.is_stored(i):
            (data / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    if (layout := layout_of(graph)) is not None:
        stored = [arguments[parameter.argument] for parameter in layout.tensors]
        (directory / "image.bin").write_bytes(pack(layout, stored))


def run(program: Path, steps: int) -> tuple[int, dict[str, bytes], str]:
    """Runs steps: exit status, results and image, messages."""
    data = program.parent / "data"
    image = program.parent / "pages.bin"
    if (program.parent / "image.bin").exists():
        image.write_bytes((program.parent / "image.bin").read_bytes())
    done = subprocess.run(
        [program, data, str(steps), image],
        capture_output=True,
        text=True,
        timeout=300,
        env={"TSAN_OPTIONS": "halt_on_error=1 history_size=7"},
    )
    found = {path.name: path.read_bytes() for path in sorted(data.glob("out*.bin"))}
    if (program.parent / "image.bin").exists():
        found["image"] = image.read_bytes()
    return done.returncode, found, done.stdout + done.stderr


def values(module: ModuleOp, directory: Path, found: dict[str, bytes]) -> list[bytes]:
    """The results of a run, wherever they are."""
    graph = graphs(module)[0]
    stored: dict[int, bytes] = {}
    if (layout := layout_of(graph)) is not None:
        _, arrays = unpack(layout, found["image"])
        for parameter, array in zip(layout.tensors, arrays, strict=True):
            result = graph.updates(parameter.argument)
            if result is not None:
                stored[result] = array.tobytes()
    count = len(graph.return_op.arguments)
    return [stored[i] if i in stored else found[f"out{i}.bin"] for i in range(count)]


STEPS = 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "share", "params"),
    [
        ("gesture_mlp", 0.9, "storage"),
        ("kws_conv", 0.7, "auto"),
        *more(("dscnn", 0.6, "storage")),
    ],
)
def test_models(name: str, share: float, params: str, tmp_path: Path) -> None:
    """The bits are those of the unlimited program, whatever does the transfers; no race is found,
    and nothing beyond the bounds of a buffer."""
    model = prepare(name)
    steps = 1 if name == "dscnn" else STEPS
    unlimited, _ = model.schedule(None)
    module = scheduled(model, share, params)
    verify_graph(graphs(module)[0])
    assert 1 < most_under_way(graphs(module)[0]) <= 4
    expected: list[bytes] | None = None
    for kind, program, flags in (
        ("unlimited", unlimited, ("-O2",)),
        ("synchronous", module, ("-O2",)),
        ("threads", module, ("-O2", *THREAD)),
        ("races", module, RACES),
        ("bounds", module, (*SANITIZED, *THREAD)),
    ):
        out = tmp_path / kind
        emit(program, out)
        compile_c(out.glob("*.c"), out / "program", flags=flags)
        write_inputs(program, out, model.arguments)
        status, found, messages = run(out / "program", steps)
        assert status == 0, messages
        got = values(program, out, found)
        expected = expected or got
        assert got == expected, kind


# Waits that come too late

SIZE = 1 << 16
STEP = f"""
poet.graph @main(%x: tensor<SIZExf32> {{poet.role = "input", poet.offset = 0 : i64}})
    -> (tensor<SIZExf32>)
    attributes {{ram = {16 * SIZE} : i64, arena_bytes = {16 * SIZE} : i64,
                 storage_bytes = {4 * SIZE + 4} : i64}} {{
  %h = poet.compute "h" (%a = %x : tensor<SIZExf32>, %b = %x : tensor<SIZExf32>)
      -> tensor<SIZExf32> kernel @add offsets [{4 * SIZE}] {{
    %s = stablehlo.add %a, %b : tensor<SIZExf32>
    poet.yield %s : tensor<SIZExf32>
  }}
  %out = poet.pageout_start %h offset 0
    : tensor<SIZExf32> -> !poet.transfer<!poet.page<tensor<SIZExf32>>>
  %y = poet.compute "y" (%a = %x : tensor<SIZExf32>, %b = %h : tensor<SIZExf32>)
      -> tensor<SIZExf32> kernel @add offsets [{8 * SIZE}] {{
    %s = stablehlo.add %a, %b : tensor<SIZExf32>
    poet.yield %s : tensor<SIZExf32>
  }}
  %page = poet.wait %out
    : !poet.transfer<!poet.page<tensor<SIZExf32>>> -> !poet.page<tensor<SIZExf32>>
  poet.free %h : tensor<SIZExf32>
  %z = poet.compute "z" (%a = %x : tensor<SIZExf32>, %b = %y : tensor<SIZExf32>)
      -> tensor<SIZExf32> kernel @add offsets [{4 * SIZE}] {{
    %s = stablehlo.add %a, %b : tensor<SIZExf32>
    poet.yield %s : tensor<SIZExf32>
  }}
  poet.free %y : tensor<SIZExf32>
  %in = poet.pagein_start %page offset {12 * SIZE}
    : !poet.page<tensor<SIZExf32>> -> !poet.transfer<tensor<SIZExf32>>
  %v = poet.compute "v" (%a = %x : tensor<SIZExf32>, %b = %z : tensor<SIZExf32>)
      -> tensor<SIZExf32> kernel @add offsets [{8 * SIZE}] {{
    %s = stablehlo.add %a, %b : tensor<SIZExf32>
    poet.yield %s : tensor<SIZExf32>
  }}
  poet.free %z : tensor<SIZExf32>
  poet.free %x : tensor<SIZExf32>
  %h1 = poet.wait %in : !poet.transfer<tensor<SIZExf32>> -> tensor<SIZExf32>
  %r = poet.compute "r" (%a = %v : tensor<SIZExf32>, %b = %h1 : tensor<SIZExf32>)
      -> tensor<SIZExf32> kernel @add offsets [0] {{
    %s = stablehlo.add %a, %b : tensor<SIZExf32>
    poet.yield %s : tensor<SIZExf32>
  }}
  poet.free %v : tensor<SIZExf32>
  poet.free %h1 : tensor<SIZExf32>
  poet.return %r : tensor<SIZExf32>
}}
func.func private @add(%x: memref<SIZExf32>, %y: memref<SIZExf32>, %out: memref<SIZExf32>)
    attributes {{poet.inputs = 2 : i64, poet.results = 1 : i64, poet.workspace = 0 : i64}} {{
  affine.for %i = 0 to SIZE {{
    %a = affine.load %x[%i] : memref<SIZExf32>
    %b = affine.load %y[%i] : memref<SIZExf32>
    %s = arith.addf %a, %b : f32
    affine.store %s, %out[%i] : memref<SIZExf32>
  }}
  func.return
}}
""".replace("SIZE", str(SIZE))
"""y = x + h is computed while h = 2x is written; h is read back while v = x + z is computed."""

X = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)


def later(start: type, label: str) -> ModuleOp:
    """The step with the wait for a transfer behind a kernel that must not run before it."""
    module = parse_module(STEP)
    ops = list(graphs(module)[0].block.ops)
    (wait,) = [op for op in ops if isinstance(op, WaitOp) and isinstance(op.start, start)]
    (kernel,) = [op for op in ops if isinstance(op, ComputeOp) and op.label.data == label]
    wait.detach()
    graphs(module)[0].block.insert_op_after(wait, kernel)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "label", "verifier", "interpreter", "race"),
    [
        (None, None, None, None, None),
        (
            PageOutStartOp,
            "z",
            r"%h \(poet.compute \"h\"\) is freed before poet.pageout_start of %h",
            r"%h ends before poet.pageout_start of it is waited for: it was freed",
            "kernel_add",
        ),
        (
            PageInStartOp,
            "r",
            r"poet.compute \"r\" uses %h1 \(poet.wait\) before it is waited for",
            r'poet.compute "r" uses %h1, which has not arrived',
            "kernel_add",
        ),
    ],
    ids=["right", "page-out", "page-in"],
)
def test_a_wait_that_is_too_late(
    start: type | None,
    label: str,
    verifier: str | None,
    interpreter: str | None,
    race: str | None,
    tmp_path: Path,
) -> None:
    """The verifier refuses it, the interpreter stops at it, and the C has a race."""
    module = parse_module(STEP) if start is None else later(start, label)
    emit(module, tmp_path / "out")
    sources = (tmp_path / "out").glob("*.c")
    program = compile_c(sources, tmp_path / "out" / "program", flags=RACES)
    write_inputs(module, tmp_path / "out", [X])
    status, found, messages = run(program, 20)
    if race is None:
        verify_graph(graphs(module)[0])
        assert status == 0 and "WARNING" not in messages, messages
        # h = 2x, y = 3x, z = 4x, v = 5x
        result = run_graph(module, [X], arena=True).results[0]
        assert found["out0.bin"] == result.tobytes()
        assert np.allclose(result, 7 * X, rtol=1e-6)
        subprocess.run(["make", "-s", "-C", program.parent, "model_threads", "CC=gcc"], check=True)
        status, found, messages = run(program.parent / "model_threads", 2)
        assert status == 0 and found["out0.bin"] == result.tobytes(), messages
        return
    with pytest.raises(PoetcError, match=verifier):
        verify_graph(graphs(module)[0])
    with pytest.raises(InterpreterError, match=interpreter):
        run_graph(module, [X])
    for _ in range(5):
        # A step that finds its page corrupt ends before the race may have been seen.
        if "ThreadSanitizer: data race" in messages:
            break
        assert "a page is corrupt" in messages, messages
        status, found, messages = run(program, 20)
    assert status != 0 and "ThreadSanitizer: data race" in messages
    assert_race(messages, race)


def assert_race(report: str, kernel: str) -> None:
    """A kernel and a transfer are the two sides of the race. The one that came first may have been
    forgotten: all that is known of it then is its thread, and one of them is the main one."""
    access = r"  (?:Previous )?(?:[Ww]rite|[Rr]ead) of size.* by (.*):\n((?:    .*\n)+)"
    sides = re.findall(access, report)
    assert len(sides) == 2 and sum(thread == "main thread" for thread, _ in sides) == 1, report
    lost = "failed to restore the stack"
    assert lost not in sides[0][1], report
    for thread, stack in sides:
        expected = rf"#\d \w*{kernel}" if thread == "main thread" else r"#\d \w*(read|write)"
        assert lost in stack or re.search(expected, stack), report


def test_a_race_is_told_from_others() -> None:
    """By both of its sides, as far as the report has them."""
    report = (
        "WARNING: ThreadSanitizer: data race (pid=1)\n"
        "  Write of size 8 at 0x7b by thread T1:\n    #0 pread64 <null>\n\n"
        "  Previous read of size 4 at 0x7b by main thread:\n    {}\n"
    )
    assert_race(report.format("#0 model_kernel_add model_kernels.c:9"), "kernel_add")
    assert_race(report.format("[failed to restore the stack]"), "kernel_add")
    with pytest.raises(AssertionError):
        assert_race(report.format("#0 model_kernel_mul model_kernels.c:9"), "kernel_add")
    with pytest.raises(AssertionError):
        assert_race(report.replace("main thread", "thread T2").format("#0 x"), "kernel_add")


class FailingStore(PythonStore):
    """An asynchronous store whose transfer number `at` fails: data and trailers are counted."""

    at = -1
    count = 0

    def _read(self, *arguments: object) -> int:
        status = super()._read(*arguments)  # type: ignore[arg-type]
        return READ_FAILED if self._now() else status

    def _write(self, *arguments: object) -> int:
        status = super()._write(*arguments)  # type: ignore[arg-type]
        return WRITE_FAILED if self._now() else status

    def _now(self) -> bool:
        self.count += 1
        return self.count - 1 == self.at


def test_nothing_is_under_way_after_a_failure(tmp_path: Path) -> None:
    module = parse_module(STEP)
    emit(module, tmp_path / "out")
    sources = [path for path in (tmp_path / "out").glob("*.c") if path.name != "main.c"]
    library = load_library(sources, tmp_path / "model.so")
    library.model_argument.restype = library.model_result.restype = ctypes.c_void_p
    store = FailingStore(4 * SIZE + 4, asynchronous=True)
    statuses: list[int] = []
    for at in range(5):
        store.at, store.count = at, 0
        store.calls.clear()
        ctypes.memmove(library.model_argument(0), X.tobytes(), X.nbytes)
        statuses.append(library.model_step(store.address))
        assert not store.queue
        starts = sum(call.startswith("start") for call in store.calls)
        assert starts == store.calls.count("wait")
    assert statuses == [WRITE_FAILED, WRITE_FAILED, READ_FAILED, READ_FAILED, OK]
    # What cannot be started ends the step, too.
    store.start_status = OUT_OF_RANGE
    assert library.model_step(store.address) == OUT_OF_RANGE
    assert library.model_step(None) == NO_STORE
