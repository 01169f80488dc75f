"""MISRA C:2012 in the generated C: every rule that cppcheck's addon finds violated, how often, and
why the code deviates from it.

    python -m benchmarks.misra --output docs/misra.md

Needs cppcheck with its addon `misra`. Fails where a rule is violated for which no reason is given,
and where a reason is given for a rule that is kept.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from benchmarks import document

ROOT = Path(__file__).parent.parent
STEPS = {
    "gesture_mlp, pages": ("examples/gesture_mlp.mlir", "--ram=8KB", "--stream=never"),
    "gesture_mlp, in RAM": ("examples/gesture_mlp.mlir", "--params=ram"),
    "lenet5, DMA": ("tests/models/lenet5.mlir", "--ram=200KB", "--gap=50%"),
}
"""Steps by name: the file, and options."""

HOST_ONLY = {"main.c", "store_file.c", "store_thread.c"}
"""Files for trying a step on the host, which no product needs."""

DEVIATIONS = {
    "2.4": (
        "advisory",
        "a tag that is not used",
        "the states of a transfer are constants of an enumeration without a type",
    ),
    "2.5": (
        "advisory",
        "a macro that is not used",
        "headers say sizes, offsets and names of all arguments and results; a program uses those "
        "it needs",
    ),
    "8.7": (
        "advisory",
        "what one file uses has no external linkage",
        "waiting for any transfer is also what kernels in tiles do, whose file is only written "
        "with steps that have some",
    ),
    "8.9": (
        "advisory",
        "an object that one function uses is declared in it",
        "the arena has a section and an alignment that a program may choose, and stands at the "
        "head of the file",
    ),
    "11.5": (
        "advisory",
        "no conversion from a pointer to void to one to an object",
        "tensors of all types lie in one arena, and bytes of pages are of any type; alignment is "
        "proven when memory is planned",
    ),
    "12.1": (
        "advisory",
        "precedence of operators is made explicit",
        "only comparisons inside logical and conditional operators are without parentheses; "
        "`-Wparentheses` is clean",
    ),
    "15.1": (
        "advisory",
        "no goto",
        "the one label of a step is where a failed transfer ends all others that are under way",
    ),
    "15.5": (
        "advisory",
        "a function returns once, at its end",
        "a transfer that fails ends a step at once; a result variable would hide where",
    ),
    "16.4": (
        "required",
        "a switch has a default",
        "the texts of statuses: without a default the compiler warns of a status that has none "
        "(`-Wswitch`), and what is no status has a text after the switch",
    ),
    "17.8": (
        "advisory",
        "parameters are not modified",
        "what is left of a length, and a hash on the way",
    ),
    "18.4": (
        "advisory",
        "no + or - on pointers",
        "fields of a record in bytes, at constant places within its size",
    ),
    "19.2": (
        "advisory",
        "no union",
        "the arena is a union with an integer only to be aligned; the buffer of a transfer is "
        "read or written, and its direction says which member it is",
    ),
}
"""Rules by number: category, what the rule asks for, and why the code deviates."""


def violations(directory: Path) -> Counter[str]:
    """How often each rule is violated in the C files of a directory.

    Raises SystemExit if cppcheck is missing or fails.
    """
    files = sorted(str(f) for f in directory.glob("*.c") if f.name not in HOST_ONLY)
    line = ["cppcheck", "--addon=misra", "--std=c99", "--quiet", "--template={id}"]
    line += ["-I", str(directory), *files]
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise SystemExit("cppcheck is missing (Debian: apt-get install cppcheck)") from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{' '.join(line)}: {error.stderr}{error.stdout}") from error
    found = re.findall(r"^misra-c2012-(\d+\.\d+)$", done.stderr, re.MULTILINE)
    if not found:
        raise SystemExit(f"no violation at all in {directory}: {done.stderr}{done.stdout}")
    return Counter(found)


def emitted(step: str, directory: Path) -> Path:
    """The directory with the C of a step."""
    file, *options = STEPS[step]
    command = [str(Path(sys.executable).with_name("poetc")), str(ROOT / file), *options]
    subprocess.run([*command, "-q", "--emit=c", "-o", str(directory)], check=True)
    return directory


def faults(found: Mapping[str, Counter[str]]) -> list[str]:
    """Where violations and reasons are not the same rules, in sentences."""
    violated = set().union(*found.values())
    return [
        *(
            f"rule {r} is violated, and no reason is given"
            for r in sorted(violated - {*DEVIATIONS})
        ),
        *(f"rule {r} has a reason, and is kept" for r in sorted({*DEVIATIONS} - violated)),
    ]


def main(words: list[str]) -> int:
    """Prints the document; the exit code."""
    document.chosen(words, ())
    with tempfile.TemporaryDirectory() as directory:
        found = {
            step: violations(emitted(step, Path(directory) / str(number)))
            for number, step in enumerate(document.progress(STEPS))
        }
    for fault in faults(found):
        print(fault, file=sys.stderr)
    print(
        f"""# MISRA C:2012

Made by `python -m benchmarks.misra --output docs/misra.md`, with the addon of cppcheck, which
checks most of the rules. What it finds in the C that is for a device, {len(found)} steps, is listed
here: how often, and why the code deviates. Rules that are not listed have no finding. Files for the
host ({", ".join(sorted(HOST_ONLY))}) are left out.

| rule | category | asks for | {" | ".join(found)} | reason |
|---|---|---|{"--:|" * len(found)}---|"""
    )
    for rule, (category, asks, reason) in DEVIATIONS.items():
        counts = " | ".join(str(counted[rule]) for counted in found.values())
        print(f"| {rule} | {category} | {asks} | {counts} | {reason} |")
    return 1 if faults(found) else 0


if __name__ == "__main__":
    document.run(main)
