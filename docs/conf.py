"""The documentation site; `make docs` builds it into docs/_build/html."""

import logging
import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))
# Numba-compiled functions keep their docstrings only where they are not compiled.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")
logging.getLogger().setLevel(logging.WARNING)  # fbgemm tells of every library that it loads

project = "recsys"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "recsys"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
# Attributes as part of their class: a named tuple has them as members, too.
napoleon_use_ivar = True

# Pages whose text lies outside docs/: on a git host they point there, in the site they hold it.
ELSEWHERE = {"criteo": "data/README.md", "contributing": "CONTRIBUTING.md"}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#\s:]+)(#[^)\s]*)?\)")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", read_page)


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the text of :data:`ELSEWHERE` in place, and turn links that leave docs/ to where the site has it."""
    path = ROOT / ELSEWHERE[page] if page in ELSEWHERE else DOCS / f"{page}.md"
    text = path.read_text(encoding="utf-8") if page in ELSEWHERE else source[0]
    source[0] = _LINK.sub(lambda link: _on_site(link, path.parent), text)


def _on_site(link: re.Match[str], folder: Path) -> str:
    target = (folder / link[2]).resolve()
    pages = {ROOT / place: f"{name}.md" for name, place in ELSEWHERE.items()}
    if not target.exists():
        return link[0]  # Sphinx's warning names it
    if target in pages or target.is_relative_to(DOCS):
        return f"[{link[1]}]({pages.get(target) or target.relative_to(DOCS)}{link[3] or ''})"
    return link[1]  # a file of the repository that is no page
