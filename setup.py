"""Packaging. The version stands in highway/__init__.py alone."""

import re
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = re.search(r'^__version__ = "(.+)"$', (here / "highway" / "__init__.py").read_text(), re.M).group(1)

fast = ["simplejpeg>=1.7", "opencv-python-headless>=4.8"]
torch = ["torch>=2.2"]
shards = ["webdataset>=0.2.86"]
test = [
    *fast,
    *shards,
    "hypothesis>=6.100",
    "msgpack-numpy>=0.4.8",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.5",
    "torch==2.13.0",
]

setup(
    name="highway",
    version=version,
    description="Feed deep-learning training: read, decode, augment and move batches, on one machine or many",
    long_description=(here / "README.md").read_text(),
    long_description_content_type="text/markdown",
    license="MIT",
    python_requires=">=3.11",
    packages=find_packages(include=["highway", "highway.*"]),
    package_data={"highway": ["py.typed", "data/photos/**/*"]},
    install_requires=["msgpack>=1.0.5", "msgspec>=0.18.6", "numpy>=1.26", "pillow>=10.3", "pyyaml>=6.0.1", "pyzmq>=26", "rich>=13.7"],
    extras_require={"fast": fast, "torch": torch, "shards": shards, "test": test},
    entry_points={
        "console_scripts": [
            "highway = highway.cli:main",
            "tensormon = highway.tools.mon:main",
            "tensorshow = highway.tools.show:main",
            "tensorstat = highway.tools.stat:main",
            "serve-imagenet-dir = highway.tools.serve_dir:main",
            "serve-imagenet-shards = highway.tools.serve_shards:main",
        ]
    },
)
