"""A list of stages, running.

``component`` says what a component is and what it may declare, ``context`` what its code receives,
``stage`` how one is run, ``pipeline`` is what its user sees; ``channel`` is
the queue, ``workers`` what a thread of a stage does, ``ahead`` what one does that has several items in work, ``threads`` starts them. May
use: parameters, process. Begin with ``component``, then ``pipeline``.
"""

from highway.engine.component import Traits
from highway.engine.context import Context
from highway.engine.pipeline import Pipeline
from highway.engine.stage import DROP, Stage
from highway.errors import EndOfStream
from highway.renamed import explain_missing

__all__ = ["DROP", "Context", "EndOfStream", "Pipeline", "Stage", "Traits"]

explain_missing(__name__)
