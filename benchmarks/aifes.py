"""The same training steps by Fraunhofer's AIfES and by poetc, on an emulated Cortex-M4F.

    python -m benchmarks.aifes --aifes=DIR [MODEL ...]

DIR is a checkout of AIfES (github.com/Fraunhofer-IMS/AIfES_for_Arduino); nothing of it is here. Its
C sources are compiled as they are; benchmarks/aifes/ has what connects its layers to a model, and
puts its step in the place of the generated one, in the same firmware. Prints the table of
docs/peers.md. Needs QEMU, arm-none-eabi-gcc, and newlib for it, whose expf and logf AIfES calls.
"""

from __future__ import annotations

import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import document
from benchmarks.boards import MODELS, compile_model
from benchmarks.step_counts import count_steps
from poetc.backends.c.boards import CPU_FLAGS, load_board
from poetc.backends.c.measure.emulate import CROSS, counter, run_tool
from poetc.errors import InputError

OPTION = "--aifes"
BOARD, CPU, OPTIMISE = "mps2-an386", "cortex-m4", "-O2"
GLUE = Path(__file__).parent / "aifes"
PARTS = ("src/basic/base", "src/basic/default", "src/cnn/base", "src/cnn/default")
"""Where the sources are that run on any processor; what is not called is not linked."""
STACK_BYTES = 1 << 20
"""More than any of the steps takes: AIfES has the update of a parameter on the stack."""

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Peer:
    """A model by AIfES. `file` in benchmarks/aifes/ connects its layers, for which the compiler is
    given `definitions`; `needs` is a file that not every version of AIfES has. `convolutions` are
    the arguments that are kernels; with any, the input is turned around in time."""

    file: str
    needs: str
    definitions: tuple[str, ...] = ()
    convolutions: tuple[int, ...] = ()

    def there(self, argument: int, array: np.ndarray) -> np.ndarray:
        """An argument or new parameter as AIfES has it."""
        if argument in self.convolutions:
            return np.ascontiguousarray(array[::-1].transpose(3, 0, 1, 2))
        turned = self.convolutions and array.ndim == 4
        return np.ascontiguousarray(array[:, ::-1]) if turned else array

    def back(self, argument: int, flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """A new parameter as the model has it."""
        if argument not in self.convolutions:
            return flat.reshape(shape)
        return flat.reshape(shape[3], *shape[:3]).transpose(1, 2, 3, 0)[::-1]


def perceptron(activation: str, batch: int, *sizes: int) -> Peer:
    """Three dense layers; `sizes` are those of the input and of each."""
    names = ("BATCH", "INPUTS", "HIDDEN1", "HIDDEN2", "OUTPUTS")
    values = zip(names, (batch, *sizes), strict=True)
    definitions = (f"-DACTIVATION={activation}", *(f"-D{name}={n}" for name, n in values))
    return Peer("perceptron.c", "src/basic/base/ailoss/ailoss_crossentropy.c", definitions)


PEERS = {
    "gesture_mlp": perceptron("tanh", 4, 36, 32, 16, 6),
    "kws_conv": Peer("kws_conv.c", "src/cnn/base/ailayer/ailayer_conv2d.c", convolutions=(2, 3)),
    "mlp_mnist": perceptron("relu", 1, 784, 128, 64, 10),
}


@dataclass(frozen=True)
class Step:
    """What a step takes: instructions, bytes of RAM and, of these, of stack; bytes of flash. The
    errors are those of the loss, relative, and of the new parameters, relative to the largest
    change of any."""

    instructions: int
    ram: int
    stack: int
    flash: int
    loss_error: float
    update_error: float


def library(checkout: Path, directory: Path) -> Path:
    """AIfES, compiled."""
    sources = sorted(file for part in PARTS for file in (checkout / part).rglob("*.c"))
    options = (OPTIMISE, *CPU_FLAGS[CPU], "-ffunction-sections", "-fdata-sections", "-w")
    objects = []
    for number, file in enumerate(document.progress(sources)):
        objects.append(directory / f"{number}.o")
        command = (f"{CROSS}gcc", *options, f"-I{checkout / 'src'}", "-c", file, "-o", objects[-1])
        run_tool(command, f"compiling {file}")
    archive = directory / "libaifes.a"
    run_tool((f"{CROSS}ar", "rcs", archive, *objects), "collecting AIfES")
    return archive


def by_poetc(model: str, directory: Path) -> Step:
    """With all the RAM that the board has."""
    compile_model(model, directory, (f"--board={BOARD}",))
    with np.load(MODELS / f"{model}.npz") as arrays:
        return measured(directory, dict(arrays), None, (f"CFLAGS={OPTIMISE}",))


def by_aifes(model: str, directory: Path, checkout: Path, archive: Path) -> Step:
    """The firmware of poetc, with the step of AIfES."""
    peer, board = PEERS[model], load_board(BOARD)
    assert board is not None
    compile_model(model, directory, (f"--board={BOARD}", f"--stack={STACK_BYTES}"))
    with np.load(MODELS / f"{model}.npz") as file:
        arrays = dict(file)
    for i in range(sum(name.startswith("arg") for name in arrays)):
        array = peer.there(i, arrays[f"arg{i}"])
        (directory / "data" / f"arg{i}.bin").write_bytes(array.tobytes())
    for name in ("step.c", "peer.h", peer.file):
        (directory / name).write_bytes((GLUE / name).read_bytes())
    (directory / "aifes").symlink_to(checkout / "src")  # A name without spaces.
    sources = [Path(name).name for name in board.files if name.endswith(".c")]
    words = (
        f"SOURCES={' '.join([*sources, 'poetc_store.c', 'step.c', peer.file])}",
        f"CFLAGS={OPTIMISE} {' '.join(peer.definitions)} -isystem aifes",
        f"LDFLAGS={archive} -lm -lc_nano",
        f"RAM_BYTES={board.ram_bytes}",
    )
    return measured(directory, arrays, peer, words)


def measured(directory: Path, arrays: Arrays, peer: Peer | None, words: tuple[str, ...]) -> Step:
    """Builds and runs a step, with `words` for make. Without `peer` it is that of poetc."""
    with counter() as plugin:
        (step,) = count_steps(directory, CPU, plugin, words=words)
    make = ("make", "-s", "-C", directory, f"CPU={CPU}", *words)
    done = run_tool((*make, "run"), "running the step")
    printed = done.stdout + done.stderr
    used = re.search(r"stack: (\d+) of (\d+) bytes, status: ok", printed)
    assert used is not None, printed
    sizes = run_tool((*make, "size"), "measuring the firmware").stdout
    section = {k: int(v) for k, v in re.findall(r"^(\.[\w.]+) +(\d+)", sizes, re.M)}
    data = directory / "data"
    count = sum(name.startswith("out") for name in arrays)
    ram = section[".data"] + section[".bss"] + int(used[1])
    found: list[np.ndarray] = []
    for i in range(count):
        flat, wanted = np.fromfile(data / f"out{i}.bin", np.float32), arrays[f"out{i}"]
        found.append(peer.back(i - 1, flat, wanted.shape) if peer else flat.reshape(wanted.shape))
    if peer is not None:
        ram += int(np.fromfile(data / f"out{count}.bin", np.uint32)[0])
    return Step(
        step.instructions,
        ram,
        int(used[1]),
        section[".text"] + section[".data"],
        *errors(found, arrays),
    )


def errors(found: list[np.ndarray], arrays: Arrays) -> tuple[float, float]:
    """Of the loss and of the update, against what XLA has computed."""
    wanted = [arrays[f"out{i}"].astype(np.float64) for i in range(len(found))]
    parameters = range(1, len(found))
    changed = max(np.abs(wanted[i] - arrays[f"arg{i - 1}"]).max() for i in parameters)
    missed = max(np.abs(found[i] - wanted[i]).max() for i in parameters)
    loss = abs(float(found[0]) - float(wanted[0])) / abs(float(wanted[0]))
    return loss, float(missed / changed)


def rows(model: str, everything: Path, checkout: Path, archive: Path) -> list[str]:
    """Of the table."""
    ours = by_poetc(model, everything / f"{model}-poetc")
    steps = {"poetc": ours}
    if (checkout / PEERS[model].needs).is_file():
        steps = {"AIfES": by_aifes(model, everything / model, checkout, archive), **steps}
    lines = []
    for name, step in steps.items():
        cells = (
            model,
            name,
            f"{step.instructions:,}",
            f"{step.instructions / ours.instructions:.1f}",
            f"{step.ram:,}",
            f"{step.ram / ours.ram:.1f}",
            f"{step.stack:,}",
            f"{step.flash:,}",
            *(f"{error:.1e}" if error else "0" for error in (step.loss_error, step.update_error)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main(words: list[str]) -> None:
    given = [word.partition("=")[2] for word in words if word.startswith(f"{OPTION}=")]
    models = document.chosen([w for w in words if not w.startswith(f"{OPTION}=")], PEERS)
    if len(given) != 1 or not (Path(given[0]) / "src/core/aifes_core.h").is_file():
        sys.exit(f"{OPTION}=DIR: DIR is a checkout of AIfES, with src/core/aifes_core.h")
    checkout = Path(given[0]).resolve()
    with tempfile.TemporaryDirectory(prefix="poetc-aifes-") as name:
        try:
            archive = library(checkout, Path(name))
            print(
                "| model | by | instructions | / poetc | RAM | / poetc | stack | flash "
                "| error of the loss | of the update |\n|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
            )
            for model in document.progress(models):
                print("\n".join(rows(model, Path(name), checkout, archive)), flush=True)
        except InputError as error:
            sys.exit(str(error))
    for model in models:
        if not (checkout / PEERS[model].needs).is_file():
            print(f"\n{model} is by poetc only: this AIfES has no {PEERS[model].needs}.")


if __name__ == "__main__":
    document.run(main)
