"""How little RAM a step needs when its parameters are in shards, as far as that helps.

    python -m benchmarks.split [MODEL ...]

Prints the table of docs/splitting.md: bytes of the arena with parameters on storage, without shards
and with as many as `--split=auto` finds to help.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from benchmarks import document
from poetc.costmodel.device import load_device
from poetc.driver import SplitSource
from poetc.ir.text import make_context, parse_module
from poetc.planning.problem import NO_LIMIT, problem_view
from poetc.planning.split_candidates import Candidate
from poetc.planning.split_source import split_candidate, split_candidates
from poetc.request import Options
from poetc.schedule.model.instance import Instance
from poetc.schedule.search.infeasibility import least_ram
from poetc.splits import splits_text

MODELS = Path(__file__).parent.parent / "tests" / "models"
NAMES = ("gesture_mlp", "kws_conv", "lenet5", "dscnn", "resnet8", "mlp_mnist")
DEVICE = "nrf52840"
SECONDS = 20.0
"""For a schedule that needs as little as is proven to be needed."""


def main(words: list[str]) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*")
    names = document.chosen(parser.parse_args(words).models, NAMES)
    print(
        "| model | least without shards | least with shards | | `--split` | kernels |\n"
        "|---|--:|--:|--:|---|--:|"
    )
    for name in document.progress(names):
        print(_row(name), flush=True)


def _row(name: str) -> str:
    module = parse_module((MODELS / f"{name}.mlir").read_text(), name)
    options = Options(load_device(DEVICE), DEVICE, time_limit_s=600)
    source = SplitSource(make_context(), module, options)
    splittable = source.splittable()
    whole = split_candidate(source, ())
    # So little that the search goes as far as it can.
    source.options = replace(options, ram_bytes=whole.ends_bytes)
    whole = split_candidate(source, ())
    *_, found = split_candidates(source, splittable, whole)
    before, after = _least(whole), _least(found)
    cells = (
        name,
        before[1],
        after[1],
        f"{after[0] / before[0]:.0%}",
        f"`{splits_text(found.splits)}`" if found.splits else "none helps",
        f"{len(whole.graph.computes)} → {len(found.graph.computes)}",
    )
    return f"| {' | '.join(cells)} |"


def _least(candidate: Candidate) -> tuple[int, str]:
    """The least RAM known to work, and how it is written."""
    asked = replace(candidate.asked, budget=NO_LIMIT, params="storage")
    view = problem_view(candidate.graph, asked)
    least = least_ram(Instance(view.problem), SECONDS)
    assert least.known is not None
    return least.known, f"{'' if least.known == least.bound else '≤ '}{least.known:,}"


if __name__ == "__main__":
    document.run(main)
