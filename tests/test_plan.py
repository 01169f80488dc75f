"""Plans: the same bits as the printed schedule, and refused if they would not give them."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import zlib
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from c_support import COMPILERS, SANITIZED, compile_c
from compiled import Model, build, prepare, run
from conftest import ALL, MODELS, more
from firmware import (
    QUICK,
    all_results,
    compile_board,
    defines,
    host_results,
    make_well,
    sections,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from outcomes import must_reach, reached
from plans import (
    CRC_BYTES,
    Outcome,
    Program,
    Status,
    build_program,
    mutations,
    plan_for,
    reordered,
    results_crc,
    sealed,
    with_pages,
)
from random_graphs import RandomGraph, random_graphs
from storage_step import C, V, W, X, expected, storage_module
from test_passes_schedule import DEVICES
from xdsl.dialects.builtin import ModuleOp

from poetc.backends.c.compiler import find_compiler
from poetc.backends.c.emit import emit
from poetc.backends.c.stack import measure_stack
from poetc.backends.plan.check import check
from poetc.backends.plan.codec import decode, encode
from poetc.backends.plan.plan import Plan, PlanError, Run, Wait
from poetc.backends.plan.source import PlanExecutor
from poetc.backends.plan.table import Table, table_of, tensor_count
from poetc.budget import Budget
from poetc.cli import main
from poetc.costmodel.device import Device
from poetc.errors import InputError, UnscheduledError
from poetc.image import layout_of
from poetc.ir.graph import graphs
from poetc.ir.text import module_text, parse_module
from poetc.passes.poet_lower_kernels import lower_kernels
from poetc.planning.plan import schedule_and_plan
from poetc.planning.problem import ScheduleOptions

pytestmark = pytest.mark.usefixtures("whole")

CASES = {
    ("gesture_mlp", "ram"): ({}, {"arena_bytes": 8400}, {"arena_bytes": 8700, "strategy": "poet"}),
    ("gesture_mlp", "storage"): ({}, {"arena_bytes": 6000, "strategy": "capuchin"}),
    ("kws_conv", "ram"): ({}, {"arena_bytes": 7400, "strategy": "capuchin"}),
    ("kws_conv", "storage"): ({}, {"arena_bytes": 4700}),
    ("lenet5", "ram"): (
        {},
        {"arena_bytes": 275_000},
        {"arena_bytes": 272_000, "strategy": "capuchin"},
    ),
    ("lenet5", "storage"): ({}, {"arena_bytes": 215_000, "strategy": "capuchin"}),
    ("resnet8", "ram"): (
        {},
        {"arena_bytes": 800_000},
        {"arena_bytes": 600_000, "strategy": "capuchin"},
    ),
    ("resnet8", "storage"): (
        {"arena_bytes": 400_000},
        {"arena_bytes": 256_000, "strategy": "capuchin"},
    ),
}
"""Model and place of parameters: what schedules are asked for. The first takes most RAM."""

SMALL = ("gesture_mlp", "kws_conv")
CHOSEN = [case for case in CASES if case[0] in SMALL or case == ("lenet5", "ram")]
RACES = ("-O1", "-fsanitize=thread", "-DPOETC_STORE_THREAD", "-pthread")
MUTATIONS = 3_000


@cache
def model(name: str) -> Model:
    return prepare(name)


@cache
def scheduled(name: str, params: str, number: int) -> ModuleOp:
    module = model(name).module.clone()
    asked = {"gap": 0.5, "params": params} | CASES[name, params][number]
    schedule_and_plan(graphs(module)[0], model(name).options(**asked))
    return module


@cache
def plans_of(name: str, params: str) -> tuple[list[Plan], Table]:
    """All plans of a case; they are for one table."""
    made = [plan_for(scheduled(name, params, k)) for k in range(len(CASES[name, params]))]
    assert len({table.identity for _, table in made}) == 1
    return [plan for plan, _ in made], made[0][1]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@cache
def unlimited(name: str, directory: Path) -> list[np.ndarray]:
    """Results of the printed schedule with everything in RAM."""
    module, _ = model(name).schedule(None)
    program = build(module, directory / f"{name}_code")
    return run(program, model(name).arguments, model(name).expected)


@cache
def program(name: str, params: str, directory: Path) -> Program:
    """A program made from the first schedule of a case: the others are sent to it as plans."""
    flags = () if name in SMALL else ("-O2",)
    target = directory / f"{name}_{params}"
    return build_program(scheduled(name, params, 0), target, model(name).arguments, *flags)


def right(name: str, params: str, directory: Path) -> int:
    module = scheduled(name, params, 0)
    return results_crc(module, model(name).arguments, unlimited(name, directory))


# The same bits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "params"), [*CHOSEN, *more(*(c for c in CASES if c not in CHOSEN))]
)
def test_one_program_runs_all_schedules(name: str, params: str, directory: Path) -> None:
    plans, table = plans_of(name, params)
    assert program(name, params, directory).table.identity == table.identity
    data = [encode(plan, table) for plan in plans]
    assert [decode(d, table) for d in data] == plans
    assert len({*data}) == len(data)
    outcomes = program(name, params, directory).run([*data, data[0]])
    good = Outcome(Status.OK, Status.OK, right(name, params, directory))
    assert outcomes == [good] * (len(data) + 1)


@pytest.mark.parametrize("params", more("ram", "storage"))
def test_plans_of_resnet8_have_at_most_1_kb(params: str) -> None:
    plans, table = plans_of("resnet8", params)
    assert max(len(encode(plan, table)) for plan in plans) <= 1024


@pytest.mark.slow
def test_what_the_schedules_are() -> None:
    """That budgets are tight enough: some plans recompute, and some page what no parameter is."""
    cases = CASES if ALL else CHOSEN
    for name in {name for name, _ in cases}:
        plans = [p for n, params in cases if n == name for p in plans_of(n, params)[0]]
        assert any(p.pages for p in plans)
        if name not in SMALL:
            runs = [[s.operation for s in p.steps if isinstance(s, Run)] for p in plans]
            assert any(len(operations) > len({*operations}) for operations in runs)


@pytest.mark.slow
def test_transfers_that_find_no_slot_wait(directory: Path) -> None:
    """A plan with more transfers under way than the program can have."""
    plans, table = plans_of("kws_conv", "storage")
    under_way = most = 0
    for step in plans[0].steps:
        under_way += 0 if isinstance(step, Run) else -1 if isinstance(step, Wait) else 1
        most = max(most, under_way)
    assert most > 1
    one = build_program(
        scheduled("kws_conv", "storage", 0),
        directory / "one_slot",
        model("kws_conv").arguments,
        "-O1",
        "-DPOETC_PLAN_TRANSFERS=1u",
    )
    good = Outcome(Status.OK, Status.OK, right("kws_conv", "storage", directory))
    assert one.run([encode(plan, table) for plan in plans]) == [good] * len(plans)


@pytest.mark.slow
def test_a_thread_moves_the_pages(directory: Path, tmp_path: Path) -> None:
    """Transfers that run beside the kernels; the thread sanitizer finds no race."""
    plans, table = plans_of("kws_conv", "storage")
    module = scheduled("kws_conv", "storage", 0)
    emit(module, tmp_path, executor=PlanExecutor())
    compile_c(tmp_path.glob("*.c"), tmp_path / "program", flags=RACES)
    program("kws_conv", "storage", directory)
    source = directory / "kws_conv_storage"
    crcs: list[int] = []
    for plan in plans:
        (tmp_path / "new.plan").write_bytes(encode(plan, table))
        (tmp_path / "pages.bin").write_bytes((source / "image.bin").read_bytes())
        words = [tmp_path / "program", source, "1", tmp_path / "pages.bin", tmp_path / "new.plan"]
        subprocess.run(words, check=True, capture_output=True)
        layout = layout_of(graphs(module)[0])
        assert layout is not None
        loss = zlib.crc32((source / "out0.bin").read_bytes())
        crcs.append(with_pages(loss, (tmp_path / "pages.bin").read_bytes(), layout))
    assert crcs == [right("kws_conv", "storage", directory)] * len(plans)


@pytest.mark.slow
def test_every_call_of_the_store_may_fail(directory: Path) -> None:
    for name, params in (("gesture_mlp", "storage"), ("kws_conv", "ram")):
        plans, table = plans_of(name, params)
        calls, unnoticed, wrong = program(name, params, directory).with_faults(
            encode(plans[-1], table)
        )
        transfers = sum(not isinstance(step, Run | Wait) for step in plans[-1].steps)
        assert calls >= 2 * transfers > 0
        assert (unnoticed, wrong) == (0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiles_strictly(compiler: str, directory: Path) -> None:
    arguments = [X, W, C, V]
    target = directory / f"strict_{compiler}"
    built = build_program(storage_module(), target, arguments, "-O2", compiler=compiler)
    plan, table = plan_for(storage_module())
    crc = results_crc(storage_module(), arguments, expected(1))
    assert built.run([encode(plan, table)]) == [Outcome(Status.OK, Status.OK, crc)]


# Damaged plans


def verdicts(data: list[bytes], table: Table) -> list[bool]:
    """Which plans Python would run."""
    accepted: list[bool] = []
    for item in data:
        try:
            decode(item, table)
        except PlanError:
            accepted.append(False)
        else:
            accepted.append(True)
    return accepted


def assert_agree(data: list[bytes], outcomes: list[Outcome], table: Table, crc: int) -> None:
    """C accepts what Python accepts, if there is room for it, and what is accepted is right."""
    for good, outcome in zip(verdicts(data, table), outcomes, strict=True):
        assert good == (outcome.loaded == Status.OK) or outcome.loaded == Status.TOO_LARGE
        assert outcome.loaded != Status.OK or (outcome.stepped, outcome.crc) == (Status.OK, crc)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "params"), [("gesture_mlp", "ram"), ("kws_conv", "storage")])
def test_damaged_plans(name: str, params: str, directory: Path) -> None:
    """Random damage, under the address and undefined-behaviour sanitizers: with the CRC left wrong;
    with CRC and length made right, so that the rest of the checks have to find it; and with steps
    changed one by one, so that more of it is nearly right."""
    plans, table = plans_of(name, params)
    data = [encode(plan, table) for plan in plans]
    crc = right(name, params, directory)
    spoiled = list(mutations(data, MUTATIONS, seed=1))
    outcomes = program(name, params, directory).run(spoiled)
    assert Counter(o.loaded for o in outcomes) == {Status.DAMAGED: MUTATIONS}
    resealed = [sealed(plan) for plan in spoiled]
    outcomes = program(name, params, directory).run(resealed)
    assert {o.loaded for o in outcomes} == {*Status}
    assert_agree(resealed, outcomes, table, crc)
    rng = random.Random(2)
    tried = (reordered(rng.choice(plans), table, rng) for _ in range(MUTATIONS))
    changed = [plan for plan in tried if plan is not None]
    outcomes = program(name, params, directory).run(changed)
    assert {o.loaded for o in outcomes} == {Status.OK, Status.INVALID}
    assert_agree(changed, outcomes, table, crc)


@pytest.mark.slow
@pytest.mark.more
def test_damaged_plans_of_a_large_model(directory: Path) -> None:
    plans, table = plans_of("resnet8", "storage")
    data = [encode(plan, table) for plan in plans]
    target = directory / "resnet8_sanitized"
    arguments = model("resnet8").arguments
    sanitized = build_program(scheduled("resnet8", "storage", 0), target, arguments)
    spoiled = list(mutations(data, MUTATIONS, seed=3))
    outcomes = sanitized.run(spoiled)
    assert Counter(o.loaded for o in outcomes) == {Status.DAMAGED: MUTATIONS}
    outcomes = sanitized.run(map(sealed, spoiled), most_steps=1)
    assert {Status.OK, Status.INVALID} < {o.loaded for o in outcomes}
    crc = right("resnet8", "storage", directory)
    assert [(o.stepped, o.crc) for o in outcomes if o.ran] == [(Status.OK, crc)]


@pytest.fixture(scope="module")
def by_hand(directory: Path) -> Program:
    """A step in which a new value of a parameter is paged in again."""
    return build_program(storage_module(), directory / "by_hand", [X, W, C, V])


def test_every_bit_of_a_plan(by_hand: Program) -> None:
    """All plans that differ in one or two bits near each other, and all that end too early."""
    plan, table = plan_for(storage_module())
    data = encode(plan, table)
    crc = results_crc(storage_module(), [X, W, C, V], expected(1))
    value, bits = int.from_bytes(data, "little"), 8 * (len(data) - CRC_BYTES)
    flips = [(1 << at) | second << at for at in range(bits) for second in (0, 2, 4, 1 << 7)]
    changed = [
        sealed((value ^ flip).to_bytes(len(data) + 2, "little")[: len(data)]) for flip in flips
    ]
    cut = [data[:n] for n in range(len(data))]
    resealed = [sealed(plan) for plan in cut]
    for plans in (changed, cut, resealed):
        assert_agree(plans, by_hand.run(plans), table, crc)
    assert {o.loaded for o in by_hand.run(cut)} == {Status.DAMAGED}


def test_what_is_refused_and_why(by_hand: Program) -> None:
    plan, table = plan_for(storage_module())
    data = encode(plan, table)
    other, other_table = plan_for(scheduled("gesture_mlp", "ram", 0))
    larger = replace(plan, arena_bytes=plan.arena_bytes + 4)
    more = replace(plan, storage_bytes=2**20)
    expect = {
        b"": Status.DAMAGED,
        b"\xff" * 4096: Status.DAMAGED,
        data[:-1]: Status.DAMAGED,
        data + b"anything": Status.OK,
        encode(other, other_table): Status.FOREIGN,
        encode(larger, table): Status.TOO_LARGE,
        encode(more, table): Status.TOO_LARGE,
        encode(replace(plan, steps=plan.steps[:-1]), table): Status.INVALID,
    }
    assert [o.loaded for o in by_hand.run(expect)] == list(expect.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s[1:], "the plan ends before|no transfer|is not in the arena"),
        (lambda s: [*s, Wait()], "no transfer to wait for"),
        (lambda s: [*s[:1], s[2], *s[3:]], "read before it has arrived|not in the arena"),
        (lambda s: s[:-1], "ends without result 0"),
        (lambda s: [replace(s[0], place=36), *s[1:]], "16 bytes at 36 are not within the arena"),
        (lambda s: [replace(s[0], page=99), *s[1:]], "there is no page 99"),
        (lambda s: [*s[:2], replace(s[2], places=(4,)), *s[3:]], "overlaps operand 0"),
    ],
)
def test_messages(change, message: str) -> None:
    plan, table = plan_for(storage_module())
    with pytest.raises(PlanError, match=message):
        check(replace(plan, steps=tuple(change(list(plan.steps)))), table)


DRIVER = """\
#include <stdio.h>
#include <string.h>
#include "model.h"
#include "store_memory.h"

static uint8_t pages[MODEL_STORAGE_BYTES];
static uint8_t plan[MODEL_PLAN_BYTES];
static poetc_memory_store memory;

int main(void)
{
    poetc_memory_store_init(&memory, pages, MODEL_STORAGE_BYTES);
    memcpy(plan, model_plan, MODEL_PLAN_BYTES);
    /* Its own plan runs from the start. */
    void *const before = model_argument(0);
    printf("%d ", (int)model_step(&memory.store));
    printf("%d ", (int)model_load_plan(plan, MODEL_PLAN_BYTES));
    /* Another plan is refused: this one stays. */
    uint8_t bad[MODEL_PLAN_BYTES];
    memcpy(bad, plan, MODEL_PLAN_BYTES);
    bad[MODEL_PLAN_BYTES - 6] ^= 1;
    printf("%d ", (int)model_load_plan(bad, MODEL_PLAN_BYTES));
    printf("%d ", model_argument(0) == before && before != NULL);
    memset(model_argument(7), 0, model_argument_bytes(7));
    printf("%d ", (int)model_step(&memory.store));
    /* It is damaged after it was loaded. */
    plan[MODEL_PLAN_BYTES - 6] ^= 1;
    printf("%d ", (int)model_step(&memory.store));
    printf("%d ", model_argument(0) == NULL);
    plan[MODEL_PLAN_BYTES - 6] ^= 1;
    printf("%d\\n", (int)model_step(&memory.store));
    return 0;
}
"""


@pytest.mark.slow
def test_a_plan_is_kept_until_another_is_accepted(tmp_path: Path) -> None:
    emit(scheduled("gesture_mlp", "ram", 1), tmp_path, executor=PlanExecutor())
    (tmp_path / "driver.c").write_text(DRIVER)
    sources = [p for p in tmp_path.glob("*.c") if p.name not in ("main.c", "store_thread.c")]
    driver = compile_c(sources, tmp_path / "driver", flags=(*SANITIZED, f"-I{tmp_path}"))
    printed = subprocess.run([driver], capture_output=True, text=True, check=True).stdout
    damaged = str(int(Status.DAMAGED))
    assert printed.split() == ["0", "0", damaged, "1", "0", damaged, "1", "0"]


# The table


@pytest.mark.slow
def test_a_table_does_not_depend_on_the_schedule() -> None:
    cases = CASES if ALL else CHOSEN
    for name, params in cases:
        _, table = plans_of(name, params)
        assert tensor_count(graphs(model(name).module)[0]) == len(table.tensor_bytes)
    identities = {key: plans_of(*key)[1].identity for key in cases}
    assert len({*identities.values()}) == len(cases)


def test_a_table_survives_text(tmp_path: Path) -> None:
    module = scheduled("gesture_mlp", "storage", 1)
    again = parse_module(module_text(module))
    assert table_of(graphs(again)[0]).table.identity == plan_for(module)[1].identity
    assert plan_for(again)[0] == plan_for(module)[0]


@pytest.mark.slow
@must_reach("both")
@settings(max_examples=30, deadline=None)
@given(random_graphs(9), st.floats(0, 1), DEVICES, st.booleans())
def test_random_schedules_have_plans(
    random: RandomGraph, share: float, device: Device | None, store: bool
) -> None:
    """At any budget: a plan that passes the check, for the table of the unlimited schedule."""
    module, graph = random.parse()
    for compute in reversed(graph.computes):
        # What makes nothing that is needed has no place in a plan.
        if not any(result.uses.get_length() for result in compute.results):
            compute.detach()
            compute.erase()
    operands = [(str(c.body), tuple(c.operands)) for c in graph.computes]
    assume(all(a != b for a, b in combinations(operands, 2)))
    lower_kernels(module)
    least, most = 0, 0
    store = store and device is not None and device.storage is not None
    tables: list[int] = []
    for part in (None, share):
        copy = module.clone()
        ram = None if part is None else round(least + part * (most - least))
        params = "storage" if store else "ram"
        asked = ScheduleOptions(budget=Budget(ram), device=device, time_limit_s=1, params=params)
        try:
            schedule_and_plan(graphs(copy)[0], asked)
        except UnscheduledError:
            continue
        except InputError as error:
            # Not every graph can have its parameters on storage.
            assert store, error
            return
        most = graphs(copy)[0].arena_bytes or 0
        least = most // 2
        plan, table = plan_for(copy)
        assert decode(encode(plan, table), table) == plan
        tables.append(table.identity)
    assert len({*tables}) == 1
    if len(tables) == 2:
        reached("both")


# The command line, and boards


GESTURE = str(MODELS / "gesture_mlp.mlir")


@pytest.mark.slow
def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """RAM is what was asked for, to the word: what this schedule does not need is for others."""
    out, plan = tmp_path / "out", tmp_path / "new.plan"
    ram = ["--ram=16KB", "--emit=c", "--executor=plan"]
    assert main([GESTURE, *ram, "-o", str(out), *QUICK]) == 0
    sizes = defines(out)
    assert sizes["MODEL_RAM_BYTES"] == 16 * 1024
    tensors = tensor_count(graphs(model("gesture_mlp").module)[0])
    assert sizes["MODEL_STATIC_BYTES"] == 32 + 16 + 4 * (tensors + tensors % 2)
    assert main([GESTURE, "--ram=9700", "--emit=plan", "-o", str(plan), *QUICK]) == 0
    make_well(out, flags="-O1 -fsanitize=address,undefined -fno-sanitize-recover=all")
    data = tmp_path / "data"
    data.mkdir()
    for i, array in enumerate(model("gesture_mlp").arguments):
        (data / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())

    def results(*words: str | Path) -> dict[str, bytes]:
        command = [out / "model_example", data, "3", *words]
        subprocess.run(command, check=True, capture_output=True)
        return {path.name: path.read_bytes() for path in data.glob("out*.bin")}

    # Pages go to a file or, if it has no name, to memory.
    assert results() == results(tmp_path / "pages.bin", plan) == results("", plan)
    plan.write_bytes(plan.read_bytes()[:-1])
    command = [out / "model_example", data, "3", tmp_path / "pages.bin", plan]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, "no plan, or a damaged one" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--emit=plan"], "--emit=plan needs -o FILE"),
        (["--emit=tvm", "--executor=plan", "-o", "x"], "--executor says what C is written"),
        (["--emit=plan", "--executor=code", "-o", "x"], "not --executor=code"),
        (["--emit=c", "--executor=plan", "--io=caller", "-o", "x"], "--io=arena"),
        (["--passes=poet-fuse", "--executor=plan"], "--executor cannot go with --passes"),
    ],
)
def test_options_that_are_refused(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([GESTURE, *options]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_measured_stack(tmp_path: Path) -> None:
    """The chain of calls goes through the table of kernels."""
    module = scheduled("gesture_mlp", "ram", 1)
    use = measure_stack(module, find_compiler(None), executor=PlanExecutor())
    assert {"model_step", "follow"} < {*use.chain}
    kernels = measure_stack(module, find_compiler(None))
    assert use.bytes > kernels.bytes


@pytest.mark.slow
def test_firmware_takes_another_schedule(tmp_path: Path) -> None:
    """One build for a Cortex-M0 with 32 KB: its own schedule, and a plan that is put into flash."""
    output = compile_board("gesture_mlp", tmp_path / "fw", "microbit", "--executor=plan")
    plan = tmp_path / "new.plan"
    words = [GESTURE, "--board=microbit", "--ram=9900", "--emit=plan", "-o", str(plan)]
    assert main([*words, *QUICK]) == 0
    wanted = host_results("gesture_mlp", 2, tmp_path)
    make_well(output)
    (elf,) = output.glob("build/*/model.elf")
    built = elf.read_bytes()
    for extra, status in ((), "no plan, or a damaged one"), ((f"PLAN={plan}",), "ok"):
        for path in (output / "data").glob("out*.bin"):
            path.unlink()
        printed = make_well(output, "run", "STEPS=2", *extra)
        assert f"plan in flash: {status}\n" in printed
        assert re.search(r"status: ok", printed)
        assert all_results(output) == wanted
    assert elf.read_bytes() == built
    assert sum(sections(output).values()) == defines(output)["MODEL_RAM_BYTES"] == 32 * 1024
    plan.write_bytes(struct.pack("<I", 7) * 9)
    printed = make_well(output, "run", "STEPS=2", f"PLAN={plan}")
    assert "plan in flash: no plan, or a damaged one" in printed
    assert all_results(output) == wanted
