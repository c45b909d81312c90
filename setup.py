"""Packaging. Name and version stand in highway/__init__.py alone, the extras of formats in highway/datasets/formats.py."""

import re
import subprocess
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

here = Path(__file__).parent
about = dict(re.findall(r'^__(\w+)__ = "(.+?)"', (here / "highway" / "__init__.py").read_text(), re.M))

fast = ["simplejpeg>=1.7", "opencv-python-headless>=4.8", "stringzilla>=5.3"]
torch = ["torch>=2.6"]  # the oldest with in_order, and with the names that the iterators of highway.adapters.torch extend
shards = ["webdataset>=0.2.86"]
table = (here / "highway" / "datasets" / "formats.py").read_text()
formats = {extra: [requirement] for extra, requirement in re.findall(r'Extra\("(\w+)", "(.+?)"\)', table)}
own_environments = ("arrayrecord", "huggingface", "zarr")  # whose packages are large, or do not fit others
stores = ["obstore>=0.6", "fsspec>=2024.2"]
test = [  # without torch, whose tests are skipped where it is absent
    *fast,
    *shards,
    *(requirement for extra, requirements in formats.items() if extra not in own_environments for requirement in requirements),
    *stores,
    "hypothesis>=6.100",
    "ipython>=8.12",
    "jsonschema>=4.21",
    "msgpack-numpy>=0.4.8",
    "pytest>=9",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.5",
    "scipy>=1.11",  # what splines and borders are compared with
]


class BuildWhatCanBeBuilt(build_ext):
    """Leaves out what cannot be built, with a sentence instead of a compiler's errors. highway works without the extensions."""

    def build_extensions(self):
        self.extensions = [extension for extension in self.extensions if self._can_build(extension)]
        super().build_extensions()

    def _can_build(self, extension):
        try:
            command = [*self.compiler.compiler_so, *(f"-I{path}" for path in self.include_dirs), "-fsyntax-only", *extension.sources]
            subprocess.run(command, check=True, capture_output=True, cwd=here)
        except (AttributeError, OSError, subprocess.CalledProcessError):  # no Unix-like compiler, none at all, or no headers
            headers = "the headers of Python" + (" and of libjpeg-turbo 2.1 or later" if "jpeg" in extension.libraries else "")
            print(f"without {extension.name}, which needs a C compiler and {headers}")
            return False
        return True


setup(
    name=about["distribution"],
    version=about["version"],
    description="Feed deep-learning training: read, decode, augment and move batches, on one machine or many",
    long_description=(here / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE", "highway/images/libjpeg-turbo-licence.txt", "highway/observe/dashboard/page/uplot-licence.txt"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.11",
    packages=find_packages(include=["highway", "highway.*"]),
    ext_modules=[
        Extension("highway.images._jpeg", ["highway/images/_jpeg.c"], libraries=["jpeg"], extra_compile_args=["-O3"], optional=True),
        Extension(
            "highway.wire.transports.shm._message", ["highway/wire/transports/shm/_message.c"], extra_compile_args=["-O3"], optional=True
        ),
    ],
    cmdclass={"build_ext": BuildWhatCanBeBuilt},
    package_data={"highway": ["py.typed", "**/*.pyi", "data/*.yaml", "data/photos/**/*", "data/objects/**/*", "observe/dashboard/page/*"]},
    install_requires=[
        "lazy_loader>=0.6",
        "msgpack>=1.0.5",
        "msgspec>=0.18.6",
        "numpy>=2.0",
        "pillow>=10.3",
        "prometheus_client>=0.20",
        "pyyaml>=6.0.1",
        "pyzmq>=26",
        "rich>=13.7",
        "waitress>=3.0",
        "xxhash>=3.4",
    ],
    extras_require={
        "fast": fast,
        "torch": torch,
        "shards": shards,
        **formats,
        "stores": stores,
        "test": test,
        "docs": ["furo>=2024.8", "myst-parser>=4", "sphinx>=8"],
    },
    entry_points={
        "console_scripts": [
            "highway = highway.__main__:main",
            "tensormon = highway.cli.streams.mon:main",
            "tensorshow = highway.cli.streams.show:main",
            "tensorstat = highway.cli.streams.stat:main",
            "serve-imagenet-dir = highway.cli.streams.serve_dir:main",
            "serve-imagenet-shards = highway.cli.streams.serve_shards:main",
        ]
    },
)
