"""Relax functions scheduled by `poetc.tvm`: the same bits within the memory that was given."""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import more

pytest.importorskip("tvm", reason="poetc.tvm is optional: pip install 'poetc[tvm]'")

import tvm
from relax_functions import QUICK, TRAININGS, arguments_of, mlp, only, run
from relax_scripts import Refused, Returns
from test_tvm_files import run_without_tvm
from tvm import ir, relax

import poetc.tvm
from poetc.backends.tvm.stores import PageError
from poetc.errors import InfeasibleError, InputError, TimeLimitError
from poetc.tvm import PoetSchedule, pages

op = relax.op

OBJECTS_BYTES = 16 * 1024
"""What TVM's machine allocates beside tensors: their descriptions, and frames."""


def found(module: tvm.IRModule, function: str) -> dict[str, Any]:
    return dict(module[function].attrs["poetc"])


# Training functions


@pytest.mark.slow
# What is measured differs by up to some thousand bytes from run to run: the budgets do not.
@pytest.mark.parametrize(
    ("name", "ram", "share", "remat"),
    [
        ("mlp", 232_000, 0.5, False),
        ("convnet", 138_000, 0.5, True),
        *more(("mlp", 246_000, 0.52, True), ("transformer", 284_000, 0.5, True)),
    ],
)
def test_training_in_half_the_memory(name: str, ram: int, share: float, remat: bool) -> None:
    """As measured, of what TVM's own pipeline takes; with the same bits."""
    training = TRAININGS[name]()
    module = only(training.module, training.function)
    whole = run(module, training.function, training.arguments, "default", heap=True)
    assert ram <= share * whole.heap_bytes
    scheduled = PoetSchedule(ram, gap=0.5, time_limit=10, remat=remat)(module)
    numbers = found(scheduled, training.function)
    assert numbers["page_ins"] and bool(numbers["recomputes"]) == remat
    half = run(scheduled, training.function, training.arguments, heap=True)
    assert half.bits == whole.bits
    # Everything that is allocated counts, as nothing is given back before the end.
    assert half.allocated_bytes == numbers["ram_bytes"] <= ram
    assert half.heap_bytes <= ram + OBJECTS_BYTES
    assert half.calls.count(pages.IN) == numbers["page_ins"]
    assert half.calls.count(pages.OUT) == numbers["page_outs"]
    # Each kernel of the plan runs, also those that run again.
    assert len(half.kernels) == kernel_calls(scheduled, training.function)
    without_limit = PoetSchedule()(module)
    once = kernel_calls(without_limit, training.function)
    assert len(half.kernels) == once + numbers["recomputes"]


def kernel_calls(module: tvm.IRModule, function: str) -> int:
    """How often a scheduled function calls a PrimFunc."""
    calls = [
        binding.value.op
        for binding in module[function].body.blocks[0].bindings
        if isinstance(binding.value, ir.Call)
    ]
    return sum(isinstance(called, ir.GlobalVar) for called in calls)


@pytest.mark.slow
def test_a_trainer_s_functions_with_tuples() -> None:
    """The gradients and the optimizer that `SetupTrainer` makes, both scheduled, in one module."""
    training = mlp()
    names = [training.function, "optimizer"]
    module = only(training.module, *names)
    scheduled = PoetSchedule("400KB", functions=names)(module)
    arguments = {name: arguments_of(module[name]) for name in names}
    for name in names:
        expected = run(module, name, arguments[name], "default", QUICK)
        done = run(scheduled, name, arguments[name], target=QUICK)
        assert done.bits == expected.bits
        assert done.allocated_bytes == found(scheduled, name)["ram_bytes"] <= 400 * 1024


def every_operator() -> tvm.IRModule:
    """A function with every operator that has a gradient, and the function with the gradients.

    Without `triu`, whose gradient has too few parts in this version of TVM.
    """
    b = relax.BlockBuilder()
    shapes = {"x": (2, 4, 6, 6), "y": (2, 4, 6, 6), "w": (4, 4, 3, 3), "m": (6, 5)}
    x, y, w, m = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in shapes.items())
    labels = relax.Var("labels", relax.TensorType((2,), "int64"))
    terms: list[relax.Expr] = []

    def emit(function: Callable[..., Any], *operands: Any, **options: Any) -> relax.Var:
        return b.emit(function(*operands, **options))

    def term(value: relax.Expr) -> None:
        terms.append(emit(op.sum, value))

    with b.function("main", [x, y, w, m, labels]):
        with b.dataflow():
            c = emit(op.nn.conv2d, x, w, padding=1)
            positive = emit(op.add, emit(op.abs, c), relax.const(0.5))
            for f in (op.exp, op.sin, op.cos, op.tanh, op.sigmoid, op.negative, op.nn.relu):
                term(emit(f, c))
            for f in (op.log, op.sqrt, op.nn.silu):
                term(emit(f, positive))
            for f in (op.subtract, op.multiply, op.maximum, op.minimum):
                term(emit(f, c, y))
            term(emit(op.divide, c, positive))
            term(emit(op.power, positive, emit(op.tanh, y)))
            comparisons = (op.less, op.less_equal, op.greater, op.greater_equal)
            for f in (*comparisons, op.equal, op.not_equal):
                term(emit(op.where, emit(f, c, y), c, y))
            for f in (op.nn.max_pool2d, op.nn.avg_pool2d):
                term(emit(f, c, (2, 2), strides=(2, 2)))
            rows = emit(op.reshape, emit(op.permute_dims, c, [0, 2, 3, 1]), (12, 24))
            parts = emit(op.split, rows, 2, axis=1)
            halves = [b.emit(relax.TupleGetItem(parts, i)) for i in (0, 1)]
            term(emit(op.multiply, *halves))
            high = emit(op.reshape, emit(op.concat, [rows, rows], axis=0), (96, 6))
            mm = emit(op.matmul, high, m)
            term(emit(op.multiply, mm, mm))
            term(emit(op.cumsum, mm, axis=0))
            mean = emit(op.expand_dims, emit(op.mean, mm, axis=0), [0])
            term(emit(op.multiply, emit(op.broadcast_to, mean, (96, 5)), mm))
            term(emit(op.variance, mm, axis=1))
            term(emit(op.multiply, emit(op.nn.softmax, mm), mm))
            scores = emit(op.nn.log_softmax, emit(op.take, mm, labels, axis=0))
            terms.append(emit(op.nn.nll_loss, scores, labels, reduction="mean"))
            terms.append(emit(op.nn.cross_entropy_with_logits, mm, emit(op.nn.softmax, mm)))
            shape, two = (96, 5), relax.const(2.0)
            constants = [
                emit(op.zeros, shape, "float32"),
                emit(op.ones, shape, "float32"),
                emit(op.full, shape, two, "float32"),
                emit(op.zeros_like, mm),
                emit(op.ones_like, mm),
                emit(op.full_like, mm, two),
            ]
            value = emit(op.astype, emit(op.astype, mm, "float64"), "float32")
            for constant in constants:
                value = emit(op.add, value, constant)
            term(value)
            total = terms[0]
            for other in terms[1:]:
                total = emit(op.add, total, other)
            total = b.emit_output(total)
        b.emit_func_output(total)
    module = b.get()
    parameters = list(module["main"].params)[:4]
    return relax.transform.Gradient("main", require_grads=parameters)(module)


@pytest.mark.slow
def test_every_operator_with_a_gradient() -> None:
    module = every_operator()
    used = set[str]()

    def visit(call: ir.Call) -> None:
        if isinstance(call.op, ir.Op):
            used.add(call.op.name)

    relax.analysis.post_order_visit(
        module["main"], lambda expr: visit(expr) if isinstance(expr, ir.Call) else None
    )
    differentiable = {
        name
        for name in ir.Op.list_op_names()
        if name.startswith("relax.") and ir.Op.get(name).get_attr("FPrimalGradient") is not None
    }
    assert differentiable - used == {"relax.triu"}
    name = "main_adjoint"
    module = only(module, name)
    arguments = arguments_of(module[name], classes=2)
    expected = run(module, name, arguments, "default", QUICK)
    scheduled = PoetSchedule(24_000, gap=0.5, time_limit=10)(module)
    assert found(scheduled, name)["recomputes"]
    done = run(scheduled, name, arguments, target=QUICK)
    assert done.bits == expected.bits
    assert done.allocated_bytes <= 24_000


# Pipelines


@pytest.mark.slow
def test_pipelines_of_tvm_keep_the_schedule() -> None:
    training = mlp()
    name = training.function
    module = only(training.module, name)
    scheduled = PoetSchedule(220_000, gap=0.5, time_limit=10)(module)
    ours = run(scheduled, name, training.arguments, target=QUICK)
    target = tvm.target.Target("llvm")
    for pipeline in ("default", relax.get_default_pipeline(target)):
        theirs = run(scheduled, name, training.arguments, pipeline, QUICK)
        assert theirs.bits == ours.bits
        assert theirs.kernels == ours.kernels
        assert theirs.allocated_bytes == ours.allocated_bytes
    by_name = relax.get_pipeline("poetc-schedule", ram=220_000, gap=0.5, time_limit=10)
    whole = run(module, name, training.arguments, by_name, QUICK)
    assert whole.bits == ours.bits
    assert whole.allocated_bytes <= 220_000
    assert run(module, name, training.arguments, "poetc-schedule", QUICK).bits == ours.bits


@pytest.mark.slow
def test_fused_kernels() -> None:
    training = mlp()
    name = training.function
    fused = relax.get_pipeline("zero")(only(training.module, name))
    expected = run(fused, name, training.arguments, "default", QUICK)
    scheduled = PoetSchedule(420_000, gap=0.5, time_limit=10)(fused)
    done = run(scheduled, name, training.arguments, target=QUICK, heap=True)
    assert done.bits == expected.bits
    assert done.heap_bytes <= 420_000 + OBJECTS_BYTES


# What functions return


@pytest.mark.slow
def test_results_that_are_arguments_reshaped_or_returned_twice() -> None:
    scheduled = PoetSchedule("1KB", functions=["main", "nothing"])(Returns)
    assert found(scheduled, "main")["result_bytes"] == 2 * 96
    arguments = (*arguments_of(Returns["main"])[:2], tvm.runtime.tensor(np.array(True)))
    done = run(scheduled, "main", arguments, target=QUICK)
    assert done.bits == run(Returns, "main", arguments, "default", QUICK).bits
    assert len(done.kernels) == 2, "what is not needed is not computed"
    # Who calls a scheduled function still does.
    x, z = arguments[0], arguments[2]
    assert run(scheduled, "caller", (x, z), target=QUICK).bits == done.bits[3:4]
    assert found(scheduled, "nothing")["ram_bytes"] == 0
    row = tvm.runtime.tensor(np.arange(4, dtype="float32"))
    assert run(scheduled, "nothing", (row,), target=QUICK).bits == 2 * [row.numpy().tobytes()]


# What cannot be done


UNKNOWN = "it calls a function whose effects and memory are unknown"


def test_all_that_cannot_be_scheduled_is_listed() -> None:
    assert refused("main") == [
        'Var (x): its shape is not static: R.Tensor((4, n), dtype="float32")',
        "relax.call_dps_packed (b): the memory that a packed function takes is unknown",
        f"relax.call_pure_packed (c): {UNKNOWN}",
        "relax.ewise_fma (e): TVM has no PrimFunc for it (LegalizeOps)",
    ]
    assert refused("loud") == [
        f"call of relax.run.print (_): {UNKNOWN}",
        "call of called (z): a function that is called cannot be scheduled within another; "
        "inline it (relax.transform.InlinePrivateFunctions)",
    ]
    assert refused("branches") == [
        "If (z): only calls, tensors, constants and tuples can be scheduled"
    ]


def refused(name: str) -> list[str]:
    """What is listed, without the places, which are in relax_scripts.py."""
    with pytest.raises(InputError, match=f"Relax function @{name} cannot be scheduled") as caught:
        PoetSchedule(functions=[name])(Refused)
    lines = [line.strip() for line in caught.value.message.splitlines()[1:]]
    return [re.sub(r", \S*relax_scripts.py:\d+:\d+", "", line) for line in lines]


def test_twice() -> None:
    module = PoetSchedule(functions=["nothing", "main"])(Returns)
    with pytest.raises(InputError, match="scheduled already: Relax function @main"):
        PoetSchedule(functions="main")(module)
    lowered = relax.transform.CallTIRRewrite()(relax.transform.LegalizeOps()(Returns))
    with pytest.raises(InputError) as caught:
        PoetSchedule(functions="main")(lowered)
    reasons = caught.value.message.splitlines()[1:]
    assert len(reasons) == 12
    assert all("memory is allocated already; schedule before that" in line for line in reasons)


def test_one_after_the_other() -> None:
    """Each function with a budget of its own; kernels of one do not disturb the other."""
    main = PoetSchedule("1KB", functions="main")(Returns)
    both = PoetSchedule("2KB", deadline=10**10, functions=["nothing", "nothing"])(main)
    arguments = (*arguments_of(Returns["main"])[:2], tvm.runtime.tensor(np.array(True)))
    done, expected = (run(m, "main", arguments, target=QUICK) for m in (both, main))
    assert (done.bits, done.kernels) == (expected.bits, expected.kernels)
    assert found(both, "main") == found(main, "main")
    assert found(both, "nothing")["ram_bytes"] == 0


@pytest.mark.slow
def test_too_little_memory() -> None:
    training = mlp()
    module = only(training.module, training.function)
    with pytest.raises(InfeasibleError) as caught:
        PoetSchedule("180KB")(module)
    least = re.search(
        r"no schedule fits into 184,320 B .*; at least ([\d,]+) B .* needed for \"\w+\" \(\w+\); "
        r"least RAM known to work: ([\d,]+) B .*; that includes 44,332 B .* for results",
        caught.value.message,
    )
    assert least is not None
    needed, known = (int(number.replace(",", "")) for number in least.groups())
    assert needed == known
    assert found(PoetSchedule(known)(module), training.function)["ram_bytes"] == known
    # So it is where the results alone are too large.
    with pytest.raises(InfeasibleError, match=r"fits into 44,000 B .*at least ([\d,]+) B") as small:
        PoetSchedule(44_000)(module)
    assert f"at least {least[1]} B" in small.value.message
    # Proven for one order only.
    late = r"in this order meets the deadline of .* within 225,280 B .*; the step takes"
    with pytest.raises(TimeLimitError, match=late):
        PoetSchedule("220KB", deadline="1x", time_limit=10)(module)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ram": 0}, "ram=0: must be more than zero"),
        ({"ram": "half"}, "ram=half: not a size"),
        ({"ram": 1.5}, "ram=1.5: not a whole number of bytes"),
        ({"ram": float("nan")}, "ram=nan: not a size"),
        ({"ram": 10**30}, "ram=1000000000000000000000000000000: too large"),
        ({"deadline": "soon"}, "deadline=soon: not a duration"),
        ({"deadline": -3}, "deadline=-3ns: must be more than zero"),
        ({"deadline": float("nan")}, "deadline=nan: whole nanoseconds"),
        ({"deadline": 1.5}, "deadline=1.5: whole nanoseconds"),
        ({"gap": -0.1}, "gap=-0.1: must be at least 0 and below 1"),
        ({"gap": float("nan")}, "gap=nan: must be at least 0 and below 1"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
        ({"device": Path("none.toml")}, "cannot read device file none.toml"),
        ({"storage": "tape"}, "unknown storage 'tape'"),
        ({"storage": Path("none.toml")}, "cannot read storage file none.toml"),
        ({"storage": 3}, "storage=3: the name of a kind of storage, a file, or 'none'"),
        ({"time_limit": 0}, "time_limit=0: not a positive number of seconds"),
        ({"time_limit": "5"}, "time_limit='5': a number of seconds"),
        ({"gap": "x"}, "gap='x': a number"),
        ({"device": 3}, "device=3: the name of a device, or a file"),
        ({"paging": "off"}, "paging='off': True or False"),
        ({"remat": 0}, "remat=0: True or False"),
        ({"strategy": "luck"}, "strategy='luck': there are auto"),
        ({"functions": []}, "functions=[]: names of functions"),
        ({"functions": ["f"]}, "no Relax function f in the module; there are nothing"),
        ({"functions": "half"}, "no Relax function half in the module; there are nothing"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    module = only(Returns, "nothing")
    with pytest.raises(InputError, match=re.escape(message)):
        PoetSchedule(**options)(module)


def test_modules_that_are_not_for_processors_or_empty() -> None:
    with pytest.raises(InputError, match="no Relax function that can be called from outside"):
        PoetSchedule()(tvm.IRModule({}))
    with (
        tvm.target.Target({"kind": "cuda", "arch": "sm_70"}),
        pytest.raises(InputError, match="for processors, not for the target cuda"),
    ):
        PoetSchedule(functions=["nothing"])(Returns)


# Pages


@pytest.mark.slow
def test_pages_are_files_of_their_call(tmp_path: Path) -> None:
    training = mlp()
    module = only(training.module, training.function)
    scheduled = PoetSchedule(220_000, remat=False, gap=0.5, time_limit=10)(module)
    assert found(scheduled, training.function)["page_ins"]
    seen: list[pages.Pages] = []

    class Kept(pages.Pages):
        def __init__(self, bytes: int) -> None:
            super().__init__(bytes)
            seen.append(self)

    tvm.register_global_func(pages.OPEN, Kept, override=True)
    try:
        poetc.tvm.set_page_directory(tmp_path)
        for _ in range(2):
            assert run(scheduled, training.function, training.arguments, target=QUICK).bits
        first, second = seen
        assert not list(tmp_path.iterdir()), "they have no name"
        size = found(scheduled, training.function)["storage_bytes"]
        for one in seen:
            content = os.pread(one.descriptor, size + 1, 0)
            assert len(content) == size and any(content)
        assert os.fstat(first.descriptor).st_ino != os.fstat(second.descriptor).st_ino
        with pytest.raises(NotADirectoryError, match="no is no directory"):
            poetc.tvm.set_page_directory(tmp_path / "no")
    finally:
        poetc.tvm.set_page_directory(None)
        pages.register()


def test_damaged_pages() -> None:
    store, page = pages.Pages(64), bytearray(range(32))
    store.page_out(8, memoryview(page))
    back = bytearray(32)
    store.page_in(8, memoryview(back))
    assert back == page
    os.pwrite(store.descriptor, b"!", 9)
    for offset in (8, 16, 60):
        with pytest.raises(PageError, match="damaged, or was never written"):
            store.page_in(offset, memoryview(back))


def test_no_place_for_pages(tmp_path: Path) -> None:
    open_pages = tvm.get_global_func(pages.OPEN)
    gone = tmp_path / "gone"
    gone.mkdir()
    try:
        poetc.tvm.set_page_directory(gone)
        gone.rmdir()
        with pytest.raises(
            PageError, match=r"64 B of pages in .*gone .*: No such file or directory"
        ):
            open_pages(64)
    finally:
        poetc.tvm.set_page_directory(None)
    with pytest.raises(PageError, match="of pages in the directory of temporary files"):
        open_pages(2**62)


# Without TVM


@pytest.mark.slow
def test_without_tvm() -> None:
    done = run_without_tvm("import poetc.cli, poetc.passes.poet_schedule\nimport poetc.tvm")
    assert done.returncode == 1
    assert "poetc.tvm needs Apache TVM" in done.stderr
    assert "install it with: pip install 'poetc[tvm]'" in done.stderr
    code = "import sys, poetc, poetc.cli, poetc.pipeline\nprint('tvm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_the_example() -> None:
    pytest.importorskip("torch", reason="the example is a PyTorch module")
    example = Path(__file__).parent.parent / "examples" / "relax_training.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole, half = (int(n.replace(",", "")) for n in re.findall(r"([\d,]+) bytes", done.stdout))
    assert half <= whole // 2 + OBJECTS_BYTES
    assert "the same bits as TVM alone, and PyTorch's numbers" in done.stdout


def test_an_interrupted_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """TVM, which is between the search and the user, hands on what kind of error it was."""
    from poetc.schedule.model.errors import SolverInterrupted
    from poetc.tvm import schedule

    def interrupted(*_: object) -> None:
        raise SolverInterrupted(None)

    monkeypatch.setattr(schedule, "schedule_and_plan", interrupted)
    with pytest.raises(KeyboardInterrupt):
        PoetSchedule("1KB", functions=["main"])(Returns)


def test_a_search_that_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from poetc.diagnosis import Diagnosis, Reason
    from poetc.tvm import schedule

    def too_big(*_: object) -> None:
        raise TimeLimitError(Diagnosis(Reason.ARENA, excess_bytes=9))

    monkeypatch.setattr(schedule, "schedule_and_plan", too_big)
    message = "Relax function @main: the smallest arena found takes 9 B more"
    with pytest.raises(TimeLimitError, match=message):
        PoetSchedule("1KB", functions=["main"])(Returns)
