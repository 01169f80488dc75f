"""`--kernels=tvm`: kernels that TVM compiles, in the programs of the C backend.

The one entry from the driver, which imports TVM only when it is called.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from poetc.backends.c.boards import Board
from poetc.backends.c.program import Kernel
from poetc.backends.tvm import HOST
from poetc.backends.tvm.requirement import require_tvm
from poetc.errors import InputError

BESIDE_BYTES = 384
"""The stack of a step of firmware beside its deepest kernel."""


@dataclass(frozen=True)
class TVMKernels:
    """Compiles kernels for a processor: a core of a board, or what `--target` names."""

    processor: str

    def assembly(self, kernels: Sequence[Kernel], stack_bytes: int | None) -> str:
        """The functions of the kernels. Raises InputError if one takes so much of a stack of
        `stack_bytes` that not enough is left for the step."""
        from poetc.backends.tvm.plain import assembly, frames, processor

        text = assembly(kernels, processor(self.processor))
        if stack_bytes is not None:
            name, frame = max(frames(text).items(), key=lambda item: item[1], default=("", 0))
            if frame + BESIDE_BYTES > stack_bytes:
                raise InputError(
                    f"{name} takes {frame} bytes of stack, and the step up to {BESIDE_BYTES} more, "
                    f"but {stack_bytes} are set aside: --stack={frame + BESIDE_BYTES}"
                )
        return text


def kernels_for(target: str | None, board: Board | None) -> tuple[TVMKernels, Board | None]:
    """The TVM compiler of kernels for `--target`, or for a core of the board with a unit for
    floating-point numbers; and the board with that core only.

    Raises InputError where TVM is missing or has no code for that.
    """
    require_tvm("--kernels=tvm")
    from poetc.backends.tvm.plain import CORES, processor

    if board is None:
        name = HOST if target is None else target
        if name in CORES:
            raise InputError(f"--kernels=tvm for {name}, without --board: name a board that has it")
        processor(name)
        return TVMKernels(name), None
    able = [cpu for cpu in board.cpus if cpu in CORES]
    if target is not None and target not in board.cpus:
        raise InputError(f"--target={target}: {board.name} has {', '.join(board.cpus)}")
    if not able or (target is not None and target not in able):
        core = target or ", ".join(board.cpus)
        raise InputError(
            f"--kernels=tvm: {core} computes floating-point numbers by software, which takes as "
            "long whoever compiles the kernels; leave it out"
        )
    core = target or able[0]
    return TVMKernels(core), replace(board, cpus=(core,))
