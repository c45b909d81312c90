"""Hand-over to the frameworks that train; each is an optional dependency."""

from functools import partial
from typing import TYPE_CHECKING

from highway.renamed import raise_missing

if not TYPE_CHECKING:  # which would take every name for a name of this module
    __getattr__ = partial(raise_missing, __name__)
