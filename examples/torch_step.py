"""Export a training step of PyTorch for poetc.

    pip install 'poetc[torch]'
    python examples/torch_step.py DIRECTORY

writes DIRECTORY/step.mlir and DIRECTORY/step.npz. Then

    poetc DIRECTORY/step.mlir --ram=12KB --emit=c -o DIRECTORY/out
    make -C DIRECTORY/out
    python examples/run_c.py DIRECTORY/out DIRECTORY/step.npz
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import torch  # pyright: ignore[reportMissingImports]
    from torch import nn  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:
    print(f"{error}: pip install 'poetc[torch]'", file=sys.stderr)
    sys.exit(2)

from poetc.frontends.torch import export


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/torch_step.py DIRECTORY")
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 6 * 6, 5),
    )
    optimiser = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    images, labels = torch.randn(4, 1, 12, 12), torch.randint(0, 5, (4,))

    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "step"
    loss = nn.functional.cross_entropy
    written = export(module, loss, optimiser, images, labels, path)
    for number, name in enumerate(written.names):
        result = written.updates.get(number)
        print(f"arg{number} {name}{'' if result is None else f', updated by out{result}'}")


if __name__ == "__main__":
    main()
