"""Hand-over to JAX, which brings its own installation: ``pip install jax``, or ``jax[cuda12]``, ``jax[tpu]``, ..."""

from __future__ import annotations

from typing import TypedDict

try:
    import jax
except ImportError as error:
    from highway.errors import ConfigError

    raise ConfigError("highway.adapters.jax needs jax: pip install jax, or as https://docs.jax.dev says for your accelerator") from error


class Ranks(TypedDict):
    """Parameters of a reader: which of how many ranks this process is."""

    rank: int
    world_size: int


def ranks() -> Ranks:
    """Return which of JAX's processes this is, and how many there are, as parameters of a reader.

    ::

        jax.distributed.initialize()
        reader = Reader(dataset, 64, **ranks())

    A rank is a process, whatever number of devices it has. JAX knows its processes when ``jax.distributed.initialize()`` has been called;
    without that, this is rank 0 of 1. Called before it, this starts JAX's backend, and ``initialize()`` raises ``RuntimeError``.
    """
    return {"rank": jax.process_index(), "world_size": jax.process_count()}
