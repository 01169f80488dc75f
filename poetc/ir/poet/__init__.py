"""The poet dialect: a training step as a list of kernels with explicit live ranges.

`poet.graph` holds one block of operations in execution order. A `poet.compute` is one kernel; an
SSA value of tensor type is one live range of a tensor, from the operation that defines it to the
`poet.free`, in-place reuse or `poet.return` that ends it. A value of `!poet.page` type is a copy on
auxiliary storage, written by `poet.pageout` and read back by `poet.pagein`. Both may be split into
a start and a `poet.wait`, between which other operations run; a value of `!poet.transfer` type is
such a transfer under way.

All sizes and offsets are in bytes, times in nanoseconds, energies in nanojoules.
"""

from xdsl.ir import Dialect

from poetc.ir.poet.attributes import (
    BANKED,
    IO_PLACES,
    NO_OFFSET,
    STORED,
    CostAttr,
    PageType,
    TransferType,
    content,
    tensor_type,
)
from poetc.ir.poet.compute import ComputeOp, RunOp, YieldOp
from poetc.ir.poet.graph import GraphOp, ReturnOp, is_banked, offset_of, runs_of, stays_on_storage
from poetc.ir.poet.slices import (
    AnySlice,
    SliceInOp,
    SliceOutOp,
    TileBufferOp,
    slices_ahead,
    tile_starts,
)
from poetc.ir.poet.stream import StreamOp, TileOp
from poetc.ir.poet.transfers import (
    AnyPageIn,
    AnyPageOut,
    FreeOp,
    PageInOp,
    PageInStartOp,
    PageOutOp,
    PageOutStartOp,
    WaitOp,
    transfer_of,
)
from poetc.ir.remainder import RemOp

Poet = Dialect(
    "poet",
    [
        GraphOp,
        ComputeOp,
        StreamOp,
        TileBufferOp,
        SliceInOp,
        SliceOutOp,
        TileOp,
        RemOp,
        PageOutOp,
        PageInOp,
        PageOutStartOp,
        PageInStartOp,
        WaitOp,
        FreeOp,
        ReturnOp,
        YieldOp,
    ],
    [PageType, TransferType, CostAttr],
)
