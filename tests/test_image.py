"""The storage image: layout, packing, unpacking, and everything that can be wrong with it."""

from __future__ import annotations

import io
import json
import os
import struct
import tracemalloc
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from storage_step import storage_module
from xdsl.dialects.builtin import IntegerAttr, i64

from poetc.backends.c.emit import generate
from poetc.cli import main
from poetc.errors import InputError
from poetc.image import (
    ImageLayout,
    ImageTensor,
    State,
    layout_of,
    layout_text,
    newest_state,
    pack,
    read_record,
    record_of,
    unpack,
)
from poetc.image_files import pack_file, read_layout
from poetc.ir.graph import graphs
from poetc.ir.text import parse_module

LAYOUT = ImageLayout(
    (
        ImageTensor("scale", 0, "float32", (), 128, False),
        ImageTensor("mask", 4, "bool", (3,), 136, False),
        ImageTensor("weights", 2, "float32", (2, 3), 192, True),
        ImageTensor("count", 3, "int32", (1,), 220, True),
    ),
    unit_bytes=64,
    bank_bytes=64,
    storage_bytes=400,
)
ARRAYS = [
    np.array(0.5, np.float32),
    np.array([True, False, True]),
    np.arange(6, dtype=np.float32).reshape(2, 3),
    np.array([7], np.int32),
]

NAMED = {f"arg{t.argument}": a for t, a in zip(LAYOUT.tensors, ARRAYS, strict=True)}


def bits(arrays: list[np.ndarray]) -> list[tuple[bytes, object, tuple[int, ...]]]:
    return [(a.tobytes(), a.dtype, a.shape) for a in arrays]


# Bytes


@pytest.mark.parametrize("sequence", [0, 1, 2**32 - 1])
def test_what_is_where(sequence: int) -> None:
    """Byte for byte, as docs/storage.md says."""
    image = pack(LAYOUT, ARRAYS, sequence)
    assert len(image) == 400
    values = ARRAYS[2].tobytes() + ARRAYS[3].tobytes()
    tag = zlib.crc32(struct.pack("<3I", LAYOUT.identity, sequence, 0) + values)
    fields = struct.pack("<3I", LAYOUT.identity, sequence, tag)
    record = fields + struct.pack("<I", zlib.crc32(fields))
    slot = sequence & 1
    assert image[64 * slot :][:16] == record and image[64 * (1 - slot) :][:64] == bytes(64)
    half = struct.pack("<f", 0.5)
    assert image[128:136] == half + struct.pack("<I", zlib.crc32(half))
    assert image[136:143] == b"\1\0\1" + struct.pack("<I", zlib.crc32(b"\1\0\1"))
    weights = ARRAYS[2].tobytes()
    bank = 192 + 64 * slot
    assert image[bank : bank + 24] == weights
    assert image[bank + 24 :][:4] == struct.pack("<I", zlib.crc32(weights) ^ tag)
    assert image[256 - 64 * slot :][:64] == bytes(64)  # the other bank


@given(sequence=st.integers(0, 2**32 - 1))
def test_round_trip(sequence: int) -> None:
    found, arrays = unpack(LAYOUT, pack(LAYOUT, ARRAYS, sequence))
    assert found == sequence and bits(arrays) == bits(ARRAYS)


def test_all_bits_survive() -> None:
    """NaNs with payloads, infinities, negative zeros, denormals."""
    patterns = np.array([0x7FC12345, 0xFF800001, 0x7F800000, 0x80000000, 1, 0], np.uint32)
    weights = patterns.view(np.float32).reshape(2, 3)
    _, arrays = unpack(LAYOUT, pack(LAYOUT, [*ARRAYS[:2], weights, ARRAYS[3]]))
    assert arrays[2].tobytes() == patterns.tobytes()


def test_big_endian_and_strided_arrays() -> None:
    weights = np.asfortranarray(ARRAYS[2].astype(">f4"))
    with pytest.raises(InputError, match="parameter weights is float32 2x3, not >f4 2x3"):
        pack(LAYOUT, [*ARRAYS[:2], weights, ARRAYS[3]])
    strided = np.asfortranarray(ARRAYS[2])
    assert pack(LAYOUT, [*ARRAYS[:2], strided, ARRAYS[3]]) == pack(LAYOUT, ARRAYS)


def both(older: int, newer: int) -> bytes:
    """An image with two states; the values of the newer one are greater by 1."""
    first = pack(LAYOUT, ARRAYS, older)
    new = [*ARRAYS[:2], ARRAYS[2] + np.float32(1), ARRAYS[3] + np.int32(1)]
    second = pack(LAYOUT, new, newer)
    # Zeros where the other has its record and its bank; constants are in both.
    return bytes(a | b for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("older", "newer"), [(0, 1), (1, 2), (2**31 - 1, 2**31), (2**32 - 1, 0), (2**32 - 2, 2**32 - 1)]
)
def test_the_newer_of_two_states(older: int, newer: int) -> None:
    image = bytearray(both(older, newer))
    sequence, arrays = unpack(LAYOUT, image)
    assert sequence == newer and arrays[3][0] == 8
    image[64 * (newer & 1) + 9] ^= 1  # its record is torn
    sequence, arrays = unpack(LAYOUT, image)
    assert sequence == older and arrays[3][0] == 7


def test_longer_and_shorter_images() -> None:
    image = pack(LAYOUT, ARRAYS)
    assert LAYOUT.parameters_end == 292 and LAYOUT.pages_start == 320
    for good in (image + b"\xff" * 100, image[:292]):
        assert bits(unpack(LAYOUT, good)[1]) == bits(ARRAYS)
    with pytest.raises(InputError, match="the image has 291 bytes, its parameters take 292"):
        unpack(LAYOUT, image[:291])


@pytest.mark.parametrize(
    "position", [*range(16), *range(192, 220), *range(220, 228), *range(128, 143)]
)
def test_any_damage_is_found(position: int) -> None:
    image = bytearray(pack(LAYOUT, ARRAYS))
    image[position] ^= 0x40
    with pytest.raises(InputError) as error:
        unpack(LAYOUT, image)
    message = error.value.message
    assert "no valid record" in message if position < 16 else "is damaged" in message


def test_an_image_of_format_1() -> None:
    """In which records have no tags: that it is older, not that it is damaged."""
    image = bytearray(pack(LAYOUT, ARRAYS))
    fields = struct.pack("<3I", 0x50545243, LAYOUT.identity, 0)
    image[:16] = fields + struct.pack("<I", zlib.crc32(fields))
    with pytest.raises(InputError, match="is of format 1, and this poetc reads format 2: unpack"):
        unpack(LAYOUT, image)


def test_images_with_other_values_have_other_tags() -> None:
    """So that an image which is half written over another is no mixture."""
    new = pack(LAYOUT, [*ARRAYS[:2], ARRAYS[2] + np.float32(1), ARRAYS[3]])
    mixed = new[:192] + pack(LAYOUT, ARRAYS)[192:]
    with pytest.raises(InputError, match="parameter weights is damaged"):
        unpack(LAYOUT, mixed)


def test_other_layouts() -> None:
    image = pack(LAYOUT, ARRAYS)
    other = replace(LAYOUT, bank_bytes=128, storage_bytes=500)
    with pytest.raises(InputError, match="another layout") as error:
        unpack(other, image + bytes(100))
    assert f"{LAYOUT.identity:08x}, not {other.identity:08x}" in error.value.message
    for blank in (bytes(400), b"\xff" * 400):
        with pytest.raises(InputError, match="no valid record"):
            unpack(LAYOUT, blank)


def test_identity() -> None:
    """It differs with all that matters, and does not with the pages of the step."""
    first, *rest = LAYOUT.tensors
    changed = [
        replace(first, name="other"),
        replace(first, argument=9),
        replace(first, dtype="int32"),
        replace(first, shape=(1,)),
    ]
    layouts = [replace(LAYOUT, tensors=(t, *rest)) for t in changed]
    layouts += [LAYOUT, replace(LAYOUT, bank_bytes=128, storage_bytes=500)]
    assert len({layout.identity for layout in layouts}) == len(layouts)
    assert replace(LAYOUT, storage_bytes=9999).identity == LAYOUT.identity


# Blocks

BLOCKED = ImageLayout(
    (
        ImageTensor("c", 0, "float32", (35,), 32, False, block_bytes=64),
        ImageTensor("w", 1, "float32", (16,), 192, True, block_bytes=64),
    ),
    unit_bytes=16,
    bank_bytes=80,
    storage_bytes=352,
)
"""15 values and a CRC a block: 35 values in three blocks, 16 in two."""


def test_pages_in_blocks() -> None:
    """Each with its own CRC, where docs/streaming.md has it; damage in any of them is found."""
    values = [np.arange(n, dtype=np.float32) + 1 for n in (35, 16)]
    image = pack(BLOCKED, values)
    place = 32
    for begin in (0, 15, 30):
        block = values[0][begin : begin + 15].tobytes()
        assert image[place : place + len(block)] == block
        place += len(block) + 4
    assert place == BLOCKED.tensors[0].end == 32 + 35 * 4 + 3 * 4
    assert BLOCKED.tensors[1].end == 192 + 16 * 4 + 2 * 4
    assert bits(unpack(BLOCKED, image)[1]) == bits(values)
    for at in (32, 32 + 64, 32 + 128):
        damaged = bytearray(image)
        damaged[at] ^= 1
        with pytest.raises(InputError, match="parameter c is damaged"):
            unpack(BLOCKED, damaged)


def test_blocks_are_part_of_the_layout() -> None:
    assert ImageLayout.from_json(json.loads(layout_text(BLOCKED, ""))) == BLOCKED
    for block in (60, 66, -64):
        wrong = [replace(t, block_bytes=block) for t in BLOCKED.tensors]
        with pytest.raises(InputError, match=f"parameter c in blocks of {block} bytes"):
            replace(BLOCKED, tensors=tuple(wrong))
    data = BLOCKED.to_json()
    data["tensors"][0]["block_bytes"] = "64"
    with pytest.raises(InputError, match="with '64' in place of int"):
        ImageLayout.from_json(data)


# Limits


def test_limits_that_are_met_exactly() -> None:
    """Constants end where bank 0 begins, bank 0 where bank 1 does, bank 1 where the image does."""
    full = ImageLayout(
        (
            ImageTensor("c", 0, "float32", (7,), 32, False),
            ImageTensor("w", 1, "float32", (7,), 64, True),
        ),
        unit_bytes=16,
        bank_bytes=32,
        storage_bytes=128,
    )
    assert full.parameters_end == 128 and full.tensors[0].end == 64
    for changes, message in (
        ({"storage_bytes": 127}, "parameters reach beyond the end"),
        ({"storage_bytes": 0}, "it cannot have 0 bytes"),
        ({"bank_bytes": 16}, "bank 0 reaches into bank 1"),
        ({"bank_bytes": -32}, "a bank of -32 bytes is not whole write units"),
        ({"bank_bytes": 40}, "a bank of 40 bytes is not whole write units"),
    ):
        with pytest.raises(InputError, match=message):
            replace(full, **changes)
    for place, changes, message in (
        (0, {"offset": 28}, "parameter c at 28 overlaps what ends at 32"),
        (0, {"offset": 34}, "parameter c at 34 is not aligned"),
        (0, {"shape": (8,)}, "constants reach into the write units of bank 0"),
        (0, {"argument": -1}, "an argument with a negative index"),
        (0, {"argument": 1}, "an argument has two places"),
        (0, {"shape": (-7,)}, "parameter c has a negative extent"),
        (0, {"dtype": "float64"}, "parameter c of float64"),
    ):
        tensors = list(full.tensors)
        tensors[place] = replace(tensors[place], **changes)
        with pytest.raises(InputError, match=message):
            replace(full, tensors=tuple(tensors))


def test_bank_0_may_be_the_first() -> None:
    """Right behind the records; where it begins in the middle of a unit, that is all its own."""
    first = ImageTensor("w", 1, "float32", (7,), 32, True)
    assert ImageLayout((first,), 16, 32, 96).parameters_end == 96
    constant = ImageTensor("c", 0, "float32", (1,), 32, False)
    for place, fits in ((48, True), (52, True), (44, False)):
        tensors = (constant, replace(first, offset=place, shape=(1,)))
        if fits:
            assert ImageLayout(tensors, 16, 32, 96).tensors == tensors
        else:
            with pytest.raises(InputError, match="constants reach into the write units of bank 0"):
                ImageLayout(tensors, 16, 32, 96)


def test_records() -> None:
    """In the slot of its sequence only; the newer one is less than half of all numbers ahead."""
    record = record_of(LAYOUT.identity, State(6, 1))
    assert read_record(record, 0) == (LAYOUT.identity, State(6, 1))
    assert read_record(record, 1) is None
    for older, newer in ((5, 70), (2**32 - 1, 63), (2**31, 2**32 - 1)):
        states = [State(older, 1), State(newer, 2)]
        assert newest_state(states) == newest_state(states[::-1]) == states[1]
    assert newest_state([]) is None


# Arrays


def test_names_of_arrays() -> None:
    named = {"scale": ARRAYS[0], "arg4": ARRAYS[1], "weights": ARRAYS[2], "arg3": ARRAYS[3]}
    others = {"arg1": np.zeros(2), "out0": np.zeros(1)}
    assert pack(LAYOUT, named | others) == pack(LAYOUT, ARRAYS)
    with pytest.raises(InputError, match="no array arg2 or weights for parameter weights"):
        pack(LAYOUT, {k: v for k, v in named.items() if k != "weights"})
    with pytest.raises(InputError, match="4 parameters are needed, not 3"):
        pack(LAYOUT, ARRAYS[:3])


def test_a_name_that_is_the_number_of_another_argument() -> None:
    tensor = ImageTensor("arg1", 0, "float32", (), 128, False)
    layout = ImageLayout((tensor,), 64, 0, 192)
    with pytest.raises(InputError, match="no array arg0 for parameter arg1"):
        pack(layout, {"arg1": ARRAYS[0]})


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((3, 2), np.float32), "is float32 2x3, not float32 3x2"),
        (np.zeros(6, np.float32), "is float32 2x3, not float32 6"),
        (np.zeros((2, 3), np.float64), "is float32 2x3, not float64 2x3"),
        (np.float32(0), "is float32 2x3, not float32 scalar"),
    ],
)
def test_wrong_arrays(array: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=f"parameter weights {message}"):
        pack(LAYOUT, [*ARRAYS[:2], array, ARRAYS[3]])


# Layouts


def test_layout_of_a_graph() -> None:
    layout = layout_of(graphs(storage_module())[0])
    assert layout is not None
    assert layout == ImageLayout(
        (
            ImageTensor("w", 1, "float32", (4,), 192, True),
            ImageTensor("c", 2, "float32", (4,), 128, False),
            ImageTensor("v", 3, "float32", (4,), 212, True),
        ),
        unit_bytes=64,
        bank_bytes=64,
        storage_bytes=340,
    )
    tiles = graphs(storage_module())[0]
    tiles.attributes["block_bytes"] = IntegerAttr(64, i64)
    in_blocks = layout_of(tiles)
    assert in_blocks is not None
    assert in_blocks.tensors == tuple(replace(t, block_bytes=64) for t in layout.tensors)
    text = "poet.graph @main() -> () attributes {arena_bytes = 0 : i64} { poet.return }"
    assert layout_of(graphs(parse_module(text))[0]) is None


def test_json() -> None:
    data = json.loads(json.dumps(LAYOUT.to_json()))
    assert ImageLayout.from_json(data) == LAYOUT
    text = generate(storage_module())["model_image.json"]
    assert ImageLayout.from_json(json.loads(text)) == layout_of(graphs(storage_module())[0])


def test_arrays_that_could_be_either() -> None:
    """A name that two parameters have, and two arrays for one parameter."""
    first, second = (ImageTensor("w", i, "float32", (1,), 32 + 8 * i, False) for i in (0, 1))
    layout = ImageLayout((first, second), 16, 0, 64)
    values = {name: np.array([i], np.float32) for i, name in enumerate(("arg0", "arg1", "w"))}
    with pytest.raises(InputError, match="2 parameters are named w; name arrays arg0, arg1"):
        pack(layout, {"w": values["w"]})
    with pytest.raises(InputError, match="arrays arg0 and w are both for parameter w"):
        pack(layout, values)
    del values["w"]
    assert pack(layout, values) == pack(layout, list(values.values()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "another"}, "not a description"),
        ({"layout_id": 1}, "not the one that its layout_id belongs to"),
        ({"unit_bytes": "64"}, "with '64' in place of int"),
        ({"unit_bytes": True}, "with True in place of int"),
        ({"unit_bytes": 12}, "a write unit cannot have 12 bytes"),
        ({"unit_bytes": 18}, "a write unit cannot have 18 bytes"),
        ({"tensors": [{}]}, "that lacks 'name'"),
        ({"tensors": 3}, "with 3 in place of list"),
        ({"storage_bytes": 100}, "parameters reach beyond the end"),
        ({"storage_bytes": 2**40}, "it cannot have"),
    ],
)
def test_json_that_is_wrong(change: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ImageLayout.from_json(LAYOUT.to_json() | change)


# The command line


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "model_image.json").write_text(json.dumps(LAYOUT.to_json()))
    (tmp_path / "in.npz").write_bytes(archive(NAMED))
    (tmp_path / "image.bin").write_bytes(pack(LAYOUT, ARRAYS, 5))
    return tmp_path


def fails(capsys: pytest.CaptureFixture[str], output: Path, *arguments: object) -> str:
    """The one line that the command prints; it exits with 2 and leaves the output alone."""
    output.write_text("as it was")
    before = sorted(output.parent.iterdir())
    assert main([*map(str, arguments), "-o", str(output)]) == 2
    assert output.read_text() == "as it was" and sorted(output.parent.iterdir()) == before
    error = capsys.readouterr().err
    assert error.startswith("poetc: error: ") and error.count("\n") == 1
    return error


def test_pack_and_unpack(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pack", str(place), str(place / "in.npz"), "-o", str(place / "new.bin")]) == 0
    assert "400 B, 4 parameters, 35 B" in capsys.readouterr().err
    assert (place / "new.bin").read_bytes() == pack(LAYOUT, ARRAYS)
    description = str(place / "model_image.json")
    command = ["unpack", description, str(place / "image.bin"), "-o", str(place / "out.npz")]
    assert main(command) == 0
    assert "sequence 5, 4 parameters" in capsys.readouterr().err
    with np.load(place / "out.npz") as found:
        assert bits([found[f"arg{t.argument}"] for t in LAYOUT.tensors]) == bits(ARRAYS)
        assert len(found) == 4
    assert main([*command, "-q"]) == 0 and not capsys.readouterr().err


def test_pack_errors(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "out.bin"
    cases: list[tuple[bytes, str]] = [
        (b"no archive", "is not an .npz file of arrays, or is damaged"),
        (b"", "is not an .npz file of arrays, or is damaged"),
        ((place / "in.npz").read_bytes()[:-30], "is not an .npz file of arrays, or is damaged"),
        (archive({}), "no array arg0 or scale"),
        (archive({"arg0": np.array([None])}), "is not an .npz file of arrays"),
        (archive(NAMED | {"arg4": np.zeros(2, bool)}), "is bool 3, not bool 2"),
    ]
    single = io.BytesIO()
    np.save(single, ARRAYS[2])
    cases.append((single.getvalue(), "is not an .npz file of arrays"))
    for content, message in cases:
        (place / "bad.npz").write_bytes(content)
        error = fails(capsys, out, "pack", place, place / "bad.npz")
        assert message in error and "bad.npz" in error
    assert "No such file" in fails(capsys, out, "pack", place, place / "none.npz")
    assert "Is a directory" in fails(capsys, out, "pack", place, place)


def archive(arrays: dict[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def test_damaged_data_in_an_archive(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray((place / "in.npz").read_bytes())
    at = data.index(ARRAYS[2].tobytes())
    data[at + 3] ^= 1
    (place / "bad.npz").write_bytes(data)
    assert "damaged" in fails(capsys, place / "out.bin", "pack", place, place / "bad.npz")


def test_unpack_errors(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "out.npz"
    image = bytearray((place / "image.bin").read_bytes())
    torn, flipped = image.copy(), image.copy()
    torn[70] ^= 1
    flipped[260] ^= 1
    cases = [
        (bytes(torn), "no valid record"),
        (bytes(flipped), "parameter weights is damaged"),
        (bytes(image[:100]), "the image has 100 bytes"),
        (b"", "the image has 0 bytes"),
        (pack(replace(LAYOUT, bank_bytes=128, storage_bytes=500), ARRAYS), "another layout"),
    ]
    for content, message in cases:
        (place / "bad.bin").write_bytes(content)
        error = fails(capsys, out, "unpack", place, place / "bad.bin")
        assert message in error and "bad.bin" in error
    assert "No such file" in fails(capsys, out, "unpack", place, place / "none.bin")


def test_description_errors(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, arrays = place / "out.bin", place / "in.npz"
    empty = place / "empty"
    empty.mkdir()
    error = fails(capsys, out, "pack", empty, arrays)
    assert "has no *_image.json and no *_tensors.json: it is not what --emit=c wrote" in error
    for content, message in (
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "not a description"),
        ("\udcff", "is not JSON"),
    ):
        (empty / "model_image.json").write_text(content, errors="surrogateescape")
        assert message in fails(capsys, out, "pack", empty, arrays)
    (place / "b_image.json").write_text("{}")
    assert "several: b_image.json, model_image.json" in fails(capsys, out, "pack", place, arrays)
    assert "No such file" in fails(capsys, out, "unpack", place / "none.json", arrays)


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("pack", "unpack"):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        capsys.readouterr()
        assert main([command, "out", "params.npz"]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1 and f"see poetc {command} --help" in error


def test_outputs_that_cannot_be_written(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for output in (place / "none" / "out.bin", place):
        assert main(["pack", str(place), str(place / "in.npz"), "-o", str(output)]) == 2
        assert "cannot write" in capsys.readouterr().err


def test_an_input_is_not_overwritten(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "link").symlink_to("model_image.json")
    for command, source, output in (
        ("pack", "in.npz", "in.npz"),
        ("pack", "in.npz", "model_image.json"),
        ("unpack", "image.bin", "link"),
        ("unpack", "image.bin", "image.bin"),
    ):
        before = (place / output).read_bytes()
        words = [command, str(place), str(place / source), "-o", str(place / output)]
        assert main(words) == 2
        error = capsys.readouterr().err
        assert "it is the same file as the input" in error and error.count("\n") == 1
        assert (place / output).read_bytes() == before


def test_only_the_image_is_read(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a dump that is longer than memory; other things than files may never end."""
    with (place / "image.bin").open("r+b") as dump:
        dump.truncate(1 << 40)
    words = ["unpack", str(place), str(place / "image.bin"), "-o", str(place / "out.npz"), "-q"]
    assert main(words) == 0
    os.mkfifo(place / "fifo")
    for source in ("/dev/zero", place / "fifo"):
        for command in ("pack", "unpack"):
            error = fails(capsys, place / "out.bin", command, place, source)
            assert error == f"poetc: error: cannot read {source}: not a regular file\n"


# Sizes that are not so


def npy(shape: tuple[int, ...], data: bytes, descr: str = "<f4") -> bytes:
    """An array whose header may say anything of what follows."""
    stream = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_2_0(stream, header)
    return stream.getvalue() + data


def npz(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return stream.getvalue()


ZEROS = bytes(64 << 20)
VALID = {f"{name}.npy": npy(a.shape, a.tobytes(), a.dtype.str) for name, a in NAMED.items()}


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"arg2.npy": npy((10**30,), b"")}, "arg2 of shape 10{30} has more than the 24 bytes"),
        ({"arg2.npy": npy((2**40, 0), b"")}, "parameter weights is float32 2x3"),
        ({"arg2.npy": npy((2**31, 2**31), b"")}, "more than the 24 bytes"),
        ({"arg2.npy": npy((2, 3), ZEROS)}, "arg2 has more than the 24 bytes"),
        ({"arg2.npy": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + ZEROS}, "arg2 has more than"),
        ({"arg2.npy": npy((2, 3), b"")}, "is not an .npz file of arrays, or is damaged"),
        ({"arg2.npy": npy((-(10**30),), b"")}, "is not an .npz file|parameter weights is"),
        ({"arg2.npy": npy((1,), ZEROS[:4], "<f4"), "other.npy": ZEROS}, "float32 2x3, not float32"),
    ],
)
def test_sizes_are_bounded_before_anything_is_read(
    members: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    """Of arrays that the model does not have, nothing is read."""
    arrays = tmp_path / "in.npz"
    arrays.write_bytes(npz({**VALID, **members}))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message) as info:
            pack_file(LAYOUT, str(arrays), str(tmp_path / "out.bin"))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert str(info.value).count("\n") == 0 and info.value.exit_code == 2
    assert not (tmp_path / "out.bin").exists()


def test_a_member_that_nobody_asks_for_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "in.npz").write_bytes(npz({**VALID, "other.npy": ZEROS}))
    tracemalloc.start()
    pack_file(LAYOUT, str(tmp_path / "in.npz"), str(tmp_path / "out.bin"))
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("shape", [[10**30], [2**32, 2**32], [2**63, 2], [10**30, 0]])
def test_shapes_of_a_layout_are_exact(shape: list[int], tmp_path: Path) -> None:
    data = LAYOUT.to_json()
    data["tensors"][2]["shape"] = shape
    file = tmp_path / "model_image.json"
    file.write_text(json.dumps(data))
    with pytest.raises(InputError) as info:
        read_layout(file)
    assert "\n" not in str(info.value)
