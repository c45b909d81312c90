"""The table of all engines. No other code compares the names of engines."""

from __future__ import annotations

from collections.abc import Mapping

from highway.run.engines import Engine
from highway.run.launchers import kubernetes, local, ray, slurm, systemd

ENGINES: Mapping[str, Engine] = {each.name: each for each in (local.ENGINE, ray.ENGINE, slurm.ENGINE, kubernetes.ENGINE, systemd.ENGINE)}
"""The engines by name."""
