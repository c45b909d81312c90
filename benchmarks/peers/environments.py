"""Make a virtual environment for each peer that the tests' environment lacks: `python benchmarks/peers/environments.py [NAME ...]`.

Each has one of its own, for their requirements conflict. Nothing here needs a GPU, and no CUDA libraries are installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / ".tox" / "peers"
HIGHWAY = ("--editable", f"{PROJECT}[fast]")  # for the peers that borrow highway's decoder


@dataclass(frozen=True)
class Environment:
    """What to install for a peer.

    Args:
        requirements: Arguments of ``pip install``.
        bare: Packages to install without what they ask for.
        download: About how much pip fetches, in megabytes.
    """

    requirements: Sequence[str]
    bare: Sequence[str] = ()
    download: int = 100


ENVIRONMENTS = {
    "spdl": Environment(["spdl", *HIGHWAY]),
    "grain": Environment(["grain", *HIGHWAY], download=120),
    "tensorpack": Environment(["tensorpack", *HIGHWAY]),
    "tensorflow": Environment(["tensorflow-cpu"], download=400),
    # DALI asks for CUDA's decoders, which its CPU operators do not use.
    "dali": Environment(
        ["astunparse", "gast<=0.7.0", "makefun", "numpy", "nvtx", "optree", "packaging", "six<=1.17"],
        bare=["nvidia-dali-cuda120", "nvidia-nvimgcodec-cu12<0.10"],
        download=500,
    ),
}


def python(name: str, folder: Path = FOLDER) -> Path:
    """Return the interpreter of an environment, which may not have been made."""
    return folder / name / "bin" / "python"


def make(name: str, folder: Path = FOLDER) -> None:
    """Make an environment, or bring it up to date.

    Raises:
        subprocess.CalledProcessError: something cannot be installed; pip has said what.
    """
    environment, interpreter = ENVIRONMENTS[name], python(name, folder)
    if not interpreter.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / name], check=True)
    install = [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, *environment.requirements], check=True)
    if environment.bare:
        subprocess.run([*install, "--no-deps", *environment.bare], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(ENVIRONMENTS)}; all, if there is none")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the environments are made (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.names) - ENVIRONMENTS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected some of {', '.join(ENVIRONMENTS)}")
    failed = []
    for name in options.names or ENVIRONMENTS:
        print(f"{name}: up to {ENVIRONMENTS[name].download} MB to fetch", flush=True)
        try:
            make(name, options.folder)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"{name}: cannot be installed ({error}); the benchmark will call it absent", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
