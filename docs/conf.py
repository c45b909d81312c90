"""Sphinx: the site from the Markdown pages of this folder, and from pages that :mod:`pages` generates from the code.

``sphinx-build -W docs out/site`` builds it; ``tox -e docs`` also runs the code of the pages.
"""

import inspect
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pages

import highway
from highway.parameters import docstrings

project = "highway"
version = release = highway.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
source_suffix = {".md": "markdown", ".markdown": "markdown", ".rst": "restructuredtext"}

myst_heading_anchors = 4

autodoc_mock_imports = ["tensorflow", "jax", "keras", "ray", "tensorpack", "lightning", "transformers"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the types stand beside the parameters, with their ranges
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"highway {version}"
html_copy_source = False
html_static_path = ["style"]
html_css_files = ["site.css"]


def setup(app):
    """Connect what generates and completes pages."""
    app.connect("config-inited", lambda app, config: pages.generate(Path(app.srcdir)))
    app.connect("source-read", lambda app, page, text: text.__setitem__(0, pages.adapt(Path(app.srcdir), page, text[0])))
    app.connect("autodoc-process-docstring", complete, priority=100)  # before napoleon
    app.connect("autodoc-process-signature", short)


def complete(app, what, name, found, options, lines):
    """List all parameters, inherited ones too, with types and ranges; add the imports of examples, and how files name a component."""
    if what in ("class", "function", "exception") and callable(found):
        text = pages.runnable(docstrings.complete(found, typed=True), name.rpartition(".")[0])
        lines[:] = [*text.splitlines(), "", *pages.in_a_file(name), ""]


def short(app, what, name, found, options, signature, returned):
    """Show the names and default values of the parameters alone."""
    if what in ("class", "function", "method") and callable(found):
        try:
            parameters = inspect.signature(found).parameters.values()
        except (TypeError, ValueError):
            return None
        shown = [one.replace(annotation=one.empty) for one in parameters if one.name != "self"]
        return str(inspect.Signature(shown, __validate_parameters__=False)), None
    return None
