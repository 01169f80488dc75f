"""Reads the graphs of the paper's released code (JSON), to compare optimisers on equal input."""

from __future__ import annotations

import json
from pathlib import Path

from poetc.schedule.model.problem import Operation, Problem, Tensor


def load(
    path: Path | str,
    device: str,
    ram_bytes: int | None = None,
    deadline: float | None = None,
) -> Problem:
    """The problem of one graph and one of its devices ("m0", "m4", "a72").

    Every operation makes one tensor; nothing starts or ends anywhere. `deadline` is a multiple of
    the time that all operations take once. The files give no transfer times, so they are 0 here.
    """
    data = json.loads(Path(path).read_text())
    costs = data["devices"][device]
    inputs: list[list[int]] = [[] for _ in data["nodes"]]
    for source, target in data["edges"]:
        inputs[target].append(source)

    def nano(name: str, index: int) -> int:
        return round(costs[name][index] * 1e9) if name in costs else 0

    nodes = data["nodes"]
    tensors = tuple(
        Tensor(
            f"{node['id']}:{node['name']}",
            node["bytes"],
            pagein_time_ns=nano("pagein_time_s", index),
            pagein_energy_nj=nano("pagein_energy_j", index),
            pageout_time_ns=nano("pageout_time_s", index),
            pageout_energy_nj=nano("pageout_energy_j", index),
        )
        for index, node in enumerate(nodes)
    )
    operations = tuple(
        Operation(
            tensors[index].name,
            tuple(sorted(inputs[index])),
            (index,),
            nano("compute_time_s", index),
            nano("compute_energy_j", index),
        )
        for index in range(len(nodes))
    )
    total_ns = sum(operation.time_ns for operation in operations)
    return Problem(
        operations,
        tensors,
        ram_bytes=ram_bytes,
        deadline_ns=None if deadline is None else int(deadline * total_ns),
    )
