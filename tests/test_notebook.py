"""The notebook of the examples runs, and shows what it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
for needed in ("jax", "matplotlib", "ipykernel"):
    pytest.importorskip(needed)

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def outputs(cell: Any, kind: str) -> list[str]:
    """What a cell shows in that form."""
    found = [o.get("data", {}).get(kind) for o in cell.get("outputs", ())]
    if kind == "text":
        found = [output.get("text") for output in cell.get("outputs", ())]
    return [text for text in found if text]


@pytest.mark.slow
def test_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("POETC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    code = {cell.source: cell for cell in notebook.cells if cell.cell_type == "code"}

    def cell(part: str) -> Any:
        (found,) = (cell for source, cell in code.items() if part in source)
        return found

    (report,) = outputs(cell("program = poetc.compile"), "text/html")
    assert "65,536 B (64.0 KiB)" in report
    (drawn,) = outputs(cell('"memory.svg"'), "image/svg+xml")
    assert "<svg" in drawn
    for part in ("plt.scatter", '"loss"', "energy of a step"):
        assert outputs(cell(part), "image/png"), part
    (said,) = outputs(cell("accuracy ="), "text")
    right, _, bytes_ = said.partition(" right, in ")
    assert float(right.rstrip("%")) > 90
    assert int(bytes_.split()[0].replace(",", "")) <= 64 * 1024
    (why,) = outputs(cell('ram="1.5KB"'), "text")
    assert why.startswith("ram LeastRam(")
