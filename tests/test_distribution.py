"""What users install and read: the packages, and the documentation site."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*words: str | Path, folder: Path = ROOT) -> str:
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        [sys.executable, "-m", *map(str, words)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_packages(tmp_path: Path) -> None:
    """The wheel has all files of the package that the repository has, and no others."""
    copy = tmp_path / "copy"
    skipped = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(ROOT / "poetc", copy / "poetc", ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ours = {str(path.relative_to(copy)) for path in copy.glob("poetc/**/*") if path.is_file()}
    run("build", "--no-isolation", "--outdir", tmp_path / "dist", folder=copy)
    (wheel,), (source,) = (list((tmp_path / "dist").glob(end)) for end in ("*.whl", "*.tar.gz"))
    assert run("twine", "check", "--strict", wheel, source).count("PASSED") == 2
    with zipfile.ZipFile(wheel) as file:
        assert {name for name in file.namelist() if name.startswith("poetc/")} == ours
    with tarfile.open(source) as file:
        assert ours <= {name.partition("/")[2] for name in file.getnames()}


@pytest.mark.slow
def test_site(tmp_path: Path) -> None:
    """It is built without a warning: no page is missing, no link or anchor leads nowhere."""
    run("mkdocs", "build", "--strict", "--site-dir", tmp_path / "site")
    assert "poetc" in (tmp_path / "site" / "index.html").read_text()
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    linked = set(re.findall(r"\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text()))
    assert pages and linked <= pages
