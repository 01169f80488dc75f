"""--arena=caller: instances, threads, the examples, and what is refused."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_support import STRICT
from conftest import MODELS, load_arrays
from jax import numpy as jnp
from jax import tree, value_and_grad
from test_two_models import alone, check, plain, run, scheduled, units, write

from poetc.backends.c.libraries.library import OPTIONS
from poetc.cli import main
from poetc.frontends.jax import export

pytestmark = pytest.mark.usefixtures("whole")

__all__ = ["alone", "plain", "scheduled"]

TESTS = Path(__file__).parent
GESTURE, ARRAYS = MODELS / "gesture_mlp.mlir", MODELS / "gesture_mlp.npz"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that moves pages, with data for a step."""
    folder = tmp_path_factory.mktemp("instances") / "out"
    words = [str(GESTURE), "--emit=c", "-q", "--ram=9600", f"--data={ARRAYS}", "-o", str(folder)]
    assert main([*words, "--arena=caller"]) == 0
    return folder


def build(program: Path, target: Path, *flags: str) -> Path:
    names = ("model", "model_kernels", "poetc_store", "poetc_math", "store_memory")
    sources = [program / f"{name}.c" for name in names]
    command = ["gcc", "-std=c99", "-Wall", "-Wextra", "-Werror", "-g", "-O1", f"-I{program}"]
    driver = str(TESTS / "instances_driver.c")
    run(*command, *OPTIONS, *flags, *sources, driver, "-o", target, "-lpthread")
    return target


@pytest.mark.slow
def test_threads(program: Path, tmp_path: Path) -> None:
    """Instances in threads of their own disturb each other nowhere, says ThreadSanitizer, and give
    what XLA gives; two threads in one instance are found, so it does look."""
    threads = build(program, tmp_path / "threads", "-fsanitize=thread")
    done = subprocess.run([threads, program / "data"], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    losses = [float(line) for line in done.stdout.splitlines()]
    _, expected = load_arrays(ARRAYS)
    np.testing.assert_allclose(losses[0], expected[0], rtol=1e-5)
    assert len(losses) == 3 and losses[0] > losses[1] > losses[2]
    shared = build(program, tmp_path / "shared", "-fsanitize=thread", "-DSHARED")
    done = subprocess.run([shared, program / "data"], capture_output=True, text=True)
    assert "WARNING: ThreadSanitizer: data race" in done.stderr


@pytest.mark.slow
def test_nothing_is_kept_but_in_instances(program: Path) -> None:
    """The files of the model have no data that can be written."""
    for name in ("model", "model_kernels", "model_save", "poetc_store", "poetc_image"):
        source = program / f"{name}.c"
        run("gcc", *STRICT, "-O2", "-c", source, "-o", source.with_suffix(".o"))
        sizes = run("size", source.with_suffix(".o")).splitlines()[1].split()
        assert sizes[1:3] == ["0", "0"], name


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--io=caller"]], ids=["arena", "caller"])
def test_examples(options: list[str], tmp_path: Path) -> None:
    """The program of the Makefile, and that of boards, have an instance."""
    words = [str(GESTURE), "--emit=c", "-q", "--ram=16KB", "--arena=caller"]
    assert main([*words, *options, f"--data={ARRAYS}", "-o", str(tmp_path / "out")]) == 0
    run("make", "-C", tmp_path / "out", "CFLAGS=-O1 -Werror", "run")
    if not options:
        board = ["--board=mps2-an386", f"--data={ARRAYS}", "-o", str(tmp_path / "board")]
        assert main([*words, *board]) == 0
        run("make", "-C", tmp_path / "board", "CFLAGS=-O1 -Werror", "run")


@pytest.mark.parametrize("layout", ["arduino", "zephyr"])
def test_sketches(layout: str, tmp_path: Path) -> None:
    words = [str(GESTURE), "--emit=c", "-q", "--ram=16KB", "--arena=caller", f"--layout={layout}"]
    assert main([*words, "-o", str(tmp_path)]) == 0
    (source,) = tmp_path.rglob("serial_steps.c")
    where = {path.parent for path in tmp_path.rglob("*.h")}
    includes = [f"-I{path}" for path in where]
    run("gcc", *STRICT, *includes, "-c", source, "-o", tmp_path / "steps.o")


@pytest.mark.slow
def test_a_shared_arena(
    scheduled: dict[str, Path],
    alone: dict[str, tuple[Path, list[bytes]]],
    tmp_path: Path,
) -> None:
    """Two models by turns in the bytes of the larger one give the bits of each alone."""
    write(scheduled, tmp_path, "--arena=caller")
    where = [f"-I{tmp_path / name}" for name in "ab"]
    sources = [*units(tmp_path, "a"), TESTS / "shared_arena.c"]
    sanitize = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    run("gcc", "-std=c99", *OPTIONS, *sanitize, *where, *sources, "-o", tmp_path / "program")
    check(tmp_path / "program", alone, tmp_path / "data")
    header = """
#include "a.h"
#include "b.h"
static_assert(sizeof(a_instance) == A_ARENA_BYTES && sizeof(b_instance) == B_ARENA_BYTES, "");
static_assert(A_ARENA_BYTES != B_ARENA_BYTES && alignof(a_instance) == A_ARENA_ALIGNMENT, "");
"""
    (tmp_path / "sizes.cpp").write_text(header)
    run("g++", "-std=c++17", *where, "-c", "sizes.cpp", cwd=tmp_path)


def test_hook(program: Path, tmp_path: Path) -> None:
    """It is told whose step it is."""
    shutil.copytree(program, tmp_path / "out")
    hook = "int hook(const model_instance *instance, uint32_t compute)"
    (tmp_path / "out" / "hook.c").write_text(
        f'#include "model.h"\n{hook}\n{{\n    return instance == 0 || compute == 3u;\n}}\n'
    )
    run("gcc", *STRICT, "-DMODEL_HOOK=hook", "-c", "hook.c", "model.c", cwd=tmp_path / "out")


PREDICTS = """
#include <stdio.h>
#include "model.h"

static model_instance m[2];

int main(void)
{
    for (int k = 0; k < 2; ++k) {
        float *const w = (float *)model_argument(&m[k], MODEL_ARG_PARAMS_W);
        for (int i = 0; i < 6; ++i) {
            w[i] = (float)(i + k);
        }
    }
    for (int k = 0; k < 2; ++k) {
        static const float x[3] = {1.0f, 2.0f, -0.5f};
        float y[2];
        if (model_predict_set_x(&m[k], x, 3) != POETC_OK || model_predict(&m[k], NULL) != POETC_OK
            || model_predict_get_result(&m[k], y, 2) != POETC_OK) {
            return 1;
        }
        (void)printf("%.9g %.9g\\n", (double)y[0], (double)y[1]);
    }
    return 0;
}
"""


def test_entry_points(tmp_path: Path) -> None:
    """A prediction reads the parameters of its instance."""
    parameters = {"w": np.zeros((3, 2), np.float32)}
    x, y = np.zeros((4, 3), np.float32), np.zeros((4, 2), np.float32)

    def predict(params, x):  # type: ignore[no-untyped-def]
        return x @ params["w"]

    def step(params, x, y):  # type: ignore[no-untyped-def]
        def loss_of(params):  # type: ignore[no-untyped-def]
            return jnp.mean((predict(params, x) - y) ** 2)

        loss, gradient = value_and_grad(loss_of)(params)
        return tree.map(lambda a, b: a - b, params, gradient), loss

    example = (parameters, np.zeros((1, 3), np.float32))
    export(step, (parameters, x, y), str(tmp_path / "model"), predict=(predict, example))
    out = tmp_path / "out"
    words = [str(tmp_path / "model.mlir"), "--emit=c", "-q", "--arena=caller", "-o", str(out)]
    assert main(words) == 0
    (out / "predicts.c").write_text(PREDICTS)
    names = ("predicts", "model", "model_kernels", "poetc_store", "poetc_math")
    run("gcc", *STRICT, *OPTIONS, *(f"{name}.c" for name in names), "-o", "predicts", cwd=out)
    for k, line in enumerate(run(out / "predicts").splitlines()):
        expected = np.array([1, 2, -0.5]) @ (np.arange(6).reshape(3, 2) + k)
        np.testing.assert_allclose([float(word) for word in line.split()], expected, rtol=1e-6)


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(GESTURE), "-o", str(tmp_path / "out"), "--arena=caller"]
    assert main([*words, "--emit=c", "--executor=plan"]) == 2
    assert "--arena=caller cannot go with --executor=plan" in capsys.readouterr().err
    assert main(words) == 2
    assert "--arena says how C is written" in capsys.readouterr().err
