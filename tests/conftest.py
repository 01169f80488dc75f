"""Shared paths and helpers of the tests."""

import gc
import io
import json
import math
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from ml_dtypes import bfloat16
from xdsl.dialects.builtin import ModuleOp

from poetc.kernels.known import KnownKernels
from poetc.options import OPTIONS

# Whoever runs the tests in the background has them ignore Ctrl-C, which some of them press.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Property tests go through the same examples in each run, so that a failure is one of the change;
# --hypothesis-profile=default goes through others.
settings.register_profile("same", derandomize=True)
settings.load_profile("same")

# A mutant is killed by any failure: it need not be the simplest, nor one seen before.
settings.register_profile(
    "mutation", phases=(Phase.explicit, Phase.generate), database=None, derandomize=True
)

MODELS = Path(__file__).parent / "models"

TRAINED = (
    "gesture_mlp",
    "kws_conv",
    "lenet5",
    "dscnn",
    "resnet8",
    "bert_micro",
    "mlp_mnist",
    "ae_mnist",
)
"""Models with arguments and XLA's results beside them."""


ALL = bool(os.environ.get("POETC_ALL_STEPS"))
"""Whether tests that take some of many like cases, or small ones, are to take all."""


KERNELS = KnownKernels()
"""The kernels that tests have made."""

MOST_KERNELS = 500
"""More are not kept from one module of tests to the next: each takes up to a megabyte."""

CACHED = ("cc", "gcc", "g++", "clang", "arm-none-eabi-gcc", "aarch64-linux-gnu-gcc")
"""Compilers whose objects are kept for other tests of the run."""


def pytest_configure(config: pytest.Config) -> None:
    """Where ccache is installed, compilers go through it in all processes of this run, which share
    a cache of their own: many programs have files in common."""
    ccache = shutil.which("ccache")
    if hasattr(config, "workerinput") or ccache is None:
        return  # a worker has the environment of the process that started it
    folder = Path(tempfile.mkdtemp(prefix="poetc-ccache-"))
    config.add_cleanup(lambda: shutil.rmtree(folder))
    for name in filter(shutil.which, CACHED):
        (folder / name).symlink_to(ccache)
    os.environ |= {
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        "CCACHE_DIR": str(folder / "objects"),
        "CCACHE_BASEDIR": tempfile.gettempdir(),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_NOCOMPRESS": "1",
        # Sources and headers were just written.
        "CCACHE_SLOPPINESS": "include_file_mtime,include_file_ctime",
    }


def more(*cases: Any) -> list[Any]:
    """Cases of a test that are larger than others which show the same: only with
    POETC_ALL_STEPS=1."""
    marks = (pytest.mark.slow, pytest.mark.more)
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=marks) for case in cases
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests come first: at the end, one of them would keep all workers but one waiting."""
    larger = set() if ALL else {item for item in items if item.get_closest_marker("more")}
    config.hook.pytest_deselected(items=[*larger])
    items[:] = [item for item in items if item not in larger]
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collectstart() -> None:
    """What the frameworks load, millions of objects, is never garbage: not to be looked through
    again and again, neither while that goes on nor later."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Looks for garbage again, but not in what is there."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="module", autouse=not ALL)
def kernels_made_once() -> Iterator[None]:
    """All compilations of a worker share the kernels that they make, as the steps of one do: most
    tests compile the same few models. Not with POETC_ALL_STEPS=1."""
    from poetc.passes import poet_arrange_kernels, poet_lower_kernels

    if len(KERNELS.lowered) + len(KERNELS.ways.known) > MOST_KERNELS:
        KERNELS.lowered.clear()
        KERNELS.ways.known.clear()
    with pytest.MonkeyPatch.context() as patch:
        for module in (poet_arrange_kernels, poet_lower_kernels):
            patch.setattr(module, "known_kernels", lambda _: KERNELS)
        yield


@contextmanager
def default(option: str, text: str) -> Iterator[None]:
    """A default other than that of the table, until the end of the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPTIONS, option, replace(OPTIONS[option], default=text))
        yield


@pytest.fixture(scope="module")
def whole() -> Iterator[None]:
    """Without --stream kernels stay whole, for modules of tests that tiles are not the point of:
    looking for tiles takes longest."""
    with default("stream", "never"):
        yield


@pytest.fixture(scope="module")
def near() -> Iterator[None]:
    """Without --gap a schedule within half of the best will do, for modules of tests that the best
    is not the point of: most of a search goes into the last percents."""
    with default("gap", "50%"):
        yield


@pytest.fixture
def by_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what is asked for with --stop=work: a second of a time limit stands for a tenth of the
    work, so that the clock cuts off nothing on a machine with other work."""
    from poetc.schedule.model.clock import PACE, Clock

    monkeypatch.setattr(Clock.__init__, "__defaults__", (math.inf, PACE / 10, True))


def of_work(seconds: float) -> dict[str, Any]:
    """Options of a search that does the work of a time limit, however long that takes: the same on
    a machine with other work."""
    from poetc.schedule.model.clock import PACE, Clock

    limit_s = 20 * seconds
    return {"stop": "work", "time_limit_s": limit_s, "clock": Clock(limit_s, PACE / 20)}


def read_model(name: str) -> ModuleOp:
    """A fresh module of `models/<name>.mlir`."""
    from poetc.ir.text import parse_module

    path = MODELS / f"{name}.mlir"
    return parse_module(path.read_text(), str(path))


def load_arrays(path: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Arguments and XLA's results in order."""
    with np.load(path) as arrays:
        # NumPy saves bf16 as two bytes of no type.
        whole = {k: a.view(bfloat16) if a.dtype == "V2" else a for k, a in arrays.items()}
    arguments, results = ({k: a for k, a in whole.items() if k[:3] == p} for p in ("arg", "out"))
    return (
        [arguments[f"arg{i}"] for i in range(len(arguments))],
        [results[f"out{i}"] for i in range(len(results))],
    )


def reported(*words: str) -> dict[str, Any]:
    """What `poetc` reports with `--json`, here: a process of its own takes seconds to begin."""
    from poetc.cli import main

    with redirect_stderr(io.StringIO()) as said:
        status = main([*words, "--json"])
    assert status == 0, said.getvalue()
    return json.loads(said.getvalue())
