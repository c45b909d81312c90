"""The engine: runs a list of stages.

Modules: ``component`` (the traits that a component may declare), ``context`` (passed to the code of a stage), ``stage`` (a component with
its settings), ``pipeline`` (the user's interface), ``channel`` (the queue), ``workers`` (the code of a worker thread), ``ahead`` (workers
with several items in flight), ``threads`` (starts the threads). May use: parameters, process. Begin with ``component``, then ``pipeline``.
"""

from highway.engine.component import NotNowError, Position, Stateless, Traits
from highway.engine.context import Context
from highway.engine.pipeline import Pipeline
from highway.engine.stage import DROP, Stage
from highway.errors import EndOfStream
from highway.renamed import explain_missing

__all__ = ["DROP", "Context", "EndOfStream", "NotNowError", "Pipeline", "Position", "Stage", "Stateless", "Traits"]

explain_missing(__name__)
