"""poet-stream: schedules a step in little RAM, with kernels that run in tiles where they must.

Parameters are on storage between steps. A kernel that does not fit into the RAM becomes a
poet.stream, whose operands and results are on storage: `planning/stream.py`. Places in arena and
storage are planned, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from poetc.costmodel.device import load_device
from poetc.errors import InputError
from poetc.ir.graph import ALIGN_BYTES
from poetc.options import default
from poetc.page import LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES, PAGE_ALIGN_BYTES
from poetc.planning.stream import BLOCK_BYTES, stream_graphs


@dataclass(frozen=True)
class PoetStreamPass(ModulePass):
    """Schedules each graph within `ram` bytes of tensors and buffers, at the costs of `device`.
    Pages are in blocks of `block` bytes."""

    name = "poet-stream"

    ram: int
    device: str = default("device")
    align: int = ALIGN_BYTES
    block: int = BLOCK_BYTES

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Raises InputError where a kernel takes more RAM in any tiles."""
        if self.ram < 0:
            raise InputError(f"ram is a number of bytes, not {self.ram}")
        if self.align < 1 or self.align & (self.align - 1):
            raise InputError(f"align is a power of two, not {self.align}")
        sizes = range(LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES + 1, PAGE_ALIGN_BYTES)
        if self.block not in sizes:
            raise InputError(
                f"block is a multiple of {PAGE_ALIGN_BYTES} from {LEAST_BLOCK_BYTES} to "
                f"{MOST_BLOCK_BYTES:,} bytes, not {self.block:,}"
            )
        stream_graphs(op, self.ram, load_device(self.device), self.align, self.block)
