"""Scripts of examples/ that say at their top how they are used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_commands(script: str, directory: Path, name: str = "") -> str:
    """Run the commands in the description of `examples/<script>`, apart from those that install
    something, as they are written there; what the last one prints. They may leave open the
    `name` of a step."""
    text = (ROOT / "examples" / script).read_text()
    commands = re.findall(r"^    (python|poetc|make) (.*)$", text, re.MULTILINE)
    assert len(commands) == 4
    for program, words in commands:
        found = Path(sys.executable).with_name(program)
        command = [str(found) if found.exists() else program, *words.split()]
        for place, value in (("DIRECTORY", str(directory)), ("NAME", name)):
            command = [word.replace(place, value) for word in command]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    return done.stdout


def differences(output: str) -> list[float]:
    """Of results from expected ones, as `examples/run_c.py` prints them."""
    return [float(number) for number in re.findall(r"relative difference (\S+)", output)]
