"""Parameters in RAM are saved and loaded, packed and unpacked, and may be a table in flash."""

from __future__ import annotations

import re
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest
from c_support import STRICT, compile_c
from conftest import MODELS, load_arrays

from poetc.cli import main
from poetc.errors import InputError
from poetc.saved import load, saved_layout
from poetc.tensors import read_tensors

pytestmark = pytest.mark.usefixtures("whole")

TESTS = Path(__file__).parent
GESTURE, ARRAYS = MODELS / "gesture_mlp.mlir", MODELS / "gesture_mlp.npz"
PARAMETERS = range(6)
"""The arguments that are: three layers of a bias and a matrix."""


def generate(folder: Path, *options: str) -> Path:
    words = [str(GESTURE), "--emit=c", "-q", "--time-limit=5", "-o", str(folder)]
    assert main([*words, *options]) == 0
    return folder


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The driver, with the first parameters as a table in a section for constants."""
    folder = generate(tmp_path_factory.mktemp("saved") / "out", "--ram=9600")
    words = ["pack", str(folder), str(ARRAYS), "-q"]
    assert main([*words, "--to=c", "-o", str(folder / "model_parameters.c")]) == 0
    assert main([*words, "-o", str(folder / "packed.bin")]) == 0
    for i, array in enumerate(load_arrays(ARRAYS)[0]):
        (folder / f"arg{i}.bin").write_bytes(np.ascontiguousarray(array).tobytes())
    names = ("model", "model_kernels", "model_save", "model_parameters")
    runtime = ("poetc_store", "poetc_image", "poetc_math", "store_memory", "store_file")
    sources = [folder / f"{name}.c" for name in (*names, *runtime)]
    flags = ("-O1", "-fsanitize=address,undefined", f"-I{folder}")
    compile_c([*sources, TESTS / "save_driver.c"], folder / "driver", flags=flags)
    return folder


def run(program: Path, *words: str | Path | int) -> str:
    command = [program / "driver", program, *map(str, words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_training_goes_on(program: Path, tmp_path: Path) -> None:
    """Five steps, a saving and five steps more give the bits of ten; so do those that begin with
    what was packed, and with the table."""
    run(program, "train", "-", 10, tmp_path / "ten")
    run(program, "train", "-", 5, tmp_path / "five")
    run(program, "train", tmp_path / "five", 5, tmp_path / "again")
    run(program, "train", program / "packed.bin", 10, tmp_path / "packed")
    run(program, "table", 10, tmp_path / "table")
    ten = (tmp_path / "ten").read_bytes()
    assert (tmp_path / "five").read_bytes() != ten
    for name in ("again", "packed", "table"):
        assert (tmp_path / name).read_bytes() == ten


@pytest.mark.slow
def test_what_was_saved_is_unpacked(program: Path, tmp_path: Path) -> None:
    """One step of XLA, and what was given where no step was done; bytes as they are described."""
    arguments, expected = load_arrays(ARRAYS)
    for steps, values in ((0, [arguments[i] for i in PARAMETERS]), (1, expected[1:])):
        run(program, "train", "-", steps, tmp_path / "saved")
        unpacked = str(tmp_path / "unpacked.npz")
        assert main(["unpack", "-q", str(program), str(tmp_path / "saved"), "-o", unpacked]) == 0
        with np.load(unpacked) as arrays:
            assert sorted(arrays) == [f"arg{i}" for i in PARAMETERS]
            for i, value in zip(PARAMETERS, values, strict=True):
                np.testing.assert_allclose(arrays[f"arg{i}"], value, rtol=3e-5 * steps, atol=1e-6)
    data = (program / "packed.bin").read_bytes()
    identity, tag, crc = struct.unpack_from("<3I", data)
    assert crc == zlib.crc32(data[:8])
    assert f"0x{identity:08x}u" in (program / "model.h").read_text()
    at = 12
    for i in PARAMETERS:
        value = np.ascontiguousarray(arguments[i]).tobytes()
        assert data[at : at + len(value)] == value
        assert struct.unpack_from("<I", data, at + len(value))[0] == zlib.crc32(value) ^ tag
        at += len(value) + 4
    assert at == len(data)


def test_what_is_refused(program: Path, tmp_path: Path) -> None:
    """Another layout changes nothing; damage anywhere is found, and a saving of two halves."""
    good = (program / "packed.bin").read_bytes()
    run(program, "train", "-", 1, tmp_path / "other")
    other = (tmp_path / "other").read_bytes()
    layout = saved_layout(read_tensors(program))
    assert layout is not None and layout.bytes == len(good)

    def said(data: bytes) -> str:
        (tmp_path / "data").write_bytes(data)
        return run(program, "load", tmp_path / "data").strip()

    none = (
        "the page store holds no parameters of this model, format 2 (poetc pack makes them), "
        "untouched"
    )
    assert said(good) == "ok, changed"
    assert said(bytes(len(good))) == said(b"\xff" * len(good)) == none
    foreign = struct.pack("<2I", layout.identity ^ 1, 0)
    assert said(foreign + struct.pack("<I", zlib.crc32(foreign)) + good[12:]) == none
    with pytest.raises(InputError, match="another layout"):
        load(layout, foreign + struct.pack("<I", zlib.crc32(foreign)) + good[12:])
    for place in (0, 5, 11, 12, len(good) // 2, len(good) - 1):
        damaged = bytearray(good)
        damaged[place] ^= 0x10
        assert said(bytes(damaged)) == (none if place < 12 else "a page is corrupt, changed")
        with pytest.raises(InputError, match="damaged"):
            load(layout, bytes(damaged))
    for cut in (12, 144, len(good) - 4):
        assert said(other[:cut] + good[cut:]).startswith("a page is corrupt")
    with pytest.raises(InputError, match="bytes"):
        load(layout, good[:-1])


@pytest.mark.slow
def test_the_identity(program: Path, tmp_path: Path) -> None:
    """Another budget reads the same bytes; another model does not."""
    layouts = [saved_layout(read_tensors(program))]
    layouts.append(saved_layout(read_tensors(generate(tmp_path / "more", "--ram=20KB"))))
    layouts.append(saved_layout(read_tensors(generate(tmp_path / "plan", "--executor=plan"))))
    assert layouts[0] == layouts[1] == layouts[2] is not None
    text = (program / "model_parameters.c").read_text()
    (tmp_path / "plan" / "table.c").write_text(text)
    command = ["gcc", *STRICT, "-c", "table.c", "model_save.c"]
    subprocess.run(command, cwd=tmp_path / "plan", check=True)
    (tmp_path / "plan" / "table.c").write_text(
        text.replace("PARAMETERS_ID != 0x", "PARAMETERS_ID != 0x1")
    )
    done = subprocess.run(command, cwd=tmp_path / "plan", capture_output=True, text=True)
    assert "these are not the parameters of model" in done.stderr


@pytest.mark.slow
def test_an_image_as_a_table(tmp_path: Path) -> None:
    """Of a program with parameters on storage: what the store is to hold at first."""
    folder = generate(tmp_path / "out", "--params=storage", "--ram=8KB", "--stream=never")
    words = ["pack", "-q", str(folder), str(ARRAYS)]
    assert main([*words, "-o", str(tmp_path / "image.bin")]) == 0
    assert main([*words, "--to=c", "-o", str(folder / "table.c")]) == 0
    (folder / "print.c").write_text(
        '#include <stdio.h>\n#include "model.h"\nint main(void)\n{\n'
        "    return fwrite(model_image, 1, sizeof model_image, stdout) == 0;\n}\n"
    )
    subprocess.run(["gcc", *STRICT, "table.c", "print.c", "-o", "print"], cwd=folder, check=True)
    printed = subprocess.run([folder / "print"], capture_output=True, check=True).stdout
    image = (tmp_path / "image.bin").read_bytes()
    assert image.startswith(printed) and len(printed) > 7256


def test_the_section_of_constants(tmp_path: Path) -> None:
    """Tables of kernels, frozen weights and parameters; nothing else is there."""
    options = [f"--data={ARRAYS}", "--train=*l3*"]
    folder = generate(tmp_path / "out", *options)
    words = ["pack", "-q", "--to=c", str(folder), str(ARRAYS)]
    assert main([*words, "-o", str(folder / "model_parameters.c")]) == 0
    for source in ("model_frozen", "model_parameters"):
        command = ["gcc", *STRICT, '-DMODEL_CONST_SECTION=".external"', "-c", f"{source}.c"]
        subprocess.run(command, cwd=folder, check=True)
        listed = subprocess.run(
            ["objdump", "-t", f"{source}.o"], cwd=folder, capture_output=True, text=True, check=True
        ).stdout
        where = re.findall(r"^\S+ g\s+O (\S+)", listed, re.M)
        assert where and set(where) == {".external"}
