"""Scripts of examples/ that say at their top how they are used."""

from __future__ import annotations

import re
from pathlib import Path

from pages import ROOT, run_commands


def follow(script: str, directory: Path, name: str = "") -> str:
    """Run the commands in the description of `examples/<script>`, apart from those that install
    something, as they are written there; what they print. They may leave open the `name` of a
    step."""
    text = (ROOT / "examples" / script).read_text()
    commands = re.findall(r"^    ((?:python|poetc|make) .*)$", text, re.MULTILINE)
    assert len(commands) == 4
    for place, value in (("DIRECTORY", str(directory)), ("NAME", name)):
        commands = [command.replace(place, value) for command in commands]
    return run_commands("\n".join(commands), ROOT)


def differences(output: str) -> list[float]:
    """Of results from expected ones, as `examples/run_c.py` prints them."""
    return [float(number) for number in re.findall(r"relative difference (\S+)", output)]
