"""Makes docs/report.png, the picture of the page of --report in the README.

    python docs/report_picture.py

Needs Chromium and Playwright.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
WIDTH, HEIGHT = 1100, 800


def main() -> None:
    """Compiles resnet8 for 256 KB and takes a picture of its page."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "page.html"
        model = "tests/models/resnet8.mlir"
        poetc = [sys.executable, "-m", "poetc.cli", model, "--ram=256KB", "-q"]
        outputs = [f"--report={page}", f"--output={folder}/step.mlir"]
        subprocess.run([*poetc, *outputs], cwd=ROOT, check=True)
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        tab.goto(page.as_uri())
        tab.wait_for_selector("body[data-drawn]")
        tab.locator("#picture").screenshot(path=ROOT / "docs" / "report.png")
        browser.close()


if __name__ == "__main__":
    main()
