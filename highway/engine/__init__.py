"""The engine: runs a list of stages.

Each module uses only the modules that come before it in this list:

- ``batch`` and ``ragged``: the arrays of a batch;
- ``old_words`` and ``component``: the shape (source, map, stream, sink) of a component, and the traits that it declares;
- ``notebook`` and ``stats``: statistics, and how notebooks show them;
- ``context`` and ``cancel``: the object through which the code of a stage uses the engine;
- ``stage``: a component with its settings, and the passport (the metadata) of an item;
- ``channel``: the queue between two stages;
- ``source``: the iterator of a source;
- ``resume``: the content of a state, which ``state_dict()`` returns;
- ``randomness``: the random numbers of maps;
- ``running``: a stage of a running pipeline;
- ``input``: the iterators that streams and sinks receive;
- ``ahead``: workers with several items in flight;
- ``time_limit``: the timeout of a stage;
- ``hashing``: hashes that detect changes of parameters, code and data;
- ``remake``: making items again when a run resumes;
- ``bodies``: the code of the worker threads, for each shape;
- ``script``: pipelines that run at the end of a script;
- ``threads``: the run of a pipeline;
- ``consumer``: the items that the user's loop has received;
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
