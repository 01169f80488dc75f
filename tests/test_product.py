"""The example of a product: two models in firmware, one of which trains and predicts on the same
weights, and is cancelled in the middle of a step."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("jax")

EXAMPLE = Path(__file__).parent.parent / "examples" / "product"
sys.path.insert(0, str(EXAMPLE))


def make(folder: Path, *words: str) -> list[str]:
    """What the firmware says."""
    command = ["make", "-C", EXAMPLE, "run", f"BUILD={folder}", f"PYTHON={sys.executable}"]
    command += [f"POETC={Path(sys.executable).with_name('poetc')}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning:" not in done.stderr.replace("poetc: warning: no result", "")
    return re.findall(r"^(?:storage|wake|predict|train): .+$", done.stderr, re.MULTILINE)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("product") / "build"
    return folder, make(folder, "CFLAGS=-O2 -Werror")


def results(folder: Path) -> list[np.ndarray]:
    """In the order in which the firmware has written them."""
    count = len(list(folder.glob("out*.bin")))
    return [np.fromfile(folder / f"out{i}.bin", np.float32) for i in range(count)]


@pytest.mark.slow
def test_it_trains_predicts_is_cancelled_and_goes_on(built: tuple[Path, list[str]]) -> None:
    """With what JAX computes; a cancelled step has changed nothing."""
    import jax
    import make_models as models  # pyright: ignore[reportMissingImports]

    folder, said = built
    trained, cancelled = ["train: ok"], ["train: cancelled", "predict: ok"]
    begin, end = ["storage: ok", "wake: ok", "predict: ok"], ["predict: ok"]
    assert said == [*begin, *2 * trained, *cancelled, *4 * trained, *end]
    keys = jax.random.split(jax.random.key(7), 5)
    params = models.perceptron(keys[0], models.INPUTS, models.HIDDEN, 16, models.CLASSES)
    samples = jax.random.normal(keys[1], (models.STEPS, models.BATCH, models.INPUTS))
    labels = jax.random.randint(keys[2], (models.STEPS, models.BATCH), 0, models.CLASSES)
    wake = models.perceptron(keys[3], models.INPUTS, 24, 2)
    expected = [models.predict(wake, samples[0, :1]), models.predict(params, samples[0, :1])]
    for step in range(models.STEPS):
        if step == 2:
            expected.append(models.predict(params, samples[0, :1]))
        params, loss = models.step(params, samples[step], labels[step])
        expected.append(loss)
    expected.append(models.predict(params, samples[0, :1]))
    got = results(folder)
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, np.ravel(b), rtol=3e-5, atol=1e-6)


@pytest.mark.slow
def test_the_bits_are_those_of_a_run_that_is_not_cancelled(
    built: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, _ = built
    again = tmp_path / "build"
    shutil.copytree(folder, again)
    for old in (*again.glob("out*.bin"), again / "product.elf", again / "storage.bin"):
        old.unlink()
    said = make(again, "CFLAGS=-O2 -DURGENT_STEP=99u")
    assert "train: cancelled" not in said and said.count("train: ok") == 6
    whole, cancelled = results(again), results(folder)
    del cancelled[4]  # The prediction in between.
    assert [a.tobytes() for a in cancelled] == [a.tobytes() for a in whole]
    assert (again / "storage.bin").read_bytes() == (folder / "storage.bin").read_bytes()


@pytest.mark.slow
def test_its_ram_is_what_the_headers_say(built: tuple[Path, list[str]]) -> None:
    """To the byte: the linker is given no more, and nothing is left."""
    folder, _ = built
    command = ["arm-none-eabi-size", "-A", folder / "product.elf"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sizes = {name: int(size) for name, size in re.findall(r"^(\.\w+) +(\d+)", table, re.MULTILINE)}
    told = {
        name: int(re.search(rf"{name} +(\d+)", (folder / path).read_text())[1])  # type: ignore[index]
        for name, path in {
            "GESTURE_RAM_BYTES": "gesture/gesture.h",
            "WAKE_ARENA_BYTES": "wake/wake.h",
        }.items()
    }
    own = int(re.search(r"^OWN = (\d+)$", (EXAMPLE / "Makefile").read_text(), re.M)[1])  # type: ignore[index]
    assert sizes[".stack"] + sizes[".data"] + sizes[".bss"] == sum(told.values()) + own
