"""Pass batches to training frameworks. Each framework is an optional dependency."""

from highway.renamed import explain_missing

explain_missing(__name__)
