"""Where an endpoint listens, as the option says it."""

from __future__ import annotations

import re

from highway.errors import ConfigError
from highway.topology.spec import MetricsSpec

_GIVEN = re.compile(r"(?:(?P<host>\[[^\]]+\]|[^:\[\]]+):)?(?P<first>\d{1,5})(?:-(?P<last>\d{1,5}))?")


def parse_metrics(text: str, default: MetricsSpec | None = None) -> MetricsSpec:
    """Return what ``--metrics [HOST:]PORT`` says; PORT may be a range, or 0 for any that is free.

    Args:
        text: The option's value.
        default: What the file says; its address counts where the option gives none.

    Raises:
        ConfigError: it cannot be read.
    """
    found = _GIVEN.fullmatch(text)
    first, last = (int(found["first"]), int(found["last"] or found["first"])) if found else (1, 0)
    if found is None or not first <= last <= 65535:
        raise ConfigError(f"--metrics {text}: expected a port, such as 9400, a range, or an address before it: 0.0.0.0:9400-9409")
    listen = found["host"] or (default.listen if default else MetricsSpec(0).listen)
    return MetricsSpec(f"{first}-{last}", listen.strip("[]"))
