"""Make a virtual environment for each peer that the tests' environment lacks: `python benchmarks/peers/environments.py [NAME ...]`.

Each has one of its own, for their requirements conflict. Nothing here needs a GPU, and no CUDA libraries are installed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
FOLDER = PROJECT / ".tox" / "peers"
HIGHWAY = ("--editable", f"{PROJECT}[fast]")  # for the peers that borrow highway's decoder
TORCH = "torch==2.13.0"  # as in the tests' environment


@dataclass(frozen=True)
class Environment:
    """What to install for a peer.

    Args:
        requirements: Arguments of ``pip install``.
        bare: Packages to install without what they ask for, and pip's options for these.
        system: Debian's packages that building them needs.
        download: About how much pip fetches, in megabytes.
    """

    requirements: Sequence[str]
    bare: Sequence[str] = ()
    system: Sequence[str] = ()
    download: int = 100

    @property
    def has_ffmpeg(self) -> bool:
        """Whether FFmpeg's libraries come with it, inside PyAV."""
        return "av" in self.requirements


ENVIRONMENTS = {
    "spdl": Environment(["spdl", "av", TORCH, *HIGHWAY], download=300),  # torch, since training_thread.py trains
    "grain": Environment(["grain", TORCH, *HIGHWAY], download=320),
    "tensorpack": Environment(["tensorpack", *HIGHWAY]),
    "tensorflow": Environment(["tensorflow-cpu"], download=400),
    # DALI asks for CUDA's decoders, which its CPU operators do not use.
    "dali": Environment(
        ["astunparse", "gast<=0.7.0", "makefun", "numpy", "nvtx", "optree", "packaging", "six<=1.17"],
        bare=["nvidia-dali-cuda120", "nvidia-nvimgcodec-cu12<0.10"],
        download=500,
    ),
    # FFCV asks for opencv-python, which is the same with windows, and builds its extension with the torch and numpy that are there.
    "ffcv": Environment(
        [
            *("setuptools", "wheel", "assertpy", "fastargs", "numba", "opencv-python-headless", "pillow", "psutil", "pytorch-pfn-extras"),
            *("terminaltables", TORCH, "tqdm"),
        ],
        bare=["--no-build-isolation", "ffcv==1.0.2"],
        system=["g++", "libopencv-dev", "libturbojpeg0-dev", "pkg-config"],
        download=400,
    ),
    # torchvision asks for the torch that it was built with, whose wheel may bring gigabytes of CUDA.
    "transforms": Environment(["albumentations==2.0.8", TORCH, *HIGHWAY], bare=["torchvision==0.28.0"], download=400),
    "tensorcom": Environment(["tensorcom==0.1.0", TORCH], download=250),
    "ray": Environment(["ray[data]==2.60.0", *HIGHWAY], download=250),
    "iceoryx2": Environment(["iceoryx2", "numpy"], download=30),
    "flight": Environment(["numpy", "pyarrow"]),
    "grpc": Environment(["grpcio", "numpy"], download=30),
}


def python(name: str, folder: Path = FOLDER) -> Path:
    """Return the interpreter of an environment, which may not have been made; that of this process for no name."""
    return folder / name / "bin" / "python" if name else Path(sys.executable)


def variables(name: str, folder: Path = FOLDER) -> dict[str, str]:
    """Return the environment variables that a process in an environment needs besides those of this one."""
    has_ffmpeg = name and ENVIRONMENTS[name].has_ffmpeg
    return {"LD_LIBRARY_PATH": os.pathsep.join(map(str, _ffmpeg(name, folder)))} if has_ffmpeg else {}


def _ffmpeg(name: str, folder: Path) -> list[Path]:
    return sorted((folder / name).glob("lib/python*/site-packages/av.libs"))


def _link_ffmpeg(folder: Path) -> None:
    """Give FFmpeg's libraries the names that others look for: PyAV's are called libavcodec-5e6b81c2.so.62.28.102 and the like."""
    for library in folder.iterdir():
        if found := re.fullmatch(r"(lib(?:av|sw)\w+)-[0-9a-f]+(\.so\.\d+)[\d.]*", library.name):
            link = folder / "".join(found.groups())
            link.unlink(missing_ok=True)
            link.symlink_to(library.name)


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
    if environment.has_ffmpeg:
        for libraries in _ffmpeg(name, folder):
            _link_ffmpeg(libraries)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one or more of {', '.join(ENVIRONMENTS)}; default: all")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="folder for the environments (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.names) - ENVIRONMENTS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected one or more of {', '.join(ENVIRONMENTS)}")
    failed = []
    for name in options.names or ENVIRONMENTS:
        print(f"{name}: up to {ENVIRONMENTS[name].download} MB to download", flush=True)
        try:
            make(name, options.folder)
        except subprocess.CalledProcessError as error:
            failed.append(name)
            print(f"{name}: cannot be installed ({error}); the benchmark will report it as absent", file=sys.stderr, flush=True)
            if ENVIRONMENTS[name].system:
                print(
                    f"{name}: these system packages may be missing: apt-get install {' '.join(ENVIRONMENTS[name].system)}",
                    file=sys.stderr,
                    flush=True,
                )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
