"""The engine: runs a list of stages.

Each module uses only the modules that come before it in this list:

- ``batch`` and ``ragged``: the arrays of a batch;
- ``old_words`` and ``component``: the shape and the traits of a component;
- ``notebook`` and ``stats``: statistics, and how notebooks show them;
- ``context`` and ``cancel``: the object by which the code of a stage talks to the engine;
- ``stage``: a component with its settings, and the passports of items;
- ``channel``: the queue between two stages;
- ``source``: the iterator of a source;
- ``resume``: the data of a state;
- ``randomness``: the random numbers of maps;
- ``running``: a stage of a running pipeline;
- ``input``: the iterators that streams and sinks receive;
- ``ahead``: workers with several items in flight;
- ``time_limit``: the timeout of a stage;
- ``hashing``: hashes that detect changes of parameters, code and data;
- ``remake``: making items again when a run resumes;
- ``bodies``: the code of the threads, for each shape;
- ``script``: pipelines that run at the end of a script;
- ``threads``: the run of a pipeline;
- ``consumer``: the position of the loop;
- ``pipeline``: the user's interface.

May use: parameters, process, and the modules ``errors``, ``mistakes``, ``columns`` of the package highway.
"""

from highway.engine.component import NotNowError, Position, Stateless, Traits
from highway.engine.context import Context
from highway.engine.pipeline import Pipeline
from highway.engine.stage import DROP, Stage
from highway.errors import EndOfStream
from highway.renamed import explain_missing

__all__ = ["DROP", "Context", "EndOfStream", "NotNowError", "Pipeline", "Position", "Stage", "Stateless", "Traits"]

explain_missing(__name__)
