"""poetc inside another compiler: its passes on a module in memory, its schedule as data.

python examples/pipeline.py examples/gesture_mlp.mlir
"""

from __future__ import annotations

import sys
from pathlib import Path

from poetc.costmodel.device import load_device
from poetc.driver import compile_module
from poetc.ir.graph import graphs
from poetc.ir.poet import AnyPageIn, AnyPageOut, ComputeOp
from poetc.ir.text import make_context, parse_module
from poetc.request import Options


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/pipeline.py MODEL.mlir")
    path = Path(sys.argv[1])
    module = parse_module(path.read_text(), str(path))
    options = Options(device=load_device("nrf52840"), device_name="nrf52840", ram_bytes=8_600)
    report = compile_module(make_context(), module, options).report
    assert report is not None
    for op in graphs(module)[0].block.ops:
        if isinstance(op, ComputeOp):
            print(f"run {op.label.data:<40} results at {op.result_offsets}")
        elif isinstance(op, AnyPageOut | AnyPageIn):
            print(f"{op.name} at offset {op.offset.value.data if op.offset is not None else None}")
    print(f"peak {report.use.peak_bytes} bytes, gap {report.gap:.2%}")


if __name__ == "__main__":
    main()
