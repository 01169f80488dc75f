"""A hook of MkDocs: the first page of the site is README.md; CONTRIBUTING.md and
CHANGELOG.md are pages, too.

    mkdocs build --strict

Links to files that are not on the site are their text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages that are not in docs/."""
    for source, page in PAGES.items():
        text = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", _link, (ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    return files


def _link(found: re.Match[str]) -> str:
    text, target = found.groups()
    name, _, anchor = target.partition("#")
    if target.startswith(("http", "#")):
        return found[0]
    if name.startswith("docs/") and name.endswith((".md", ".png")):
        return f"[{text}]({target.removeprefix('docs/')})"
    if name in PAGES:
        return f"[{text}]({PAGES[name]}{'#' + anchor if anchor else ''})"
    return text
