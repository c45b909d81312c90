"""The pictures of the documentation show the code and the recorded figures as they are now."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PLOTS = script(ROOT / "benchmarks" / "plots.py")
PICTURES = script(ROOT / "docs" / "pictures.py")
DRAWN = [path.stem for path in sorted((ROOT / "benchmarks" / "plots").glob("*.svg"))]


@pytest.mark.parametrize("name", DRAWN)
def test_the_bars_are_those_of_the_recorded_tables(name):
    recorded = (ROOT / "benchmarks" / "README.md").read_text()
    assert PLOTS.draw(recorded, name) == (ROOT / "benchmarks" / "plots" / f"{name}.svg").read_text(), "run: tox -e bench -- --plots"
    assert f"(plots/{name}.svg)" in recorded


def test_every_recorded_table_of_rates_is_drawn():
    recorded = (ROOT / "benchmarks" / "README.md").read_text()
    assert [name for name in re.findall(r"^<!-- (\w+) -->$", recorded, re.M) if PLOTS.draw(recorded, name)] == sorted(
        DRAWN, key=lambda name: recorded.index(f"<!-- {name} -->")
    )


TABLES = """<!-- mine -->
**Items & more (target: 1,500 items/s)**

| case         | items/s | MB/s |
| ------------ | ------: | ---: |
| highway      |   1,000 |    - |
| other        |     500 |    - |
| bound: loops |   2,000 |    - |

| case | against | ratio |
| ---- | ------: | ----: |
| a    |       b |     c |
<!-- end of mine -->"""


def test_a_bar_is_as_long_as_its_rate_and_bounds_and_targets_are_lines():
    picture = PLOTS.draw(TABLES, "mine")
    assert re.findall(r'<rect x="270".*? width="([\d.]+)".*? fill="([^"]+)"', picture) == [
        ("225.0", PLOTS.OURS),
        ("112.5", PLOTS.OTHERS),
        ("450.0", "none"),
    ]
    assert re.findall(r'd="M ([\d.]+)', picture) == ["607.5", "720.0"]  # the target, and the bound
    assert "Items &amp; more" in picture and "1,000" in picture
    assert PLOTS.draw(TABLES, "others") == ""


def test_each_script_draws_its_tables_and_measures_nothing():
    """Of a script that needs no other package; the others have the same parser."""
    ended = subprocess.run([sys.executable, "benchmarks/engine.py", "--plots"], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", f"{ROOT / 'benchmarks' / 'plots' / 'engine.svg'}\n")


def texts(picture):
    """Return the texts of a picture, sorted. Their places depend on the fonts of the installed Pillow."""
    return sorted(re.findall(r"<text[^>]*>([^<]*)</text>", picture))


@pytest.mark.parametrize("name", ["explanation/map.svg", "tutorial/quickstart.svg"])
def test_the_drawings_of_the_code_and_of_the_quickstart_are_up_to_date(name):
    assert texts(PICTURES.PICTURES[name]()) == texts((ROOT / "docs" / name).read_text()), f"run: python docs/pictures.py {name}"


def test_the_drawing_of_the_rooms_has_every_import_or_a_way_to_it():
    imported = {"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert PICTURES.reduced(imported) == {"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}


@pytest.mark.slow
def test_top_is_drawn_beside_a_run(tmp_path):
    shown = [text.replace("&#160;", " ") for text in texts(PICTURES.top())]
    assert [role for role in ("reader", "worker[0]", "worker[1]", "trainer") if not any(text.startswith(role) for text in shown)] == []
