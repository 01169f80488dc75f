"""A PyTorch module trained by Apache TVM in half the memory, with the same gradients.

PyTorch -> torch.export -> Relax -> gradients by Relax -> poetc.tvm.PoetSchedule -> TVM's machine.

    pip install 'poetc[tvm,torch]'
    python examples/relax_training.py

The kernels are TVM's. What poetc decides is what is kept, computed again, or written to a file
until it is needed. The memory is measured: the heap of the process while the function runs.
"""

# TVM's annotations are narrower than what it takes.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

try:
    import torch
    import tvm
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program
    from tvm.relax.training.loss import CrossEntropyLoss
    from tvm.relax.training.utils import AppendLoss
except ModuleNotFoundError as error:
    print(f"{error}: pip install 'poetc[tvm,torch]'", file=sys.stderr)
    sys.exit(2)

import poetc.tvm

BATCH, CLASSES = 8, 10
STEP = "main_loss_adjoint"


class Net(torch.nn.Module):
    """Two residual blocks and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.blocks = torch.nn.ModuleList(
            [torch.nn.Conv2d(8, 8, 3, padding=1, bias=False) for _ in range(4)]
        )
        self.head = torch.nn.Linear(8 * 7 * 7, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        for first, second in zip(self.blocks[::2], self.blocks[1::2], strict=True):
            x = torch.relu(x + second(torch.relu(first(x))))
            x = torch.nn.functional.max_pool2d(x, 2)
        return self.head(x.flatten(1))


def training_function(net: torch.nn.Module, x: torch.Tensor) -> tvm.IRModule:
    """A module with the function STEP(x, parameters ..., labels) -> (loss, gradients)."""
    exported = torch.export.export(net, (x,))
    module = from_exported_program(
        exported, keep_params_as_input=True, unwrap_unit_return_tuple=True
    )
    module, _ = relax.frontend.detach_params(module)
    logits = relax.TensorType((BATCH, CLASSES), "float32")
    labels = relax.TensorType((BATCH,), "int64")
    loss = CrossEntropyLoss(reduction="mean")(logits, labels)
    module = AppendLoss("main", loss, 1, "main_loss")(module)
    parameters = list(module["main_loss"].params)[1:-1]
    module = relax.transform.Gradient("main_loss", require_grads=parameters)(module)
    step = module[STEP].with_attr("global_symbol", STEP)
    return tvm.IRModule({STEP: step})


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of the GNU C library."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


_mallinfo = ctypes.CDLL(None).mallinfo2
_mallinfo.restype = _MallocInfo


def heap_bytes() -> int:
    """Bytes that are allocated on the heap now."""
    found = _mallinfo()
    return found.uordblks + found.hblkhd


def run(module: tvm.IRModule, pipeline: str, arguments: Sequence[Any]) -> tuple[Any, int]:
    """What STEP returns, and the most heap that it takes, seen before and after each of its calls.

    Arguments are there before it, so they are not in that number.
    """
    executable = tvm.compile(module, "llvm", relax_pipeline=pipeline)
    machine = relax.VirtualMachine(executable, tvm.cpu(), memory_cfg="naive")
    step, peak = machine[STEP], 0

    def look(function: Any, name: str, before: bool, result: Any, *arguments: Any) -> int:
        nonlocal peak
        peak = max(peak, heap_bytes())
        return 0  # go on

    machine.set_instrument(look)
    step(*arguments)  # once for what is allocated at first and then kept
    peak = start = heap_bytes()
    results = step(*arguments)
    return results, peak - start


def main() -> None:
    torch.manual_seed(0)
    net = Net()
    x, labels = torch.randn(BATCH, 1, 28, 28), torch.randint(0, CLASSES, (BATCH,))
    parameters = dict(net.named_parameters())
    tensors = (x, *parameters.values(), labels)
    arguments = [tvm.runtime.tensor(tensor.detach().numpy()) for tensor in tensors]

    module = training_function(net, x)
    (loss, gradients), whole = run(module, "default", arguments)
    print(f"TVM alone:   loss {float(loss.numpy()):.6f}, {whole:,} bytes")

    scheduled = poetc.tvm.PoetSchedule(ram=whole // 2, gap=0.05)(module)
    (loss, new_gradients), half = run(scheduled, "poetc", arguments)
    found = scheduled[STEP].attrs["poetc"]
    print(f"with poetc:  loss {float(loss.numpy()):.6f}, {half:,} bytes, of which")
    print(f"             {found['arena_bytes']:,} arena, {found['result_bytes']:,} results;")
    print(f"             {found['recomputes']} kernels run again, {found['page_ins']} page-ins")

    for old, new in zip(gradients, new_gradients, strict=True):
        assert np.array_equal(old.numpy(), new.numpy()), "gradients differ"
    torch.nn.functional.cross_entropy(net(x), labels).backward()
    for new, parameter in zip(new_gradients, parameters.values(), strict=True):
        assert parameter.grad is not None
        # Relative to the largest: where a relu's operand is nearly zero, rounding decides.
        expected = parameter.grad.numpy()
        np.testing.assert_allclose(new.numpy(), expected, rtol=0, atol=1e-3 * abs(expected).max())
    print("gradients:   the same bits as TVM alone, and PyTorch's numbers")


if __name__ == "__main__":
    main()
