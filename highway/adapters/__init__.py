"""Hand-over to the frameworks that train; each is an optional dependency."""

from highway.renamed import explain_missing

explain_missing(__name__)
