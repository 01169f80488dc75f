"""Inputs and results by the names that they have in Python; sizes are checked."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_support import STRICT
from jax import numpy as jnp
from jax import tree, value_and_grad

from poetc import __version__
from poetc.backends.c.libraries.library import OPTIONS
from poetc.cli import main
from poetc.frontends.jax import export

RNG = np.random.default_rng(5)
PARAMETERS = {
    "w1": RNG.normal(size=(8, 4)).astype(np.float32),
    "w2": RNG.normal(size=(4, 2)).astype(np.float32),
}
IMAGE = RNG.normal(size=(3, 8)).astype(np.float32)
LABELS = RNG.normal(size=(3, 2)).astype(np.float32)
RATE = np.float32(0.25)


def loss_of(params, image, labels):  # type: ignore[no-untyped-def]
    error = jnp.tanh(image @ params["w1"]) @ params["w2"] - labels
    return jnp.mean(error**2), error


def step(params, image, labels, rate):  # type: ignore[no-untyped-def]
    (loss, error), gradient = value_and_grad(loss_of, has_aux=True)(params, image, labels)
    return tree.map(lambda a, b: a - rate * b, params, gradient), (loss, {"error": error})


def by_hand() -> tuple[np.ndarray, float, float]:
    """In NumPy: the errors, and the loss of this step and of the next one."""
    w1, w2 = (PARAMETERS[name].astype(np.float64) for name in ("w1", "w2"))
    losses: list[float] = []
    errors: list[np.ndarray] = []
    for _ in range(2):
        hidden = np.tanh(IMAGE @ w1)
        errors.append(hidden @ w2 - LABELS)
        losses.append(float(np.mean(errors[-1] ** 2)))
        up = 2 * errors[-1] / errors[-1].size
        w1, w2 = w1 - RATE * IMAGE.T @ ((up @ w2.T) * (1 - hidden**2)), w2 - RATE * hidden.T @ up
    return errors[0], losses[0], losses[1]


PROGRAM = """
#include <stdio.h>
#include "model.h"
#include "data.h"

#if POETC_VERSION_MAJOR != {0} || POETC_VERSION_MINOR != {1} || POETC_VERSION_PATCH != {2}
#error "another version"
#endif

int main(void)
{{
    float error[7] = {{0}};
    float *const w1 = (float *)model_argument(M MODEL_ARG_PARAMS_W1);
    float *const w2 = (float *)model_argument(M MODEL_ARG_PARAMS_W2);
    for (int k = 0; k < 32; ++k) {{
        w1[k] = data_w1[k];
    }}
    for (int k = 0; k < 8; ++k) {{
        w2[k] = data_w2[k];
    }}
    for (int k = 0; k < 2; ++k) {{
        if (model_set_image(M data_image, 24) != POETC_OK
            || model_set_labels(M data_labels, 6) != POETC_OK
            || model_set_labels(M error, 7) != POETC_WRONG_SIZE
            || model_set_labels(M error, 0) != POETC_WRONG_SIZE) {{
            return 1;
        }}
        model_set_rate(M {3}f);
        if (model_step(M NULL) != POETC_OK || model_get_error(M error, 5) != POETC_WRONG_SIZE
            || model_get_error(M error, 6) != POETC_OK) {{
            return 2;
        }}
        (void)printf("%.9g", (double)model_get_loss(M_ONLY));
        for (int e = 0; e < 7; ++e) {{
            (void)printf(" %.9g", (double)error[e]);
        }}
        (void)printf("\\n");
    }}
    (void)printf("%s\\n", poetc_status_text(POETC_WRONG_SIZE));
    return 0;
}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--arena=caller"]], ids=["program", "caller"])
def test_names(options: list[str], tmp_path: Path) -> None:
    """In C and in C++, with the compiler's warnings."""
    export(step, (PARAMETERS, IMAGE, LABELS, RATE), str(tmp_path / "model"))
    out = tmp_path / "out"
    words = [str(tmp_path / "model.mlir"), "--emit=c", "-q", "-o", str(out), *options]
    assert main(words) == 0
    arrays = {**PARAMETERS, "image": IMAGE, "labels": LABELS}
    tables = [
        f"static const float data_{name}[] = {{{', '.join(f'{x:.9e}f' for x in array.ravel())}}};"
        for name, array in arrays.items()
    ]
    instance = "static model_instance m;\n#define M &m,\n#define M_ONLY &m\n"
    tables.append(instance if options else "#define M\n#define M_ONLY\n")
    (out / "data.h").write_text("#include <stddef.h>\n" + "\n".join(tables))
    numbers = re.findall(r"\d+", __version__)[:3]
    (out / "program.c").write_text(PROGRAM.format(*numbers, RATE))
    sources = ("model.c", "model_kernels.c", "poetc_store.c", "poetc_math.c")
    subprocess.run(["gcc", *STRICT, *OPTIONS, "-c", *sources], cwd=out, check=True)
    objects = [source.replace(".c", ".o") for source in sources]
    cpp = [w for w in STRICT if w.startswith("-W") and "prototypes" not in w]
    for command in (["gcc", *STRICT], ["g++", "-std=c++17", *cpp, "-x", "c++"]):
        compiled = [*command, "-c", "program.c", "-o", "program.o"]
        subprocess.run(compiled, cwd=out, check=True)
        subprocess.run([command[0], "program.o", *objects, "-o", "program"], cwd=out, check=True)
        printed = subprocess.run([out / "program"], capture_output=True, text=True, check=True)
        first, second, text = printed.stdout.splitlines()
        errors, loss, next_loss = by_hand()
        found = [float(word) for word in first.split()]
        np.testing.assert_allclose(found[0], loss, rtol=1e-5)
        np.testing.assert_allclose(found[1:7], errors.ravel(), rtol=1e-4, atol=1e-6)
        assert found[7] == 0.0
        np.testing.assert_allclose(float(second.split()[0]), next_loss, rtol=1e-5)
        assert text == "not the number of elements"
