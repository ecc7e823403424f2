"""Settings of Sphinx for the docs site: `./safe-sysid docs` builds it into build/site, every warning an error.

Nothing on the site is loaded from elsewhere. The pages are plain Markdown, which code hosts show as they are: MyST
reads CommonMark, and makes the anchors of headings by the same rule as GitHub.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

_VERSION = re.search(
    r'__version__ = "([^"]+)"', (Path(__file__).parents[1] / "safe_sysid" / "__init__.py").read_text("utf-8")
)

project = "safe_sysid"
version = release = _VERSION[1] if _VERSION else ""
copyright = "the safe_sysid maintainers, Apache-2.0"

extensions = ["myst_parser", "sphinx_copybutton", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
sys.path.insert(0, str(Path(__file__).parents[1]))  # docs of this source, whatever is installed
autodoc_typehints = "signature"
nitpick_ignore_regex = [("py:.*", ".*")]  # docstrings name much that has no page of its own
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence", "html_image"]
myst_heading_anchors = 4
nitpicky = True
highlight_language = "none"  # a fence says its language, or has none

html_theme = "furo"
html_title = f"safe_sysid {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_show_sourcelink = False
html_copy_source = False
copybutton_exclude = ".linenos, .gp, .go"


def setup(app: Any) -> None:
    """Make README the front page of the site, and lead links to it there."""
    readme = Path(__file__).parents[1] / "README.md"

    def read(_: Any, page: str, source: list[str]) -> None:
        if page == "index":
            app.env.note_dependency(str(readme))
            text = re.sub(r'(\]\(|src=")docs/', r"\1", readme.read_text("utf-8"))
            text = text.replace("](examples/", "](../examples/")
            source[0] = f"{text}\n{source[0]}"
        source[0] = re.sub(r"\]\((?:\.\./)+README\.md", "](/index.md", source[0])

    app.connect("source-read", read)
