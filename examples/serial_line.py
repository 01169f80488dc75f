"""Train on a board over a serial line: the other end of the examples for Arduino and Zephyr.

    python examples/serial_line.py /dev/ttyACM0 ARRAYS.npz [--steps N] [-o RESULTS.npz]

The file holds the arguments (`arg0`, ...), as examples/gesture_mlp.npz does. The board asks for
those that it needs. Results of one element are printed, and all are written to RESULTS.npz, with
the types and shapes of the arrays `out0`, ... of the file, otherwise as bytes.
"""

from __future__ import annotations

import argparse
import os
import termios
import tty
from pathlib import Path

import numpy as np

STATUS = "status: "


class Line:
    """The serial line, and what the board sends over it."""

    def __init__(self, device: str) -> None:
        self.file = os.open(device, os.O_RDWR | os.O_NOCTTY)
        tty.setraw(self.file)
        settings = termios.tcgetattr(self.file)
        settings[4] = settings[5] = termios.B115200
        termios.tcsetattr(self.file, termios.TCSANOW, settings)
        self.received = b""

    def send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.file, data) :]

    def receive(self, count: int) -> bytes:
        """The next bytes."""
        while len(self.received) < count:
            self.received += os.read(self.file, 4096)
        data, self.received = self.received[:count], self.received[count:]
        return data

    def receive_line(self) -> str:
        """The next line of text, without its end."""
        while b"\n" not in self.received:
            self.received += os.read(self.file, 4096)
        line, _, self.received = self.received.partition(b"\n")
        return line.decode(errors="replace").strip()

    def command(self, letter: bytes, arguments: np.lib.npyio.NpzFile) -> dict[int, bytes]:
        """Sends a command and gives the board what it asks for. The results that it sends."""
        self.send(letter)
        results: dict[int, bytes] = {}
        while not (line := self.receive_line()).startswith(STATUS):
            match line.split():
                case ["argument", number, count]:
                    data = np.ascontiguousarray(arguments[f"arg{number}"]).tobytes()
                    if len(data) != int(count):
                        raise SystemExit(f"arg{number} has {len(data)} bytes, not {count}")
                    self.send(data)
                case ["result", number, count]:
                    results[int(number)] = self.receive(int(count))
                case _:
                    print(f"board: {line}")
        if line != f"{STATUS}ok":
            raise SystemExit(f"board: {line}")
        return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("arrays", type=Path)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()

    arrays = np.load(options.arrays)
    line = Line(options.device)
    for _ in range(options.steps):
        line.command(b"s", arrays)
    results: dict[str, np.ndarray] = {}
    for number, data in line.command(b"r", arrays).items():
        name = f"out{number}"
        like = arrays[name] if name in arrays else np.zeros(len(data), np.uint8)
        results[name] = np.frombuffer(data, like.dtype).reshape(like.shape)
        if like.size == 1:
            print(f"{name}: {results[name].item():.6f} after {options.steps} steps")
    if options.output is not None:
        np.savez(options.output, **results)  # pyright: ignore[reportArgumentType]


if __name__ == "__main__":
    main()
