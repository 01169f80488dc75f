"""How large the page of `--report` is.

    python -m benchmarks.report_page [MODEL ...]

Compiles each model with unlimited RAM and writes its page. Fails where one is larger than 2 MB.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import document

MODELS = Path(__file__).parent.parent / "tests" / "models"
MOST_BYTES = 2_000_000


NAMES = ("gesture_mlp", "resnet8", "bert_base")


def main(words: list[str]) -> None:
    """Prints the bytes of each page."""
    for model in document.progress(document.chosen(words, NAMES)):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            poetc = [sys.executable, "-m", "poetc.cli", str(MODELS / f"{model}.mlir"), "-q"]
            options = [f"--report={page}", "-o", str(Path(folder) / "step.mlir")]
            subprocess.run([*poetc, *options], check=True)
            size = page.stat().st_size
        print(f"{model}: {size:,} bytes", flush=True)
        if size > MOST_BYTES:
            sys.exit(f"{model}: more than {MOST_BYTES:,} bytes")


if __name__ == "__main__":
    document.run(main)
