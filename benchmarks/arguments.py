"""Arguments of the training steps in tests/models: those beside a step, or seeded ones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

MODELS = Path(__file__).parent.parent / "tests" / "models"


def parameter_names(text: str) -> dict[int, str]:
    """How JAX calls the parameters of a step, by argument: `['c'][0]['b']`."""
    head = re.search(r"@main\((.*?)\) *-> *\((.*?)\) *\{\n", text, re.DOTALL)
    assert head is not None
    results = re.findall(r'jax\.result_info = "result\[1\](.*?)"', head[2])
    aliases = [
        (argument, int(alias[1]))
        for argument, words in enumerate(re.split(r"%arg\d+:", head[1])[1:])
        if (alias := re.search(r"tf\.aliasing_output = (\d+)", words)) is not None
    ]
    # The first result is the loss; the others are the new parameters.
    return {argument: results[result - 1] for argument, result in aliases}


def arguments_of(name: str, text: str) -> list[np.ndarray]:
    """The arguments of a step as they would be at the start of training."""
    path = MODELS / f"{name}.npz"
    if path.exists():
        with np.load(path) as arrays:
            return [arrays[f"arg{i}"] for i in range(sum(k.startswith("arg") for k in arrays))]
    return _seeded(name, text)


_TABLES = ("['tok']", "['typ']")


def _of_tokens(
    rng: np.random.Generator, number: int, shape: tuple[int, ...], tables: dict[str, int]
) -> np.ndarray:
    """The inputs of a BERT: tokens, their types, a mask, the tokens that are right."""
    if number == 2:
        return np.ones(shape, np.float32)
    rows = tables[_TABLES[number == 1]]
    return rng.integers(rows, size=shape).astype(np.int32)


def _seeded(name: str, text: str) -> list[np.ndarray]:
    """Parameters as they are initialised, but for biases and scales that are not all the same, so
    that none is at a special place; an image and a class, or tokens of a vocabulary."""
    head = re.search(r"@main\((.*?)\) *->", text, re.DOTALL)
    assert head is not None
    names = parameter_names(text)
    types = re.findall(r"tensor<([^>]*)>", head[1])
    tables = {names[i]: int(types[i].split("x")[0]) for i in names if names[i] in _TABLES}
    rng = np.random.default_rng(0)
    found: list[np.ndarray] = []
    for i, type_ in enumerate(types):
        *sizes, dtype = type_.split("x")
        shape = tuple(map(int, sizes))
        if i not in names and tables:
            # Tokens, their types, a mask, labels.
            found.append(_of_tokens(rng, i - len(names), shape, tables))
            continue
        assert dtype == "f32", f"{name} has an argument of {dtype}"
        if i not in names and len(shape) == 2:
            array = np.eye(shape[1])[rng.integers(shape[1], size=shape[0])]
        elif i not in names:
            array = rng.standard_normal(shape)
        elif len(shape) == 1:
            scale = names[i].endswith("['g']")
            array = scale + 0.1 * rng.standard_normal(shape)
        else:
            array = rng.standard_normal(shape) * (2 / np.prod(shape[:-1])) ** 0.5
        found.append(array.astype(np.float32))
    return found


def update_error(
    before: np.ndarray, got: np.ndarray, expected: np.ndarray, at_least: float
) -> float:
    """The largest error of what a step adds to a parameter, without what rounding the new parameter
    explains, relative to the largest change, or to the floor of the step (`poetc.compare`)."""
    change = float(np.max(np.abs(expected.astype(np.float64) - before)))
    error = np.abs(got.astype(np.float64) - expected) - np.spacing(np.abs(expected))
    return max(float(np.max(error)), 0.0) / max(change, at_least)
