"""A list of stages, running.

``component`` says what a component is and may say of itself, ``stage`` how one is run, ``pipeline`` is what its user sees; ``channel`` is
the queue, ``workers`` what a thread of a stage does, ``threads`` starts them. May use: parameters, process. Begin with ``component``, then
``pipeline``.
"""

from functools import partial
from typing import TYPE_CHECKING

from highway.engine.pipeline import Pipeline
from highway.engine.stage import DROP, Stage
from highway.errors import EndOfStream
from highway.renamed import raise_missing

__all__ = ["DROP", "EndOfStream", "Pipeline", "Stage"]

if not TYPE_CHECKING:  # which would take every name for a name of this module
    __getattr__ = partial(raise_missing, __name__)
