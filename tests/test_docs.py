"""The Python in README.md and docs/ runs as it stands."""

import importlib.util
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import msgspec
import pytest
import yaml

import highway
from highway import Context, Pipeline, Traits
from highway.cli.command import COMMANDS
from highway.errors import HighwayError
from highway.old_names import ACCEPTED
from highway.parameters import docstrings
from highway.parameters.hints import parameters_of
from highway.parameters.location import Location
from highway.topology.components import PACKAGES, built_in
from highway.topology.registry import Registry
from highway.topology.spec import FileSpec, LinkSpec, RoleSpec

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
    for package in {needed for block in blocks for needed in re.findall(r"<!-- needs (\w+) -->", block["mark"] or "")}:
        pytest.importorskip(package)
    text, names = path.read_text(), {"__name__": "page"}
    for block in blocks:
        line = text.count("\n", 0, block.start("code"))
        exec(compile("\n" * line + block["code"], str(path), "exec"), names)
    for value in names.values():
        if isinstance(value, Pipeline):
            value.stop()


def _rows(text):
    """Return the cells of the first rows of tables, by the first cell."""
    found = {}
    for line in re.findall(r"^\|(.*)\|$", text, re.M):
        name, *cells = (cell.strip(" *") for cell in line.split("|"))
        found.setdefault(name, cells)
    return found


def test_the_figures_in_the_readme_are_those_of_the_recorded_benchmarks():
    """Each row of the README's table: images/s and MB/s of the images' table."""
    recorded = (ROOT / "benchmarks" / "README.md").read_text()
    images = _rows(recorded.split("**A folder of JPEGs to batches**")[1])
    shown = _rows((ROOT / "README.md").read_text())
    assert {name: shown[name][1:] for name in FIGURES} == {name: images[case][:2] for name, case in FIGURES.items()}
    assert len(shown) == len(FIGURES) + 2  # with the head of the table


def test_the_figures_in_the_comparison_are_those_of_the_recorded_benchmarks():
    recorded = (ROOT / "benchmarks" / "README.md").read_text()
    measured = (ROOT / "docs" / "comparison.md").read_text().split("## Measured")[1]
    tables = re.findall(r"^\*\*(.+?)\*\*.*\n\n\| case .*\n\|---.*\n((?:\|.*\n)+)", measured, re.M)
    assert len(tables) == 6
    for title, rows in tables:
        figures = _rows(recorded.split(f"**{title}")[1])
        assert {name: figures[name][:1] for name in _rows(rows)} == _rows(rows)


FIGURES = {
    "highway, C extension": "highway",
    "highway, simplejpeg": "highway, wheels only",
    "Grain": "Grain, our decoder",
    "tf.data": "tf.data, fused operator",
    "PyTorch DataLoader, OpenCV": "DataLoader, cv2",
    "PyTorch DataLoader, Pillow": "DataLoader, Pillow",
}


def test_the_readme_fits_on_a_screen_or_two():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def test_the_examples_of_contributing_are_lines_of_the_files_that_they_name():
    checked = 0
    for block in re.findall(r"^```diff\n(.*?)^```", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S):
        lines = set()
        for line in block.splitlines():
            if line.startswith(" # "):
                lines = {one.partition("  #")[0].strip() for one in (ROOT / line.split()[1].rstrip(":")).read_text().splitlines()}
            elif added := line[1:].partition("  #")[0].strip():
                assert added in lines, line
                checked += 1
    assert checked > 15


def test_the_version_is_in_the_changelog():
    import highway

    assert re.search(rf"^## {re.escape(highway.__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_the_page_of_changes_lists_every_old_parameter_that_is_accepted():
    page = (ROOT / "docs" / "howto" / "what-changed.md").read_text().split("## Parameters with a new name")[1].split("##")[0]
    rows = [[re.findall(r"`(\w+)", cell) for cell in row.split("|")] for row in re.findall(r"^\| (`.*) \|$", page, re.M)]
    shown = {(component, old, new[0]) for components, olds, new in rows for component in components for old in olds}
    assert {(*key.split("."), new) for key, (new, _) in ACCEPTED.items()} <= shown


def test_links_between_the_pages_lead_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.relative_to(ROOT)}: {target}"


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    listed = {index.parent / target for target in re.findall(r"\]\(([^)]+)\)", index.read_text())}
    assert [str(page) for page in sorted(index.parent.rglob("*.md")) if page != index and page not in listed] == []


def test_the_reference_explains_all_that_a_component_may_say_of_itself():
    explained = re.findall(r"^\| `(\w+)", (ROOT / "docs" / "reference" / "components.md").read_text(), re.M)
    assert set(explained) - {"context"} == {field.name for field in fields(Traits)}


def test_the_reference_explains_what_a_context_has():
    rows = re.findall(r"^\| (`context\..*?) \|", (ROOT / "docs" / "reference" / "components.md").read_text(), re.M)
    explained = {name for row in rows for name in re.findall(r"`(?:context\.)?(\w+)", row)}
    own = {name for name in dir(Context()) if not name.startswith("_")}
    assert explained <= own and {"seed", "check", "wait", "report_error", "counters", "finish"} <= explained


def test_links_to_other_sites_are_well_formed():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for url in re.findall(r"\]\((\w+:[^)]*)\)", path.read_text()):
            assert re.fullmatch(r"https://[\w.-]+\.[a-z]+(:\d+)?(/[^\s]*)?", url), f"{path.relative_to(ROOT)}: {url}"


def pages_of_the_site():
    """Return the module that generates the pages of the site; it needs no Sphinx."""
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = pages_of_the_site()


@pytest.mark.parametrize("package", PACKAGES)
def test_the_yaml_of_the_reference_makes_each_component_with_its_defaults(package):
    """For all components that need no parameter; the others have ``...`` for what is required."""
    for name, cls in built_in(package).items():
        text = PAGES.form(package, name)
        (given,) = yaml.safe_load(text)
        while name not in given if isinstance(given, dict) else given != name:  # below Augmentations or Reader
            (given,) = given.values() if isinstance(given, dict) else given
        if "..." in text:
            continue
        try:
            made = cls()
        except HighwayError:  # it needs one of several parameters
            continue
        assert vars(Registry().build(given, Location())) == vars(made) or not is_dataclass(cls)


def test_every_public_name_is_on_a_page_of_the_reference(tmp_path):
    PAGES.generate(tmp_path)
    text = "".join(page.read_text() for page in (tmp_path / "generated").glob("*.rst"))
    listed = set(re.findall(r"^\.\. (?:auto\w+|py:data):: (\w+)$", text, re.M))
    public = {*highway.__all__, *(name for package in PACKAGES for name in built_in(package)), "DataLoader", "to_device", "to_dataset"}
    assert public - listed == set()


def test_every_key_of_the_file_and_every_command_is_on_a_page_of_the_reference(tmp_path):
    PAGES.generate(tmp_path)
    keys = re.findall(r"^``(\w+)``: ", (tmp_path / "generated" / "file.rst").read_text(), re.M)
    assert set(keys) >= {field.encode_name for spec in (FileSpec, RoleSpec, LinkSpec) for field in msgspec.structs.fields(spec)}
    commands = (tmp_path / "generated" / "commands.rst").read_text()
    assert [command.name for command in COMMANDS if f"usage: highway {command.name} " not in commands] == []


def test_links_to_the_notebooks_lead_to_a_page_that_shows_them(tmp_path):
    PAGES.generate(tmp_path)
    shown = (tmp_path / "generated" / "notebooks.markdown").read_text()
    assert re.findall(r"^## (.*)$", shown, re.M)[:1] == ["First steps"] and "dataset(" in shown and "Connection(" in shown
    assert "](generated/notebooks.markdown)" in PAGES.adapt(ROOT / "docs", "README", (ROOT / "docs" / "README.md").read_text())


def test_no_parameter_of_a_public_component_is_unexplained():
    found = [built_in(package)[name] for package in PACKAGES for name in built_in(package)]
    assert [f"{one.__name__}.{name}" for one in found for name in parameters_of(one) if name not in docstrings.parameters(one)] == []
