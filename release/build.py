"""Build what a release uploads into dist/, and try it as a user would: `tox -e release`. Nothing is uploaded.

An sdist is built, and from it one wheel for each Python that is installed here, with libjpeg-turbo copied into it. cibuildwheel
(`[tool.cibuildwheel]` in pyproject.toml) builds the wheels that are uploaded in the same way, in containers whose libraries are older, so
that they run on more systems.
"""

import glob
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PYTHONS = ("3.11", "3.12", "3.13")
HEADERS = "import os, sysconfig; print(os.path.exists(sysconfig.get_path('include') + '/Python.h'))"
EXTRA = "lmdb"  # a small one; the command that highway suggests for it is tried


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run(command, check=True, text=True, **options)


def found_pythons():
    """Yield the version and the program of each Python here that can build extensions."""
    for version in PYTHONS:
        candidates = [*glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python")), shutil.which(f"python{version}")]
        for python in filter(None, candidates):
            if subprocess.run([python, "-c", HEADERS], capture_output=True, text=True).stdout == "True\n":
                yield version, python
                break
        else:
            print(f"no wheel for Python {version}: it is not installed here, or its headers are not")


def build(pythons):
    """Return the sdist, and the wheels by version."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "-q", "--sdist", "--outdir", DIST, ROOT)
    (sdist,) = DIST.glob("*.tar.gz")
    wheels = {}
    for version, python in pythons.items():
        with tempfile.TemporaryDirectory() as folder:
            run(sys.executable, "-m", "pip", "--python", python, "-q", "wheel", "--no-deps", "-w", folder, sdist)
            (wheel,) = Path(folder).glob("*.whl")
            run("auditwheel", "repair", "-w", DIST, wheel)
        (wheels[version],) = DIST.glob(f"*-cp{version.replace('.', '')}-*.whl")
    return sdist, wheels


def install(folder, python, *requirements):
    """Return the Python of a new environment with the requirements."""
    run(python, "-m", "venv", folder)
    run(f"{folder}/bin/python", "-m", "pip", "-q", "install", "--no-compile", *requirements, cwd=folder)
    return f"{folder}/bin/python"


def try_extra(folder, python):
    """Run the command that highway suggests for a missing extra, with dist/ as the index."""
    suggested = f"from highway.extras import pip_install; print(pip_install({EXTRA!r}))"
    command = run(python, "-c", suggested, capture_output=True, cwd=folder).stdout.strip()
    environment = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "PIP_FIND_LINKS": str(DIST), "PIP_NO_COMPILE": "1"}
    run("bash", "-c", command.replace("pip install", "pip install -q"), env=environment, cwd=folder)
    run(python, "-c", f"import {EXTRA}", cwd=folder)


def try_beside_tensorcom(folder, python):
    """Install and uninstall tensorcom, which has some of highway's commands and removes them: `highway NAME` is there all the same."""
    run(python, "-m", "pip", "-q", "install", "--no-compile", "--no-deps", "tensorcom==0.1.0", cwd=folder)
    run(python, "-m", "pip", "-q", "uninstall", "-y", "tensorcom", cwd=folder)
    for name in ("mon", "show", "stat", "serve-dir", "serve-shards"):
        run(f"{folder}/bin/highway", name, "--help", cwd=folder, stdout=subprocess.DEVNULL)


def main():
    pythons = dict(found_pythons())
    sdist, wheels = build(pythons)
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, *wheels.values())
    for number, (version, python) in enumerate(pythons.items()):
        # The first as from an index, and with torch, whose wheels for other versions may bring gigabytes; the others as files.
        what = (f"--find-links={DIST}", "highway-data", "torch==2.13.0") if number == 0 else (wheels[version],)
        with tempfile.TemporaryDirectory() as folder:
            installed = install(folder, python, *what)
            run(installed, "-W", "error", ROOT / "release" / "try_wheel.py", ROOT / "README.md")
            try_extra(folder, installed)
            if number == 0:
                try_beside_tensorcom(folder, installed)
    print(*sorted(path.name for path in DIST.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
