"""xDSL plug-in: makes our dialects, passes and targets visible to `xdsl-opt` and friends.

Everything is imported when it is asked for, so that `xdsl-opt` starts fast and needs neither the
solver nor TVM for a pass that does not use them.
"""

from collections.abc import Callable
from importlib import import_module

from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target

from poetc.ir.dialects import DIALECTS

_PASSES = {
    "stablehlo-simplify": "StableHLOSimplifyPass",
    "stablehlo-train": "StableHLOTrainPass",
    "stablehlo-pages": "StableHLOPagesPass",
    "stablehlo-to-poet": "StableHLOToPoetPass",
    "poet-fuse": "PoetFusePass",
    "poet-pair": "PoetPairPass",
    "poet-lower-kernels": "PoetLowerKernelsPass",
    "poet-arrange-kernels": "PoetArrangeKernelsPass",
    "poet-annotate": "PoetAnnotatePass",
    "poet-variants": "PoetVariantsPass",
    "poet-order": "PoetOrderPass",
    "poet-schedule": "PoetSchedulePass",
    "poet-stream": "PoetStreamPass",
    "poet-plan-transfers": "PoetPlanTransfersPass",
    "poet-plan-memory": "PoetPlanMemoryPass",
    "poet-read-ahead": "PoetReadAheadPass",
    "poet-verify": "PoetVerifyPass",
}
"""Pass name to class; the module has the name of the pass, with underscores."""


def _pass(pass_name: str, class_name: str) -> Callable[[], type[ModulePass]]:
    module = f"poetc.passes.{pass_name.replace('-', '_')}"
    return lambda: getattr(import_module(module), class_name)


_TARGETS: dict[str, Callable[[], type[Target]]] = {
    "c": lambda: import_module("poetc.backends.c.target").CTarget,
    "plan": lambda: import_module("poetc.backends.plan.target").PlanTarget,
}

UNIVERSE = Universe(
    all_dialects=DIALECTS,
    all_passes={name: _pass(name, class_name) for name, class_name in _PASSES.items()},
    all_targets=_TARGETS,
)
