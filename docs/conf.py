"""The documentation site; `make docs` builds it into docs/_build/html."""

import logging
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
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
autodoc_typehints = "none"
# Attributes as part of their class: a named tuple has them as members, too.
napoleon_use_ivar = True
suppress_warnings = [
    # Links to the README and to source files lead out of the site; tests/test_docs.py checks that they lead somewhere.
    "myst.xref_missing",
]
