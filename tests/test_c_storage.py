"""Parameters on storage in generated C: places, records, every failing transfer."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_support import SANITIZED, compile_c, macros
from conftest import more
from power import OK, Fault, Machine
from storage_step import BANK, STEP, UNIT, C, V, W, X, expected, storage_module
from test_c_runtime import (
    CORRUPT,
    NO_IMAGE,
    NO_STORE,
    READ_FAILED,
    SHORT_TRANSFER,
    TIMED_OUT,
    WRITE_FAILED,
)

from poetc.backends.c.emit import emit, generate
from poetc.backends.c.layout import DEFAULT_STACK_BYTES, static_ram_bytes
from poetc.backends.tvm.stores import FileStore, MemoryStore, PageError, Pager
from poetc.cli import main
from poetc.errors import InputError
from poetc.image import current_state, layout_of, pack, unpack
from poetc.ir.graph import graphs
from poetc.ir.text import parse_module
from poetc.lock import locked
from poetc.page import page_trailer
from poetc.passes.poet_verify import PoetVerifyPass
from poetc.passes.poet_verify.messages import VerificationError

PARAMETERS = [W, C, V]
PAGE = "!poet.page<tensor<4xf32>>"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    return Machine(storage_module(), tmp_path_factory.mktemp("storage") / "out", {0: X})


@pytest.fixture(scope="module")
def verifying(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """The same, compiled to read back what it writes."""
    directory = tmp_path_factory.mktemp("verifying") / "out"
    return Machine(storage_module(), directory, {0: X}, "-DPOETC_VERIFY_WRITES")


def test_the_step_is_legal() -> None:
    PoetVerifyPass().apply(None, storage_module())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("start", [0, 1, 2**32 - 2])
def test_steps(machine: Machine, start: int) -> None:
    """Results, parameters, and the sequence number, which wraps."""
    machine.power_on(pack(machine.layout, PARAMETERS, start))
    for step in range(1, 5):
        assert machine.step() == OK
        y, w, v = expected(step)
        assert machine.outputs() == [y.tobytes()]
        sequence, arrays = unpack(machine.layout, machine.image)
        assert sequence == (start + step) % 2**32
        assert [a.tobytes() for a in arrays] == [a.tobytes() for a in (w, C, v)]


@pytest.mark.slow
def test_what_the_verifier_accepts_runs(tmp_path: Path) -> None:
    """The pages of the step anywhere, in storage of any size: refused, or it runs."""
    roomy = STEP.replace("offset 320", "offset 512")
    roomy = roomy.replace("storage_bytes = 340", "storage_bytes = 552")
    roomy = roomy.replace("bank_bytes = 64", "bank_bytes = 128")
    moves = {
        "storage_bytes = 552": (-24, -20, -16, 4),
        "bank_bytes = 128": (-128, -64, 4, 32, 64),
        "pageout %h offset 512": (-128, -68, -64, -4, 2, 16, 20, 24),
        'poet.name = "c", poet.offset = 128': (-20, 4, 44, 48),
        # The old value, and the new one in the same place.
        "offset = 192 |offset 192 ": (-60, 4, 44, 64, 108),
    }
    ran = 0
    for what, distances in moves.items():
        for distance in distances:
            text = re.sub(what, lambda m, d=distance: _moved(m[0], d), roomy)
            assert text != roomy
            module = parse_module(text)
            try:
                PoetVerifyPass().apply(None, module)  # pyright: ignore[reportArgumentType]
            except VerificationError:
                continue
            ran += 1
            machine = Machine(module, tmp_path / f"{ran}", {0: X}, "-O0")
            image = machine.run(pack(machine.layout, PARAMETERS), 2)[-1]
            y, w, v = expected(2)
            assert machine.outputs() == [y.tobytes()], text
            assert machine.state(image) == (2, [a.tobytes() for a in (w, C, v)]), text
    assert 8 <= ran <= 16


def _moved(text: str, distance: int) -> str:
    return re.sub(r"\d+", lambda number: str(int(number[0]) + distance), text)


def test_pages_of_the_step_have_its_tag(machine: Machine) -> None:
    """So that what an earlier step left there is not read in the place of a write that was lost."""
    images = machine.run(pack(machine.layout, PARAMETERS, 7), 2)[1:]
    data = (X + C).tobytes()
    tags = [current_state(machine.layout, image).tag for image in images]
    assert len(set(tags)) == 2
    for tag, image in zip(tags, images, strict=True):
        assert image[320:340] == data + page_trailer(data, tag + 1)


def test_two_runners_on_one_store() -> None:
    """Each takes a step from the same state; the second finds out before it commits."""
    layout = layout_of(graphs(storage_module())[0])
    assert layout is not None
    store = MemoryStore(pack(layout, PARAMETERS))
    first, second = Pager(store), Pager(store)
    for pager in (first, second):
        pager.image_open(layout.identity, layout.unit_bytes, layout.bank_bytes, 1)
    first.image_commit()
    after = bytes(store.data)
    with pytest.raises(PageError, match="another program has done a step"):
        second.image_commit()
    assert bytes(store.data) == after


def test_old_values_are_untouched(machine: Machine) -> None:
    image = pack(machine.layout, PARAMETERS)
    before, after = machine.run(image, 1)
    old = slice(3 * UNIT, 3 * UNIT + BANK)
    assert before[old] == after[old] and before[:UNIT] == after[:UNIT]
    assert before[2 * UNIT : 3 * UNIT] == after[2 * UNIT : 3 * UNIT]  # constants


def test_header(machine: Machine) -> None:
    defines = macros(machine.directory / "model.h")
    assert defines["MODEL_LAYOUT_ID"] == f"0x{machine.layout.identity:08x}u"
    assert (defines["MODEL_STORAGE_UNIT"], defines["MODEL_BANK_BYTES"]) == ("64", "64")
    assert (defines["MODEL_ARG1_PAGE_OFFSET"], defines["MODEL_ARG1_BYTES"]) == ("192", "16")
    assert defines["MODEL_RESULT2_PAGE_OFFSET"] == "212"
    assert "MODEL_ARG1_OFFSET" not in defines and defines["MODEL_ARG0_OFFSET"] == "0"
    library = machine.library
    assert [bool(library.model_argument(i)) for i in range(4)] == [True, False, False, False]
    assert [bool(library.model_result(i)) for i in range(3)] == [True, False, False]
    assert [library.model_argument_is_parameter(i) & 1 for i in range(4)] == [0, 1, 1, 1]


def test_no_image(machine: Machine) -> None:
    assert machine.library.model_step(None) == NO_STORE
    machine.power_on(bytes(machine.layout.storage_bytes))
    assert machine.step() == NO_IMAGE
    other = bytearray(pack(machine.layout, PARAMETERS))
    other[4] ^= 1
    machine.power_on(bytes(other))
    assert machine.step() == NO_IMAGE


@pytest.mark.parametrize("tensor", ["w", "c", "v"])
def test_damaged_parameters(machine: Machine, tensor: str) -> None:
    image = bytearray(pack(machine.layout, PARAMETERS))
    offset = next(t.offset for t in machine.layout.tensors if t.name == tensor)
    image[offset + 5] ^= 4
    machine.power_on(bytes(image))
    assert machine.step() == CORRUPT
    with pytest.raises(InputError, match=f"parameter {tensor} is damaged"):
        unpack(machine.layout, machine.image)


def test_values_of_another_step_are_not_used(machine: Machine) -> None:
    """The newest record is lost after the next step began: what it wrote is not taken for old."""
    images = machine.run(pack(machine.layout, PARAMETERS), 2)
    for event in range(len(machine.events)):
        machine.power_on(images[2])
        machine.cut(event, torn=2**31)
        machine.step()
        image = bytearray(machine.image)
        image[:UNIT] = bytes(UNIT)  # record 0, of sequence 2
        machine.power_on(bytes(image))
        status = machine.step()
        written = bytes(image[3 * UNIT + BANK : 3 * UNIT + 2 * BANK])
        if written == images[2][3 * UNIT + BANK : 3 * UNIT + 2 * BANK]:
            assert status == OK  # a step back
        elif image[UNIT : UNIT + 16] == images[2][UNIT : UNIT + 16]:
            assert status == CORRUPT


EXPECTED = {
    Fault.ERROR: (READ_FAILED, WRITE_FAILED),
    Fault.LATE_ERROR: (READ_FAILED, WRITE_FAILED),
    Fault.SHORT: (SHORT_TRANSFER,),
    Fault.FLIP: (CORRUPT,),
    Fault.DEAD: (READ_FAILED, WRITE_FAILED),
    Fault.TIME_OUT: (TIMED_OUT,),
}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("start", [0, 1])
def test_every_transfer_fails(verifying: Machine, fault: Fault, start: int) -> None:
    """The status says so, the parameters are as before, and the step can be repeated."""
    images = verifying.run(pack(verifying.layout, PARAMETERS, start), 2)
    before, after = verifying.state(images[1]), verifying.state(images[2])
    verifying.power_on(images[1])
    assert verifying.step() == OK
    transfers = verifying.transfers
    failed = 0
    for transfer in range(transfers):
        verifying.power_on(images[1])
        verifying.fault(transfer, fault)
        status = verifying.step()
        state = verifying.state(verifying.image)
        if status == OK:
            # A record that was read once more, or a sync, which moves nothing.
            assert fault in (Fault.FLIP, Fault.SHORT) and state == after
            continue
        failed += 1
        assert status in EXPECTED[fault]
        if fault is Fault.DEAD and state == after:
            # It died when the record was written but not yet read back.
            assert transfer >= transfers - 2
            continue
        assert state == before
        if fault is not Fault.DEAD:
            assert verifying.step() == OK
            assert verifying.state(verifying.image) == after
    assert failed >= transfers - 7  # five reads of records, and two syncs


def test_bad_writes_are_found_when_they_are_read(machine: Machine) -> None:
    """Without verification: by the next step at the latest."""
    images = machine.run(pack(machine.layout, PARAMETERS), 1)
    before, after = machine.state(images[0]), machine.state(images[1])
    machine.power_on(images[0])
    machine.step()
    for transfer in range(machine.transfers):
        machine.power_on(images[0])
        machine.fault(transfer, Fault.FLIP)
        if machine.step() != OK:
            assert machine.state(machine.image) == before
            continue
        image = machine.image
        try:
            assert machine.state(image) == after
        except InputError as error:
            assert "is damaged" in error.message
            machine.power_on(image)
            assert machine.step() == CORRUPT


# Graphs that do not keep the image safe


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("storage_unit = 64", "storage_unit = 8", "a write unit cannot have 8 bytes"),
        (", storage_unit = 64 : i64", "", "has no storage_unit"),
        ("bank_bytes = 64 : i64, ", "", "has no bank_bytes"),
        ("bank_bytes = 64", "bank_bytes = 60", "not whole write units"),
        ("bank_bytes = 64", "bank_bytes = 0", "bank 0 reaches into bank 1"),
        ("storage_bytes = 340", "storage_bytes = 280", "reach beyond the end"),
        (', poet.name = "w", poet.offset = 192 : i64', "", "no place in storage"),
        ("%h offset 320", "%h offset 300", "within the parameters on storage, which end at 320"),
        ("%v1 offset 212", "%v1 offset 216", "begins a step at offset 212 of the storage but"),
        ("poet.offset = 128", "poet.offset = 64", "parameter c at 64 overlaps"),
        ("poet.offset = 128", "poet.offset = 180", "reach into the write units of bank 0"),
        ('"param", poet.name = "c"', '"input", poet.name = "c"', "input c is on storage"),
    ],
)
def test_graphs_that_are_not_safe(old: str, new: str, message: str) -> None:
    assert old in STEP
    with pytest.raises(InputError, match=message):
        generate(parse_module(STEP.replace(old, new)))


def test_a_parameter_that_is_returned_as_it_came(tmp_path: Path) -> None:
    """It is a constant: there is no new value of it."""
    kept = STEP.replace('"param", poet.name = "c"', '"param", poet.updates = 3 : i64')
    kept = kept.replace("!poet.page<tensor<4xf32>>)\nattributes", f"{PAGE}, {PAGE})\nattributes")
    kept = kept.replace("return %y, %w_new, %v_new", "return %y, %w_new, %v_new, %c")
    kept = kept.replace(
        f": tensor<4xf32>, {PAGE}, {PAGE}", f": tensor<4xf32>, {PAGE}, {PAGE}, {PAGE}"
    )
    machine = Machine(parse_module(kept), tmp_path / "out", {0: X})
    assert [t.updated for t in machine.layout.tensors] == [True, False, True]
    machine.power_on(pack(machine.layout, PARAMETERS))
    assert machine.step() == OK
    _, arrays = unpack(machine.layout, machine.image)
    assert [a.tobytes() for a in arrays] == [
        a.tobytes() for a in (expected(1)[1], C, expected(1)[2])
    ]
    assert macros(machine.directory / "model.h")["MODEL_RESULT3_PAGE_OFFSET"] == "128"


CONSTANT = """
poet.graph @main(
    %x: tensor<4xf32> {poet.role = "input", poet.offset = 0 : i64},
    %c: !poet.page<tensor<4xf32>> {poet.role = "param", poet.offset = 128 : i64}
) -> (tensor<4xf32>)
attributes {
  arena_bytes = 48 : i64, storage_bytes = 148 : i64, bank_bytes = 0 : i64, storage_unit = 64 : i64
} {
  %c0 = poet.pagein %c offset 16 : !poet.page<tensor<4xf32>> -> tensor<4xf32>
  %h = poet.compute "add" (%a = %x : tensor<4xf32>, %b = %c0 : tensor<4xf32>)
      -> tensor<4xf32> kernel @add offsets [32] {
    %s = stablehlo.add %a, %b : tensor<4xf32>
    poet.yield %s : tensor<4xf32>
  }
  poet.free %c0 : tensor<4xf32>
  poet.free %x : tensor<4xf32>
  poet.return %h : tensor<4xf32>
}
"""


def test_constants_only(tmp_path: Path) -> None:
    """Nothing is updated, nothing is written."""
    text = (
        CONSTANT
        + STEP[STEP.index("func.func private @add(") : STEP.index("func.func private @add_to")]
    )
    machine = Machine(parse_module(text), tmp_path / "out", {0: X})
    image = pack(machine.layout, [C], 3)
    machine.power_on(image)
    assert machine.step() == OK and machine.step() == OK
    assert machine.outputs() == [(X + C).tobytes()]
    assert machine.image == image and not machine.events


# All the way from the command line


def write_inputs(data: Path) -> None:
    data.mkdir(exist_ok=True)
    X.tofile(data / "arg0.bin")


def test_one_program_at_a_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What has an image open, in C or Python, keeps others from it, and loses no step to them."""
    out, image, data = tmp_path / "out", tmp_path / "image.bin", tmp_path / "data"
    emit(storage_module(), out)
    program = compile_c(out.glob("*.c"), tmp_path / "example")
    np.savez(tmp_path / "in.npz", arg1=W, c=C, arg3=V)
    packing = ["pack", str(out), str(tmp_path / "in.npz"), "-o", str(image)]
    unpacking = ["unpack", str(out), str(image), "-o", str(tmp_path / "out.npz")]
    assert main(packing) == 0
    write_inputs(data)
    before = image.read_bytes()
    capfd.readouterr()
    with locked(image):
        run = subprocess.run([program, data, "1", image], capture_output=True, text=True)
        assert run.returncode == 1
        assert run.stderr == f"{image}: another program uses the page store\n"
        for command in (packing, unpacking):
            assert main(command) == 2
            assert f"{image} is in use by another program" in capfd.readouterr().err
        with pytest.raises(InputError, match="in use by another program"):
            FileStore(image)
    assert image.read_bytes() == before and not (tmp_path / "out.npz").exists()
    store = FileStore(image)
    run = subprocess.run([program, data, "1", image], capture_output=True, text=True)
    assert run.returncode == 1 and "another program" in run.stderr
    store.close()
    with locked(image, shared=True):  # two may read
        assert main(unpacking) == 0
    subprocess.run([program, data, "1", image], check=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "compiler"),
    [(("-O2",), "clang"), (SANITIZED, "gcc"), *more((("-O2",), "gcc"), (SANITIZED, "clang"))],
)
def test_example(
    compiler: str,
    flags: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, image, data = tmp_path / "out", tmp_path / "image.bin", tmp_path / "data"
    emit(storage_module(), out)
    program = compile_c(out.glob("*.c"), tmp_path / "example", compiler, flags)
    np.savez(tmp_path / "in.npz", arg1=W, c=C, arg3=V, arg0=X, out0=X)
    assert main(["pack", str(out), str(tmp_path / "in.npz"), "-o", str(image)]) == 0
    write_inputs(data)
    for steps, total in ((1, 1), (3, 4)):
        done = subprocess.run(
            [program, data, str(steps), image], capture_output=True, text=True, check=True
        )
        assert "status: ok" in done.stdout
        y, w, v = expected(total)
        assert (data / "out0.bin").read_bytes() == y.tobytes()
        assert not (data / "out1.bin").exists()
        result = tmp_path / "out.npz"
        assert main(["unpack", str(out), str(image), "-o", str(result)]) == 0
        assert f"sequence {total}" in capsys.readouterr().err
        with np.load(result) as arrays:
            assert sorted(arrays) == ["arg1", "arg2", "arg3"]
            got = [arrays[name].tobytes() for name in sorted(arrays)]
        assert got == [w.tobytes(), C.tobytes(), v.tobytes()]
    # What was unpacked can be packed.
    assert main(["pack", "-q", str(out), str(result), "-o", str(image)]) == 0  # pyright: ignore
    run = subprocess.run([program, data], capture_output=True, text=True)
    assert run.returncode == 1 and "STORE_FILE is needed" in run.stderr
    image.write_bytes(bytes(400))
    run = subprocess.run([program, data, "1", image], capture_output=True, text=True)
    assert run.returncode == 1 and "holds no parameters of this model" in run.stderr
    missing = tmp_path / "missing.bin"
    run = subprocess.run([program, data, "1", missing], capture_output=True, text=True)
    assert run.returncode == 1 and "missing.bin" in run.stderr and not missing.exists()


def test_makefile_and_files(tmp_path: Path) -> None:
    out = tmp_path / "out"
    emit(storage_module(), out, name="tiny")
    description = json.loads((out / "tiny_image.json").read_text())
    assert description["_"].startswith("Generated by poetc.")
    subprocess.run(["make", "-s", "-C", out, "CC=gcc"], check=True)
    write_inputs(tmp_path / "data")
    np.savez(tmp_path / "in.npz", w=W, c=C, v=V)
    where = [str(out / "tiny_image.json"), str(tmp_path / "in.npz")]
    assert main(["pack", "-q", *where, "-o", str(tmp_path / "image.bin")]) == 0
    command = [out / "tiny_example", tmp_path / "data", "1", tmp_path / "image.bin"]
    subprocess.run(command, check=True, capture_output=True)
    # A program without parameters on storage leaves no description of an image behind.
    from test_c_emit import step_module

    emit(step_module(), out)
    assert not list(out.glob("*_image.json")) and not (out / "tiny.c").exists()
    assert "IMAGE" not in (out / "Makefile").read_text()


@pytest.mark.parametrize("optimization", ["-O2", "-Os"])
def test_ram_is_what_the_header_says(optimization: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    emit(storage_module(), out)
    static_bytes = 0
    frames: dict[str, int] = {}
    for name in ("model", "model_kernels", "poetc_store", "poetc_image"):
        flags = (optimization, "-c", "-fno-inline", "-fstack-usage")
        path = compile_c([out / f"{name}.c"], tmp_path / f"{name}.o", flags=flags)
        size = subprocess.run(["size", path], capture_output=True, text=True, check=True)
        static_bytes += sum(map(int, size.stdout.splitlines()[1].split()[1:3]))
        for line in (tmp_path / f"{name}.su").read_text().splitlines():
            where, frame, kind = line.split("\t")
            assert kind in ("static", "dynamic,bounded")
            frames[where.rsplit(":", 1)[1]] = int(frame)
    assert static_bytes == static_ram_bytes(graphs(storage_module())[0]) == 48
    commit = ("poetc_image_commit", "write_record", "read_record", "read_once", "poetc_read")
    page = ("poetc_parameter_out", "poetc_page_out_tagged", "poetc_write")
    for chain in (commit, page):
        depth = sum(frames[name] for name in chain)
        assert frames["model_step"] + depth + 64 <= DEFAULT_STACK_BYTES


def test_the_image_needs_little() -> None:
    files = generate(storage_module())
    text = files["poetc_image.c"] + files["poetc_image.h"]
    assert not re.search(r"64_t|long|malloc|memcpy|double", text)
    included = set(re.findall(r"#include [<\"](.*)[>\"]", text))
    assert included == {"poetc_version.h", "poetc_image.h", "poetc_store.h"}
