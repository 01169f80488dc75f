"""The structure of the source: imports point one way, and never in a circle."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]

LAYERS = (
    ("errors",),
    ("units", "names", "files", "lock", "page", "description", "terminal"),
    ("streams",),
    ("budget", "diagnosis"),
    ("schedule",),
    ("patterns",),
    ("options",),
    ("ir",),
    ("kernels",),
    ("interpreter",),
    ("simplify", "costmodel", "image", "image_files", "saved", "tensors", "step_data", "compare"),
    ("variants",),
    ("backends",),
    ("planning",),
    ("passes",),
    ("request",),
    ("pipeline", "entries"),
    ("driver",),
    ("report", "report_ram", "report_rows", "profile", "tvm", "frontends", "universe"),
    ("compilation",),
    ("sweep", "emit", "views", "explain", "arrays", "state", "source"),
    ("signature",),
    ("program",),
    ("api",),
    ("cli",),
)
"""Modules and packages of poetc, from the lowest. None imports one that stands in a later line."""


def _modules() -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in sorted((ROOT / "poetc").rglob("*.py")):
        *parents, name = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parents if name == "__init__" else [*parents, name])] = path
    return found


def _imports(path: Path, modules: dict[str, Path]) -> set[str]:
    """The modules of poetc that a module imports, anywhere but for type checkers."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in modules else str(node.module) for name in names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found & modules.keys()


def _graph() -> dict[str, set[str]]:
    modules = _modules()
    return {name: _imports(path, modules) - {name} for name, path in modules.items()}


def test_no_import_circle():
    graph = _graph()
    assert sum(map(len, graph.values())) > len(graph), "imports are not found"
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from error


def test_imports_point_down():
    level = {name: number for number, names in enumerate(LAYERS) for name in names}
    wrong = [
        f"{module} imports {other}"
        for module, imported in _graph().items()
        for other in sorted(imported)
        if "poetc" not in (module, other)
        and level[other.split(".")[1]] > level[module.split(".")[1]]
    ]
    assert not wrong


MODULE_LINES, CLASS_LINES = 600, 300


def test_modules_and_classes_are_short():
    long: set[str] = set()
    for name, path in _modules().items():
        text = path.read_text()
        if text.count("\n") > MODULE_LINES:
            long.add(name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > CLASS_LINES:
                    long.add(f"{name}.{node.name}")
    assert not long, f"over {MODULE_LINES} or {CLASS_LINES} lines: {sorted(long)}"
