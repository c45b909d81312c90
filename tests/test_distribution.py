"""Two projects are called highway: highway-data, which this is, and one that installs another package under the same name."""

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import highway
from highway import distribution
from highway.extras import pip_install

PACKAGE = Path(highway.__file__).parent
ROOT = Path(__file__).parents[1]


@pytest.fixture
def site(tmp_path):
    """Return a folder like site-packages, in which this package lies as links."""
    (tmp_path / "highway").mkdir()
    for entry in PACKAGE.iterdir():
        if entry.name != "__pycache__":
            (tmp_path / "highway" / entry.name).symlink_to(entry)
    return tmp_path


def python(site, code, *options):
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run([sys.executable, *options, "-c", code], env=environment, cwd=site, capture_output=True, text=True)


def test_the_other_project_beside_this_one_is_named_at_import(site):
    (site / "highway-0.9.1.dist-info").mkdir()
    (site / "highway_data-0.1.0.dist-info").mkdir()
    done = python(site, "import highway; print(highway.__file__)")
    assert (done.returncode, done.stdout.strip()) == (0, str(site / "highway" / "__init__.py"))
    assert "UserWarning: the distribution highway 0.9.1 is installed in the same folder" in done.stderr
    assert "Remove both, with `pip uninstall -y highway highway-data`, and install only the distribution that you need." in done.stderr


def test_nothing_is_said_without_it(site):
    (site / "highway_data-0.1.0.dist-info").mkdir()
    (site / "highway_env-1.12.1.dist-info").mkdir()
    assert python(site, "import highway").stderr == ""


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": "file://SITE/my%20highway", "dir_info": {}}, "pip install 'SITE/my highway[lmdb]'"),
        ({"url": "file:///gone/highway", "dir_info": {}}, "pip install 'lmdb>=1.4'"),
        ({"url": "file:///gone/highway.whl", "archive_info": {}}, "pip install 'lmdb>=1.4'"),
        (
            {"url": "https://example.org/highway.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "pip install 'highway-data[lmdb] @ git+https://example.org/highway.git@abc'",
        ),
        ({"url": "https://example.org/h.whl", "archive_info": {}}, "pip install 'highway-data[lmdb] @ https://example.org/h.whl'"),
        (None, "pip install 'highway-data[lmdb]'"),
    ],
    ids=["checkout", "checkout that is gone", "wheel that is gone", "git", "wheel", "index"],
)
def test_the_command_for_an_extra_installs_from_where_highway_came_from(site, origin, command):
    info = site / "highway_data-0.1.0.dist-info"
    info.mkdir()
    needs = 'Requires-Dist: lmdb>=1.4; extra == "lmdb"\nRequires-Dist: plyvel; python_version < "4" and extra == "leveldb"\n'
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: highway-data\nVersion: 0.1.0\n{needs}")
    (site / "my highway").mkdir()
    if origin:
        (info / "direct_url.json").write_text(json.dumps(origin).replace("SITE", str(site)))
    done = python(site, "from highway.extras import pip_install; print(pip_install('lmdb'))")
    assert done.stdout.strip() == command.replace("SITE", str(site)), done.stderr


def test_in_a_checkout_the_command_for_an_extra_names_it():
    where = shlex.quote(f"{ROOT}[lmdb]")
    assert pip_install("lmdb") in (f"pip install -e {where}", f"pip install {where}")  # the second where it is not editable


@pytest.mark.parametrize("code", ["import highway.engine", "from highway.cli import main", "import highway.tenbin"])
def test_the_other_project_in_the_place_of_this_one_is_an_error(site, code):
    (site / "highway" / "__init__.py").unlink()
    (site / "highway" / "__init__.py").write_text('__version__ = "0.9.1"\n')
    done = python(site, code)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {site}/highway/__init__.py belongs to another project called highway")
    assert "Remove both, with `pip uninstall -y highway highway-data`, and install only the distribution that you need." in last


def test_the_other_project_removed_with_files_of_this_one_is_an_error(site):
    (site / "highway" / "__init__.py").unlink()
    done = python(site, "import highway.errors", "-S")  # without site-packages, where this package would be found
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {site}/highway/__init__.py is missing: the other project called highway was uninstalled")
    assert last.endswith("Install highway-data again, with `pip install --force-reinstall` instead of `pip install`.")


def test_the_name_is_the_same_everywhere():
    assert highway.__distribution__ == distribution.NAME
    texts = [path.read_text() for folder in ("highway", "docs", "benchmarks") for path in (ROOT / folder).rglob("*.[pm][yd]")]
    wrong = [
        found
        for text in [*texts, (ROOT / "README.md").read_text()]
        for found in re.findall(r"pip install (?:-\S+ )*'?highway['`\[\s].*", text)
    ]
    assert wrong == []


def test_a_release_has_wheels_for_the_versions_of_python_that_it_names():
    named = re.findall(r"Programming Language :: Python :: (3\.\d+)", (ROOT / "setup.py").read_text())
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]["build"]
    assert built == " ".join(f"cp{version.replace('.', '')}-*" for version in named)
    assert f"PYTHONS = {tuple(named)}".replace("'", '"') in (ROOT / "release" / "build.py").read_text()


def test_a_citation_names_this_version():
    assert f"\nversion: {highway.__version__}\n" in (ROOT / "CITATION.cff").read_text()
