"""model_tensors.json: what a program takes and gives, as data that others can rely on."""

from __future__ import annotations

import ctypes
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from c_support import load_library, macros
from conftest import MODELS

from poetc.cli import main
from poetc.errors import InputError
from poetc.image_files import read_layout
from poetc.tensors import ProgramTensors, read_tensors

TESTS = Path(__file__).parent
MOMENTUM = TESTS / "cases" / "long_names.mlir"
MLP = MODELS / "gesture_mlp.mlir"

PROGRAMS = {
    "ram": (MLP, ()),
    "storage": (MLP, ("--params=storage",)),
    "caller": (MLP, ("--io=caller",)),
    "plan": (MLP, ("--executor=plan",)),
    "named": (MLP, ("--name=gesture",)),
    "momentum": (MOMENTUM, ("--params=storage",)),
}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_says_what_the_c_says(program: str, tmp_path: Path) -> None:
    """The preprocessor's macros, and the functions of the compiled program."""
    model, options = PROGRAMS[program]
    out = tmp_path / "out"
    assert main([str(model), "--emit=c", "-q", "-o", str(out), *options]) == 0
    found = read_tensors(out)
    name, macro = found.name, found.name.upper()
    defines = macros(out / f"{name}.h")
    for size in ("arena", "static", "stack", "ram", "storage"):
        said = int(defines[f"{macro}_{size.upper()}_BYTES"])
        assert getattr(found, f"{size}_bytes") == said, size
    assert len(found.arguments) == int(defines[f"{macro}_ARGUMENTS"]) > 0
    assert len(found.results) == int(defines[f"{macro}_RESULTS"]) > 0
    sources = [p for p in out.glob("*.c") if p.name not in ("main.c", "store_thread.c")]
    library = load_library(sources, out / "model.so", flags=("-O1", f"-I{out}"))
    for kind, prefix, places in (
        ("argument", "ARG", found.arguments),
        ("result", "RESULT", found.results),
    ):
        for i, place in enumerate(places):
            own = f"{macro}_{prefix}{i}"
            assert place.bytes == int(defines[f"{own}_BYTES"])
            assert place.bytes == getattr(library, f"{name}_{kind}_bytes")(i)
            pointer = getattr(library, f"{name}_{kind}")
            pointer.restype = ctypes.c_void_p
            assert bool(pointer(i)) == (place.where == "arena")
            key = f"{own}_PAGE_OFFSET" if place.where == "storage" else f"{own}_OFFSET"
            assert str(place.offset) == defines.get(key, "None")
    for i, place in enumerate(found.arguments):
        assert place.parameter == bool(getattr(library, f"{name}_argument_is_parameter")(i))
    # One argument each, of the same shape and in the same place.
    updated = [(k, p.updates) for k, p in enumerate(found.results) if p.updates is not None]
    assert updated and len({argument for _, argument in updated}) == len(updated)
    for result, argument in updated:
        old, new = found.arguments[argument], found.results[result]
        assert old.parameter
        for field in ("shape", "dtype", "where", "offset"):
            assert getattr(old, field) == getattr(new, field), field
    if found.image is not None:
        layout = read_layout(out / found.image)
        stored = [i for i, place in enumerate(found.arguments) if place.where == "storage"]
        assert sorted(p.argument for p in layout.tensors) == stored
        for parameter in layout.tensors:
            place = found.arguments[parameter.argument]
            assert (place.name, place.shape, place.dtype) == (
                parameter.name,
                parameter.shape,
                parameter.dtype,
            )
    else:
        assert all(place.where != "storage" for place in (*found.arguments, *found.results))


@pytest.mark.slow
def test_it_is_beside_the_program_in_every_layout(tmp_path: Path) -> None:
    wanted: list[ProgramTensors] = []
    for layout in ("make", "cmake", "arduino", "zephyr"):
        out = tmp_path / layout
        words = [str(MLP), "--emit=c", "-q", "-o", str(out), f"--layout={layout}", "--static=600"]
        assert main(words) == 0
        assert "model_tensors.json" in [path.name for path in out.iterdir()]
        wanted.append(read_tensors(out))
    assert all(one == wanted[0] for one in wanted)


def test_the_shapes_and_types_are_those_of_the_file(tmp_path: Path) -> None:
    """Against XLA's arrays, whatever names are like."""
    out = tmp_path / "out"
    assert main([str(MOMENTUM), "--emit=c", "-q", "-o", str(out)]) == 0
    found = read_tensors(out)
    with np.load(MOMENTUM.with_suffix(".npz")) as arrays:
        for kind, places in (("arg", found.arguments), ("out", found.results)):
            assert len(places) == sum(name.startswith(kind) for name in arrays)
            for i, place in enumerate(places):
                array = arrays[f"{kind}{i}"]
                assert (place.shape, place.dtype) == (array.shape, str(array.dtype))


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main([str(MLP), "--emit=c", "-q", "-o", str(out)]) == 0
    path = out / "model_tensors.json"
    good = json.loads(path.read_text())
    assert ProgramTensors.from_json(good) == read_tensors(out)
    assert asdict(read_tensors(out))["arguments"][0]["parameter"] is True
    damaged = [
        *({k: v for k, v in good.items() if k != key} for key in good if key != "_"),
        {**good, "ram_bytes": "1"},
        {**good, "arguments": 3},
        {**good, "results": [{}]},
        {**good, "results": [{**good["results"][0], "bytes": 5}]},
        {**good, "results": [{**good["results"][0], "where": "moon"}]},
        {**good, "results": [{**good["results"][0], "dtype": "float77"}]},
        {**good, "image": 3},
        [],
        None,
    ]
    for data in damaged:
        path.write_text(json.dumps(data))
        with pytest.raises(InputError, match=r"model_tensors\.json"):
            read_tensors(out)
    for text in ("", "{", "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match="not JSON"):
            read_tensors(out)
    path.unlink()
    with pytest.raises(InputError, match=r"has no \*_tensors.json"):
        read_tensors(out)
