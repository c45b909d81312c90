"""Hand-over to the frameworks that train; each is an optional dependency."""

from typing import TYPE_CHECKING, NoReturn

from highway.renamed import missing

if not TYPE_CHECKING:  # which would take every name for a name of this module

    def __getattr__(name: str) -> NoReturn:
        """Say what a class of Highway's is called now."""
        raise missing(__name__, name)
