"""The engine: runs a list of stages.

Each module uses only modules before it in this list: ``batch`` and ``ragged`` (the arrays of a batch), ``old_words`` and ``component`` (the
traits that a component may declare), ``notebook`` and ``stats``, ``context`` (passed to the code of a stage) and ``cancel``, ``stage`` (a
component with its settings, and the passports of its items), ``channel`` (the queue), ``source``, ``resume`` (the data of a state),
``randomness``, ``running`` (a stage of a running pipeline), ``input``, ``ahead`` (workers with several items in flight), ``time_limit``
(``Stage(timeout=...)``), ``hashing`` (hashes that detect changes), ``remake`` (makes items again), ``bodies`` (the code of the threads, for
each shape), ``script``, ``threads`` (the run), ``consumer`` (the position of the loop), ``pipeline`` (the user's interface). May use:
parameters, process, and the modules of the package itself (``errors``, ``mistakes``, ``columns``).
"""

from highway.engine.component import NotNowError, Position, Stateless, Traits
from highway.engine.context import Context
from highway.engine.pipeline import Pipeline
from highway.engine.stage import DROP, Stage
from highway.errors import EndOfStream
from highway.renamed import explain_missing

__all__ = ["DROP", "Context", "EndOfStream", "NotNowError", "Pipeline", "Position", "Stage", "Stateless", "Traits"]

explain_missing(__name__)
