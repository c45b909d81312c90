"""The Python in README.md and docs/ runs as it stands."""

import re
from pathlib import Path

import pytest

from highway import Pipeline
from highway.data import photos

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^(?P<mark><!-- .*? -->\n)?```python\n(?P<code>.*?)^```", re.M | re.S)
ELSEWHERE = "<!-- run by tests/test_examples.py -->"


def pages():
    """Yield each page with its blocks of Python, joined: later blocks of a page build on earlier ones."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        blocks = [m for m in BLOCK.finditer(path.read_text()) if (m["mark"] or "").strip() != ELSEWHERE]
        if blocks:
            yield pytest.param(path, blocks, id=str(path.relative_to(ROOT)))


@pytest.mark.parametrize(("path", "blocks"), list(pages()))
def test_the_code_on_a_page_runs(path, blocks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text, names = path.read_text(), {"__name__": "page", "data_dir": f"{photos()}/train"}
    for block in blocks:
        line = text.count("\n", 0, block.start("code"))
        exec(compile("\n" * line + block["code"], str(path), "exec"), names)
    for value in names.values():
        if isinstance(value, Pipeline):
            value.stop()


def test_the_version_is_in_the_changelog():
    import highway

    assert re.search(rf"^## {re.escape(highway.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_links_between_the_pages_lead_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)}: {target}"
